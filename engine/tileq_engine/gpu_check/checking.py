"""The parts of the check, one after another inside the time: what fails is reported, what follows still runs."""

from __future__ import annotations

__all__ = ["check"]

import json
import time as clock_time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, TileqError, positive

if TYPE_CHECKING:
    from tileq_engine.executor.light_fit import LightFit
    from tileq_engine.executor.profiling import ProfilePoint
    from tileq_engine.gpu_check.planning import SinglePlan
    from tileq_engine.policy import Policy
    from tileq_theory.iteration_time import IterationTime

SHAPES: dict[str, dict[str, Any]] = {
    "8b": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "layers": 32,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "intermediate_size": 14336,
        "rope_theta": 500_000.0,
        "norm_eps": 1e-5,
    },
    "1b": {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "layers": 16,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 64,
        "intermediate_size": 8192,
        "rope_theta": 500_000.0,
        "norm_eps": 1e-5,
        "tie_embeddings": True,
    },
}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done: batches, contexts, requests."""

    max_num_seqs: int
    max_tokens: int
    prompts: tuple[int, int]
    outputs: tuple[int, int]
    requests: int
    points: int
    peer_requests: int
    peak_seconds: float
    fractions: tuple[float, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest request."""
        return self.prompts[1] + self.outputs[1]


GPU = Size(128, 2048, (64, 1024), (32, 192), 1500, 60, 256, 6.0, (0.7, 0.9, 0.97, 1.03, 1.1))
CPU = Size(64, 128, (16, 64), (8, 40), 600, 40, 128, 4.0, (0.7, 0.9, 0.97, 1.03, 1.1))
SMOKE = Size(8, 32, (4, 16), (2, 8), 60, 10, 8, 0.2, (0.9,))


@dataclass(slots=True)
class Work:
    """What the parts share, and what they have found."""

    device: str
    size: Size
    backend: Any
    probe: Any
    deadline: float
    budget_s: float
    say: Callable[[str], None]
    parts: dict[str, Any] = field(default_factory=dict)
    keep: Callable[[Work], None] | None = None

    def share_s(self, share: float) -> float:
        """Return the seconds of a part: its share of the whole, not more than what is left."""
        return max(1.0, min(share * self.budget_s, self.deadline - clock_time.monotonic()))

    def run(self, name: str, part: Callable[[], dict[str, Any]]) -> None:
        """Run one part; an error of it is its result."""
        begun = clock_time.monotonic()
        if begun > self.deadline:
            self.parts[name] = {"right": False, "skipped": "no time was left"}
            return
        self.say(f"{name} ...")
        try:
            found = part()
        except Exception as error:  # whatever a device does must not take the report with it
            text = str(error) if isinstance(error, TileqError) else traceback.format_exc(limit=3)
            found = {"right": False, "error": text.strip()}
        self.parts[name] = {**found, "took_s": clock_time.monotonic() - begun}
        if self.keep is not None:  # whatever ends the process now, this part is there
            self.keep(self)


def check(
    *,
    device: str = "cuda",
    model: str | None = None,
    dtype: str | None = None,
    kv_tokens: int | None = None,
    budget_s: float = 540.0,
    out: str | Path | None = None,
    smoke: bool = False,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Run all parts within `budget_s` seconds; write `out`.json and `out`.md; return the document.

    Its `right` says whether correctness, replays and the parts' own checks all hold; `text` is the readable report.
    """
    from tileq_engine.executor.decoder_backend import gemm_probe, make_backend
    from tileq_engine.gpu_check.report import report_text

    begun = clock_time.monotonic()
    if out is not None:
        _ready(Path(out))
    cuda = device.startswith("cuda")
    size = SMOKE if smoke else (GPU if cuda else CPU)
    told = say or _quietly
    told(f"model on {device} ...")
    asked = kv_tokens or (None if cuda and not smoke else 64 * size.max_num_seqs * size.longest // 16)
    backend = make_backend(_shape(model, cuda and not smoke), device=device, dtype=dtype, kv_tokens=asked)
    graphs = backend.capture(size.max_num_seqs, size.max_tokens, 2 * size.longest)
    told(f"CUDA graphs: {graphs}")
    probe = gemm_probe(backend)
    probe.set_reference()
    deadline = begun + positive("budget_s", budget_s)
    work = Work(device, size, backend, probe, deadline, min(budget_s, 20.0) if smoke else budget_s, told)
    if out is not None:
        work.keep = lambda so_far: _write(Path(out), _document(so_far, clock_time.monotonic() - begun, complete=False))
    work.run("logits, fp32", lambda: _logits(work, "fp32"))
    number = "bf16" if cuda else "fp32"
    if number != "fp32":
        work.run(f"logits, {number}", lambda: _logits(work, number))
    work.run("tokens", lambda: _tokens(work))
    work.run("roofline", lambda: _roofline(work))
    work.run("profile", lambda: _profile(work))
    work.run("validation", lambda: _validation(work))
    work.run("transformers", lambda: _peer(work))
    document = _document(work, clock_time.monotonic() - begun)
    if out is not None:
        _write(Path(out), document)
    return {**document, "text": report_text(document)}


def _ready(out: Path) -> None:
    """Raise `InputError` now, not in ten minutes, if the report cannot be written."""
    if not out.parent.is_dir():
        raise InputError(f"out is {str(out)!r}, and there is no folder {str(out.parent)!r}; make it, or name another")
    page = Path(f"{out}.md")
    there = page.exists()
    try:
        page.touch()
        if not there:
            page.unlink()
    except OSError as problem:
        raise InputError(f"{page} cannot be written: {problem.strerror or problem}; name another place") from None


def _write(out: Path, document: dict[str, Any]) -> None:
    from tileq_engine.gpu_check.report import report_text

    Path(f"{out}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    Path(f"{out}.md").write_text(report_text(document), encoding="utf-8")


def _quietly(line: str) -> None:
    """Say nothing."""


def _shape(model: str | None, large: bool) -> Any:
    name = model or ("8b" if large else "small")
    if name in SHAPES:
        from tileq_engine.decoder import DecoderConfig

        return DecoderConfig(**SHAPES[name])
    if name != "small" and not Path(name).exists():
        raise InputError(
            f"model {name!r} is unknown; expected {', '.join(SHAPES)}, small, or a folder with config.json"
        )
    return name


def _logits(work: Work, dtype: str) -> dict[str, Any]:
    from tileq_engine.gpu_check.correctness import check_logits

    found = check_logits(work.device, dtype)
    peer = found["transformers"]
    return {**found, "right": found["right"] and (peer is None or peer["right"])}


def _tokens(work: Work) -> dict[str, Any]:
    from tileq_engine.gpu_check.correctness import check_tokens

    return check_tokens(work.device)


def _roofline(work: Work) -> dict[str, Any]:
    from tileq_engine.gpu_check.roofline import device_peaks, roofline_shares

    peaks = device_peaks(work.backend, work.size.peak_seconds)
    size = work.size
    shares = roofline_shares(work.backend, work.probe, peaks, size.max_num_seqs, size.longest, size.max_tokens)
    return {"right": True, "peaks": peaks, "shares": shares}


def _profile(work: Work) -> dict[str, Any]:
    from tileq_engine.executor.profiling import profile_executor
    from tileq_engine.executor.rehearsal import formed_batches, loop_overhead_s

    size = work.size
    extra = loop_overhead_s(work.backend, EngineConfig(max_num_seqs=size.max_num_seqs), size.max_num_seqs)
    limits = {"most_tokens": size.max_tokens, "most_sequences": size.max_num_seqs, "longest_context": size.longest}
    common: dict[str, Any] = {**limits, "extra_s": extra}
    points = profile_executor(work.backend, work.probe, **common, budget_s=work.share_s(0.1), count=size.points)
    first = _fitted(work, points).time
    config, _, policies = _setting(work, first)
    pair = [policies["rad_general"], policies["sarathi"]]
    formed = formed_batches(pair, _lengths(size).head(200), config, first, max(2, size.points // 2))
    points += profile_executor(work.backend, work.probe, **common, budget_s=work.share_s(0.08), designs=formed)
    made = _fitted(work, points)
    return {
        "right": True,
        "points": [p.to_dict() for p in points],
        "fit": made.time.to_dict(),
        "held_out_median_error": made.median_error,
        "loop_overhead_s": extra,
        "time": made.time,
    }


def _fitted(work: Work, points: Sequence[ProfilePoint]) -> LightFit:
    """Fit the points; those of batches as the policies form them have most of the weight."""
    from tileq_engine.executor.light_fit import light_fit

    rows = np.array([[p.tokens, p.pairs, p.kv_tokens, p.sequences] for p in points], dtype=float)
    formed = np.array([p.formed for p in points])
    weights = np.where(formed, 4.0 / max(int(formed.sum()), 1), 1.0 / max(int((~formed).sum()), 1))
    seconds = np.array([p.raw_seconds if work.backend.cuda else p.seconds for p in points])
    return light_fit(rows, seconds, weights=weights)


def _setting(work: Work, time: IterationTime) -> tuple[EngineConfig, SinglePlan, dict[str, Policy]]:
    """Return the engine's settings, the plan and the policies that an iteration time gives."""
    from tileq_engine.gpu_check.planning import single_plan
    from tileq_engine.registry import policy

    size = work.size
    plan = single_plan(time, _lengths(size), size.max_tokens, size.max_num_seqs, work.backend)
    config = EngineConfig(
        token_budget=plan.tokens,
        max_num_seqs=size.max_num_seqs,
        kv_tokens=work.backend.blocks * work.backend.block_tokens,
        block_tokens=work.backend.block_tokens,
    )
    rad = policy("rad_general", levels=[plan.level])
    return config, plan, {"rad_general": rad, "sarathi": policy("sarathi"), "slai": policy("slai")}


def _lengths(size: Size) -> Requests:
    random = np.random.default_rng(2)
    return Requests.from_arrays(
        arrival_ps=np.zeros(size.requests, dtype=np.int64),
        prompt_tokens=random.integers(size.prompts[0], size.prompts[1] + 1, size.requests),
        output_tokens=random.integers(size.outputs[0], size.outputs[1] + 1, size.requests),
    )


def _validation(work: Work) -> dict[str, Any]:
    from tileq_engine.executor.validation import run_cases, summary
    from tileq_engine.executor.validation_case import Trial

    fitted = work.parts["profile"].get("time")
    if fitted is None:
        return {"right": False, "error": "there is no profile to validate"}
    lengths, size = _lengths(work.size), work.size
    config, plan, policies = _setting(work, fitted)
    clock = "busy" if work.backend.cuda else "steady"
    trial = Trial(work.backend, work.probe, clock, config, lengths, plan.rate_per_s, fitted)
    documents, complete = run_cases(
        trial,
        policies,
        fractions=size.fractions,
        budget_s=work.share_s(0.45),
        on_case=lambda d, k, of: work.say(f"  {k} of {of}: {d['policy']} {d['fraction'] or 'saturated'}"),
    )
    found = summary(documents, rate_per_s=plan.rate_per_s)
    return {
        "right": found["replays_same"],
        "complete": complete,
        "clock": clock,
        "plan": plan.to_dict(),
        "cases": documents,
        "summary": found,
    }


def _peer(work: Work) -> dict[str, Any]:
    from tileq_engine.executor import serve
    from tileq_engine.executor.generate_peer import transformers_generate, transformers_model
    from tileq_engine.registry import policy

    lengths = _lengths(work.size).head(work.size.peer_requests)
    try:
        model = transformers_model(work.backend)
    except TileqError as reason:
        return {"right": True, "skipped": str(reason)}
    config = EngineConfig(token_budget=work.size.max_tokens, max_num_seqs=work.size.max_num_seqs)
    clock = "busy" if work.backend.cuda else "steady"
    served = serve(lengths, policy("sarathi"), work.backend, config, clock=clock, probe=work.probe, live=False)
    ours = float(lengths.output_tokens.sum()) / (served.raw.end_ps / 1e12)
    probe = None if work.backend.cuda else work.probe
    batch = min(work.size.max_num_seqs, 64)
    theirs = transformers_generate(work.backend, lengths, batch=batch, probe=probe, model=model)
    return {
        "right": True,
        "output_tokens_per_s": ours,
        "transformers": theirs.to_dict(),
        "ratio": ours / theirs.tokens_per_s,
    }


def _document(work: Work, took_s: float, complete: bool = True) -> dict[str, Any]:
    import platform

    from tileq_engine.decoder import torch_setup

    parts = {name: {k: v for k, v in part.items() if k != "time"} for name, part in work.parts.items()}
    return {
        "schema_version": 1,
        "kind": "tileq gpu check",
        "conditions": {
            **work.backend.describe(),
            "torch settings": torch_setup(1).to_dict(),
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
        "complete": complete,
        "right": complete and all(part.get("right", False) for part in parts.values()),
        "took_s": took_s,
        "parts": parts,
    }
