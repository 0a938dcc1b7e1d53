"""vLLM's offline engine in a validation: profiled, driven around lambda*, simulated, replayed.

The machine's speed wanders, and one saturated run is a sample of it. So the edge is measured in rounds, profiles in
between, by a closed loop of four times as many requests as there are seats.
"""

from __future__ import annotations

__all__ = [
    "CROWD",
    "ROUNDS",
    "SCHEDULERS",
    "Bench",
    "Fitted",
    "edge_of",
    "four",
    "model_folder",
    "of_simulation",
    "over_edges",
    "tokens_of",
]

import gc
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, positive
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_engine.config import EngineConfig
    from tileq_engine.policy import Policy
    from tileq_engine.requests import Requests

SCHEDULERS = {
    "sarathi": ("SarathiScheduler", "sarathi"),
    "slai": ("SlaiScheduler", "slai"),
    "rad_general": ("RadScheduler", "rad_general"),
    "aging": ("AgingScheduler", "aging"),
}
BLOCK_TOKENS = 32
_PROFILE_STEPS = 25
ROUNDS = 5
CROWD = 4  # requests in a saturated system, over its seats
STALL = 20.0  # times its fit: an iteration that takes longer stood still for a reason outside the engine
_COEFFICIENTS = ("launch_s", "weight_floor_s", "tile_s", "tile_tokens", "token_s", "pair_s", "kv_token_s", "sequence_s")
THREADS = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
SMALL: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


@dataclass(frozen=True, slots=True)
class Fitted:
    """An iteration time fitted to vLLM's own iterations."""

    time: IterationTime
    points: int
    median_error: float

    @classmethod
    def to(cls, table: Float[np.ndarray, "iteration 5"]) -> Fitted:
        """Fit iterations (n, A, K, m, seconds), all of them: rates are made of means, and long ones belong to these."""
        from tileq_engine.executor.light_fit import light_fit

        found = light_fit(table[:, :4], table[:, 4], stall=STALL)
        return cls(found.time, int(found.errors.size), found.median_error)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Fitted:
        """Return the fit of a document of `to_dict`."""
        given = {name: document["time"][name] for name in _COEFFICIENTS}
        return cls(IterationTime(**given), document["points"], document["median_error"])

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"time": self.time.to_dict(), "points": self.points, "median_error": self.median_error}


class Bench:
    """One model on vLLM, with what every engine and every server of a validation has in common."""

    def __init__(
        self,
        folder: str,
        device: str,
        most: int,
        seats: int,
        blocks: int,
        longest: int,
        clock: str,
        say: Callable[[str], None],
    ) -> None:
        from tileq_engine.vllm.versions import VllmInterfaceError, check_version, installed_version

        self.environment = {**THREADS, "VLLM_CPU_KVCACHE_SPACE": "1"} if device == "cpu" else {}
        spoken = {"VLLM_LOGGING_LEVEL": "WARNING", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}  # --json owns the output
        for name, value in {**self.environment, **spoken}.items():
            os.environ.setdefault(name, value)
        try:
            self.version = installed_version()
            check_version(self.version)
        except VllmInterfaceError as error:
            raise InputError(str(error)) from None
        self.folder, self.clock, self.say = folder, clock, say
        self.most, self.seats, self.blocks, self.longest = most, seats, blocks, longest
        self.device, self.dtype = device, "float32" if device == "cpu" else "auto"
        self.weights = any(Path(folder).glob("*.safetensors"))
        self._engine: Any = None
        self._runs: tuple[str, str] | None = None

    def config(self, budget: int) -> EngineConfig:
        """Return the simulator's settings of the same engine."""
        from tileq_engine.config import EngineConfig

        kv = BLOCK_TOKENS * self.blocks
        return EngineConfig(token_budget=budget, max_num_seqs=self.seats, kv_tokens=kv, block_tokens=BLOCK_TOKENS)

    def settings(self, name: str, plan: Any) -> dict[str, Any]:
        """Return the settings of Tileq's scheduler for policy `name` under `plan` (None: as it is profiled)."""
        from tileq_engine.registry import policy

        params: dict[str, Any] = {}
        if name == "rad_general":
            params["levels"] = policy("rad_general", plan=plan).params["levels"]
        elif name == "aging":
            params["base"] = "sarathi"
        own = {"policy": SCHEDULERS[name][1], "params": params, "max_num_seqs": self.seats}
        return {**own, "token_budget": self.most if plan is None else int(plan.token_budget)}

    def policy(self, name: str, plan: Any) -> Policy:
        """Return the simulator's policy of that name under `plan`."""
        from tileq_engine.registry import policy

        return policy(SCHEDULERS[name][1], **self.settings(name, plan)["params"])

    def options(self) -> dict[str, Any]:
        """Return vLLM's own settings, by the names of its Python interface."""
        return {
            "load_format": "auto" if self.weights else "dummy",
            "dtype": self.dtype,
            "max_model_len": self.longest + 1,
            "max_num_seqs": self.seats,
            "max_num_batched_tokens": self.most,
            "block_size": BLOCK_TOKENS,
            "num_gpu_blocks_override": self.blocks + 1,
            "enable_prefix_caching": False,
        }

    def engine(self, name: str, plan: Any) -> Any:
        """Return the offline engine with policy `name`; the one that is there, where it has that policy."""
        from tileq_engine.vllm.driving import make_engine

        settings = self.settings(name, plan)
        wanted = (settings["policy"], json.dumps(settings["params"]))
        if self._engine is None or self._runs != wanted:
            self.close()
            own = {**settings, "token_budget": self.most}  # set below: a profile needs the largest
            self._engine, self._runs = make_engine(self.folder, SCHEDULERS[name][0], own, **self.options()), wanted
        mirror = self._engine.engine_core.engine_core.scheduler.mirror
        mirror.set_scalars({"budget": settings["token_budget"]})
        return self._engine

    def close(self) -> None:
        """Give the offline engine's memory back."""
        if self._engine is None:
            return
        self._engine.engine_core.shutdown()
        self._engine = self._runs = None
        gc.collect()
        if self.device != "cpu":
            import torch

            torch.cuda.empty_cache()

    def profile(self, engine: Any, lengths: Requests) -> Float[np.ndarray, "iteration 5"]:
        """Return shapes and seconds of iterations over budgets and residents."""
        from tileq_engine.vllm.driving import profile_engine

        steps = [self.seats + 8, 2 * self.seats, 4 * self.seats, 8 * self.seats, self.most]
        budgets = sorted({min(b, self.most) for b in steps})
        crowds = sorted({1, max(1, self.seats // 8), max(1, self.seats // 3), self.seats})
        self.say(f"profile: {len(budgets)} budgets x {len(crowds)} residents x {_PROFILE_STEPS} iterations")
        return profile_engine(engine, lengths, budgets, crowds, _PROFILE_STEPS, self.clock)

    def edge(self, name: str, plan: Any, lengths: Requests, seed: int) -> dict[str, Any]:
        """Measure the edge of policy `name` once, in a closed loop, and replay the run."""
        from tileq_engine.executor.validation_case import case_requests
        from tileq_engine.vllm.driving import drive

        asked = case_requests(lengths, None, seed)
        engine = self.engine(name, plan)
        driven = drive(engine, asked, inside=CROWD * self.seats, seed=seed, clock=self.clock)
        edge = driven.saturated_rate_per_s(tokens_of(lengths))
        self.say(f"{name}: edge {edge and round(edge, 2)} requests/s")
        return {"edge_per_s": edge, "replay": self._replayed(driven, self.policy(name, plan), plan)}

    def simulated_edge(self, name: str, plan: Any, time: IterationTime, lengths: Requests) -> float | None:
        """Return the simulator's saturated rate, all requests at once."""
        from tileq_engine.executor.figures import saturated_rate
        from tileq_engine.simulator import simulate

        found = saturated_rate(simulate(lengths, self.policy(name, plan), time, self.config(int(plan.token_budget))))
        return None if found is None else found[0]

    def rate_per_s(self, time: IterationTime, lengths: Requests, budget: int) -> float:
        """Return lambda* of an iteration time at the budget that is served with."""
        from tileq.validating import workload_of
        from tileq_theory.capacity import Limits, sarathi_capacity

        limits = Limits(max_batch_tokens=budget, max_num_seqs=self.seats, kv_tokens=float(self.blocks * BLOCK_TOKENS))
        demand = workload_of(lengths).demand(chunk_tokens=budget)
        return float(sarathi_capacity(time, demand, limits, token_budget=budget).rate_per_s)

    def load(
        self, name: str, plan: Any, fitted: Fitted, lengths: Requests, fraction: float, seed: int
    ) -> dict[str, Any]:
        """Measure latencies at a fraction of lambda* with timed arrivals, beside the simulator's."""
        from tileq_engine.executor.validation_case import case_requests
        from tileq_engine.simulator import simulate
        from tileq_engine.vllm.driving import drive

        budget = int(plan.token_budget)
        rate = positive("fraction", fraction) * self.rate_per_s(fitted.time, lengths, budget)
        asked = case_requests(lengths, rate, seed)
        driven = drive(self.engine(name, plan), asked, seed=seed, clock=self.clock)
        own = self.policy(name, plan)
        raw = simulate(asked, own, fitted.time, self.config(budget))
        self.say(f"{name}: at {fraction:g} of lambda* done")
        return {
            "fraction": fraction,
            "rate_per_s": rate,
            "measured": four(driven.ttft_s, driven.tbt_s()),
            "simulated": of_simulation(raw),
            "replay": self._replayed(driven, own, plan),
        }

    def _replayed(self, driven: Any, own: Policy, plan: Any) -> dict[str, Any]:
        """Replay a run in the simulator, and hold the moments of its tokens against the replay's."""
        from tileq_engine.vllm.replaying import replay_record

        found = replay_record(driven.record, own, self.config(int(plan.token_budget)))
        off = [
            np.abs(ours - theirs / 1e12)[theirs >= 0]
            for ours, theirs in ((driven.first_s, found.raw.first_token_ps), (driven.finish_s, found.raw.finish_ps))
        ]
        worst = 1e6 * max((float(np.nanmax(each)) for each in off if each.size), default=0.0)
        return {**found.to_dict(), "tokens_us": worst}


def tokens_of(lengths: Requests) -> float:
    """Return the mean number of tokens that a request's iterations compute."""
    return float((lengths.prompt_tokens + lengths.output_tokens - 1).mean())


def edge_of(edges: Sequence[float | None]) -> dict[str, Any]:
    """Return the mean of an edge over its rounds, half its 95 % interval (None: of one round), and the rounds."""
    from tileq_engine.intervals import student_interval

    known = [edge for edge in edges if edge]
    found = student_interval(known) if known else None
    half = None if found is None or len(known) < 2 else found.half_width
    return {"edge_per_s": found and found.estimate, "edge_halfwidth_per_s": half, "edges_per_s": list(edges)}


def over_edges(rate: float, rates: Sequence[float], edges: Sequence[float | None]) -> dict[str, Any] | None:
    """Return lambda* over the mean edge, less 1, with its 95 % interval; None where no edge is known.

    The estimate is `rate`, of the fit to all profiles, over the mean of the rounds' edges. Its half width is that of
    the difference of two means, of log `rates` (a profile each) and of log `edges`, taken as independent samples with
    Welch's degrees of freedom; profiles and rounds take turns, so that a drift they share makes it too wide.
    """
    from scipy.special import stdtrit

    known = np.array([edge for edge in edges if edge])
    if not known.size:
        return None
    over = rate / float(known.mean())
    found: dict[str, Any] = {"estimate": over - 1.0, "low": None, "high": None, "rounds": int(known.size)}
    samples = [np.log(np.asarray(rates, dtype=float)), np.log(known)]
    if min(sample.size for sample in samples) < 2:
        return found
    parts = np.array([float(sample.var(ddof=1)) / sample.size for sample in samples])
    half = 0.0
    if parts.sum() > 0:
        freedom = parts.sum() ** 2 / float(
            sum(p**2 / (sample.size - 1) for p, sample in zip(parts, samples, strict=True))
        )
        half = float(stdtrit(freedom, 0.975) * np.sqrt(parts.sum()))
    return {**found, "low": over * float(np.exp(-half)) - 1.0, "high": over * float(np.exp(half)) - 1.0}


def four(ttft: Any, gaps: Any, weights: Any = None) -> dict[str, float | None]:
    """Return median and 99th percentile of TTFT (without the first tenth), mean and 99th percentile of TBT, seconds."""
    ttft = ttft[len(ttft) // 10 :]
    ttft = ttft[~np.isnan(ttft)]
    if not ttft.size or not gaps.size:
        return dict.fromkeys(("ttft_p50_s", "ttft_p99_s", "tbt_mean_s", "tbt_p99_s"))
    weights = np.ones(gaps.size) if weights is None else weights
    order = np.argsort(gaps)
    total = np.cumsum(weights[order])
    p99 = gaps[order][min(int(np.searchsorted(total, 0.99 * total[-1])), gaps.size - 1)]
    return {
        "ttft_p50_s": float(np.median(ttft)),
        "ttft_p99_s": float(np.quantile(ttft, 0.99)),
        "tbt_mean_s": float((gaps * weights).sum() / weights.sum()),
        "tbt_p99_s": float(p99),
    }


def of_simulation(raw: Any) -> dict[str, float | None]:
    """Return `four` of a simulation."""
    ttft = np.where(raw.first_token_ps >= 0, (raw.first_token_ps - raw.arrival_ps) / 1e12, np.nan)
    return four(ttft, raw.gaps.gap_ps / 1e12, raw.gaps.count.astype(float))


def model_folder(model: str | PathLike[str]) -> str:
    """Return the folder of a model; "small" is written into a temporary one, with a tokenizer."""
    if str(model) == "small":
        from tileq_engine.vllm.server import small_tokenizer

        folder = Path(tempfile.mkdtemp(prefix="tileq-vllm-small-"))
        (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
        small_tokenizer(folder, int(SMALL["vocab_size"]))
        return str(folder)
    if not (Path(model) / "config.json").is_file():
        raise InputError(f"model {str(model)!r} is no folder with config.json; --executor vllm takes one, or small")
    return str(model)


def sequence(names: Sequence[str]) -> list[str]:
    """Return the policies asked for; raise `InputError` for one that does not run here, or comes twice."""
    from tileq_theory.errors import near_matches

    for name in names:
        if name not in SCHEDULERS:
            raise InputError(f"policy {name!r} is none of vLLM's here; {near_matches('policies', name, SCHEDULERS)}")
    if not names or len(set(names)) != len(names):
        raise InputError(f"policies are {', '.join(names) or 'none'}; expected at least one, each once")
    return list(names)
