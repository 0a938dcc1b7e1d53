"""`tileq validate --executor vllm`: vLLM itself profiled, fitted, predicted, driven around lambda* and compared."""

from __future__ import annotations

__all__ = ["validate_vllm"]

import json
import os
import tempfile
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq.validating import DEFAULT_CLASS, Validated, _lengths, plan_of
from tileq_theory.errors import InputError, near_matches, positive, positive_int

if TYPE_CHECKING:
    from tileq_engine.requests import Requests

SCHEDULERS = {
    "sarathi": ("SarathiScheduler", "sarathi"),
    "slai": ("SlaiScheduler", "slai"),
    "rad_general": ("RadScheduler", "rad_general"),
    "aging": ("AgingScheduler", "aging"),
}
FRACTIONS = (0.7, 0.9, 1.1)
_BLOCK, _PROFILE_STEPS = 32, 60
SMALL = {
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


def validate_vllm(
    *,
    model: str | PathLike[str] = "small",
    device: str = "cpu",
    classes: Sequence[Any] | None = None,
    workload: Any = None,
    trace: Any = None,
    policies: Sequence[str] = ("sarathi",),
    fractions: Sequence[float] | None = None,
    requests: int = 800,
    max_num_seqs: int = 32,
    token_budget: int | None = None,
    max_tokens: int | None = None,
    kv_tokens: int | None = None,
    clock: str | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> Validated:
    """Profile vLLM, predict lambda*, measure its edge and its latencies around it; needs an environment with vLLM.

    Parameters
    ----------
    model
        "small" (a Llama of two layers, dummy weights), or a folder with config.json; weights are drawn where it has
        none.
    policies
        Of `sarathi`, `slai`, `rad_general`, `aging`.
    clock
        "cpu" (the default on a CPU: processor time of one thread) or "wall" (the default elsewhere).
    """
    from tileq.traffic import make_traffic

    for name in policies:
        if name not in SCHEDULERS:
            raise InputError(f"policy {name!r} is none of vLLM's here; {near_matches('policies', name, SCHEDULERS)}")
    clock = clock or ("cpu" if device == "cpu" else "wall")
    if clock not in ("cpu", "wall"):
        raise InputError(f"clock is {clock!r}; with vLLM expected cpu or wall")
    given = trace is not None or workload is not None or bool(classes)
    traffic = make_traffic(trace, workload, classes) if given else make_traffic(classes=[DEFAULT_CLASS])
    lengths: Requests = _lengths(traffic, positive_int("requests", requests), seed, None)
    longest = int((lengths.prompt_tokens + lengths.output_tokens).max())
    most = max(max_tokens or 16 * max_num_seqs, max_num_seqs)
    kv = kv_tokens or max_num_seqs * (longest + _BLOCK)
    bench = _Bench(_folder(model), device, most, max_num_seqs, kv // _BLOCK, longest, clock, say or (lambda line: None))
    steps = SimpleNamespace(max_tokens=most, max_num_seqs=max_num_seqs, kv_tokens=float(kv // _BLOCK * _BLOCK))

    engine = bench.engine("SarathiScheduler", {"token_budget": most, "max_num_seqs": max_num_seqs})
    before = bench.fit(engine, lengths)
    plan = plan_of(before.time, lengths, steps, token_budget)
    running, cases, fits = engine, [], [before]
    for name in policies:  # a profile on either side of each edge: the machine's speed wanders
        running, case = _edge(bench, running, name, plan, before.time, lengths, seed)
        fits.append(bench.fit(running, lengths))
        case["loads"] = _loads(bench, running, case, plan, before.time, lengths, fractions or FRACTIONS, seed)
        cases.append(case)
    rates = [float(plan_of(fit.time, lengths, steps, token_budget).budget_rate_per_s) for fit in fits]
    after, mean = fits[1], float(np.mean(rates[:2]))
    edges = {c["policy"]: c["edge_per_s"] for c in cases if c["edge_per_s"]}
    best = next(iter(edges.values()), None)
    document: dict[str, Any] = {
        "title": "vLLM around lambda*",
        "executor": "vllm",
        "conditions": {
            "model": str(model),
            "device": device,
            "clock": clock,
            "vllm": bench.version,
            "requests": len(lengths),
            "traffic": traffic.label,
            "max_num_seqs": max_num_seqs,
            "kv_tokens": steps.kv_tokens,
        },
        "fit": {
            "time": before.time.to_dict(),
            "points": int(before.errors.size),
            "median_error": before.median_error,
            "time_after": after.time.to_dict(),
        },
        "plan": {"token_budget": plan.token_budget, "rate_per_s": plan.capacity.rate_per_s},
        "cases": cases,
        "summary": {
            "rate_per_s": mean,
            "rates_by_profile_per_s": rates,
            "edges_per_s": edges,
            "rate_over_best_edge": None if best is None else mean / best - 1.0,
        },
    }
    from tileq.plain import plain

    cleaned: dict[str, Any] = plain(document)
    return Validated(cleaned, complete=True)


class _Bench:
    """One model on vLLM, with what every engine of a validation has in common."""

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

        try:
            self.version = installed_version()
            check_version(self.version)
        except VllmInterfaceError as error:
            raise InputError(str(error)) from None
        if device == "cpu":
            threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
            for name, value in {**threads, "VLLM_CPU_KVCACHE_SPACE": "1"}.items():
                os.environ.setdefault(name, value)
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        self.folder, self.clock, self.say = folder, clock, say
        self.most, self.seats, self.blocks, self.longest = most, seats, blocks, longest
        self.dtype = "float32" if device == "cpu" else "auto"
        self.policies: dict[str, Any] = {}

    def config(self, budget: int) -> Any:
        """Return the simulator's settings of the same engine."""
        from tileq_engine.config import EngineConfig

        return EngineConfig(token_budget=budget, max_num_seqs=self.seats, kv_tokens=_BLOCK * self.blocks)

    def engine(self, scheduler: str | None, tileq: dict[str, Any] | None) -> Any:
        from tileq_engine.vllm.driving import make_engine

        weights = any(Path(self.folder).glob("*.safetensors"))
        return make_engine(
            self.folder,
            scheduler,
            tileq,
            load_format="auto" if weights else "dummy",
            dtype=self.dtype,
            max_model_len=self.longest + 1,
            max_num_seqs=self.seats,
            max_num_batched_tokens=self.most,
            block_size=_BLOCK,
            num_gpu_blocks_override=self.blocks + 1,
            enable_prefix_caching=False,
        )

    def fit(self, engine: Any, lengths: Requests) -> Any:
        from tileq_engine.executor.light_fit import light_fit
        from tileq_engine.vllm.driving import profile_engine

        steps = [self.seats + 8, 2 * self.seats, 4 * self.seats, 8 * self.seats, self.most]
        budgets = sorted({min(b, self.most) for b in steps})
        crowds = sorted({1, max(1, self.seats // 8), max(1, self.seats // 3), self.seats})
        self.say(f"profile: {len(budgets)} budgets x {len(crowds)} residents x {_PROFILE_STEPS} iterations")
        table = profile_engine(engine, lengths, budgets, crowds, _PROFILE_STEPS, self.clock)
        kept = table[:, 4] <= np.quantile(table[:, 4], 0.97)  # what collected garbage or was interrupted
        return light_fit(table[kept, :4], table[kept, 4])


def _edge(
    bench: _Bench, engine: Any, name: str, plan: Any, time: Any, lengths: Requests, seed: int
) -> tuple[Any, dict[str, Any]]:
    """Return an engine with the policy, and its edge: measured, all requests at once, and simulated."""
    from tileq_engine.executor.figures import saturated_rate
    from tileq_engine.executor.validation_case import case_requests
    from tileq_engine.registry import policy
    from tileq_engine.simulator import simulate
    from tileq_engine.vllm.driving import drive

    scheduler, registered = SCHEDULERS[name]
    params: dict[str, Any] = {}
    if registered == "rad_general":
        params["levels"] = policy("rad_general", plan=plan).params["levels"]
    elif registered == "aging":
        params["base"] = "sarathi"
    budget = int(plan.token_budget)
    if engine.engine_core.engine_core.scheduler.mirror.rules.policy.name != registered or params:
        own = {"policy": registered, "params": params, "max_num_seqs": bench.seats, "token_budget": budget}
        engine = bench.engine(scheduler, own)
    engine.engine_core.engine_core.scheduler.mirror.set_scalars({"budget": budget})
    bench.policies[name] = policy(registered, **params)
    at_once = case_requests(lengths, None, seed)
    driven = drive(engine, at_once, seed=seed, clock=bench.clock)
    edge = driven.saturated_rate_per_s(float((lengths.prompt_tokens + lengths.output_tokens - 1).mean()))
    simulated = saturated_rate(simulate(at_once, bench.policies[name], time, bench.config(budget)))
    bench.say(f"{name}: edge {edge and round(edge, 2)} requests/s, lambda* {plan.budget_rate_per_s:.2f}")
    return engine, {
        "policy": name,
        "describes": bench.policies[name].describe(),
        "edge_per_s": edge,
        "edge_simulated_per_s": None if simulated is None else simulated[0],
    }


def _loads(
    bench: _Bench,
    engine: Any,
    case: dict[str, Any],
    plan: Any,
    time: Any,
    lengths: Requests,
    fractions: Sequence[float],
    seed: int,
) -> list[dict[str, Any]]:
    """Measure latencies at fractions of lambda* with timed arrivals, beside the simulator's."""
    from tileq_engine.executor.validation_case import case_requests
    from tileq_engine.simulator import simulate
    from tileq_engine.vllm.driving import drive

    loads = []
    for fraction in fractions:
        rate = positive("fraction", fraction) * float(plan.budget_rate_per_s)
        asked = case_requests(lengths, rate, seed)
        driven = drive(engine, asked, seed=seed, clock=bench.clock)
        raw = simulate(asked, bench.policies[case["policy"]], time, bench.config(int(plan.token_budget)))
        loads.append(
            {
                "fraction": fraction,
                "load": None if not case["edge_per_s"] else rate / case["edge_per_s"],
                "measured": _measured(driven),
                "simulated": _of_simulation(raw),
            }
        )
        bench.say(f"{case['policy']}: at {fraction:g} of lambda* done")
    return loads


def _measured(driven: Any) -> dict[str, float]:
    ttft = driven.ttft_s[len(driven.ttft_s) // 10 :]
    gaps = driven.tbt_s()
    return _four(ttft[~np.isnan(ttft)], gaps)


def _four(ttft: Any, gaps: Any, weights: Any = None) -> dict[str, float]:
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


def _of_simulation(raw: Any) -> dict[str, float]:
    ttft = (raw.first_token_ps - raw.arrival_ps)[len(raw.arrival_ps) // 10 :] / 1e12
    return _four(np.asarray(ttft, dtype=float), raw.gaps.gap_ps / 1e12, raw.gaps.count.astype(float))


def _folder(model: str | PathLike[str]) -> str:
    if str(model) == "small":
        folder = Path(tempfile.mkdtemp(prefix="tileq-vllm-small-"))
        (folder / "config.json").write_text(json.dumps(SMALL), encoding="utf-8")
        return str(folder)
    if not (Path(model) / "config.json").is_file():
        raise InputError(f"model {str(model)!r} is no folder with config.json; --executor vllm takes one, or small")
    return str(model)
