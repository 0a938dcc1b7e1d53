"""What the items on scheduler anatomy share: Llama-3.1-8B on an A100, two length laws, a memory that is nearly full."""

from __future__ import annotations

__all__ = ["LAWS", "SOURCE", "TABLE", "Measures", "config", "draw", "iteration_time", "measures", "run"]

from dataclasses import dataclass
from typing import Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_theory.iteration_time import IterationTime

SOURCE = "article on decode scheduling and TPOT (2026), after Orca, vLLM's SJF RFC and Sarathi-Serve"
TABLE = "table of p99 TPOT by policy at Poisson 4 requests/s"
# KV tokens at which each law keeps the memory about as busy: eviction is what sets TPOT apart
LAWS: dict[str, dict[str, Any]] = {"even": {"kv_tokens": 8_000}, "heavy-tailed": {"kv_tokens": 13_000}}


def iteration_time() -> IterationTime:
    """Return the roofline of Llama-3.1-8B on an A100-80GB, corrected by measurements."""
    from tileq_theory.hardware import load_gpu, load_model, roofline

    return roofline(load_gpu("a100-sxm-80gb"), load_model("llama-3.1-8b"))


def draw(law: str, rate_per_s: float, count: int, rng: np.random.Generator, *, high_share: float = 0.0) -> Requests:
    """Return Poisson arrivals; even: uniform lengths, heavy-tailed: lognormal of nearly the same means.

    A share `high_share` has priority 0 (urgent), the others 1; class and priority agree.
    """
    if law == "even":
        prompt, output = rng.integers(200, 601, count), rng.integers(200, 401, count)
    else:
        prompt, output = (
            np.clip(rng.lognormal(np.log(mean) - 0.5, 1.0, count), 1, 4000).astype(np.int64) for mean in (400, 300)
        )
    arrival = np.cumsum(rng.exponential(1 / rate_per_s, count))
    low = (rng.random(count) >= high_share).astype(np.int64) if high_share else np.zeros(count, dtype=np.int64)
    return Requests.from_arrays(
        prompt_tokens=prompt, output_tokens=output, arrival_s=arrival, priority=low, class_index=low
    )


def config(law: str, **changes: Any) -> EngineConfig:
    """Return the engine's settings for a law."""
    base = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=LAWS[law]["kv_tokens"])
    return base.with_(**changes)


def run(requests: Requests, name: str, params: dict[str, Any], settings: EngineConfig) -> Any:
    """Simulate requests under a policy on the shared iteration time."""
    from tileq_engine.registry import policy
    from tileq_engine.simulator import simulate

    return simulate(requests, policy(name, **params), iteration_time(), settings)


@dataclass(frozen=True, slots=True)
class Measures:
    """TPOT, TTFT and largest gap of a group of requests: quantiles in seconds, share that was preempted."""

    tpot_p50_s: float
    tpot_p99_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    gap_p99_s: float
    preempted: float


def measures(requests: Requests, done: Any, chosen: Any = None) -> Measures:
    """Return the measures of the finished requests among `chosen` (a mask; None: all)."""
    mask = (done.finish_ps >= 0) & (requests.output_tokens > 1)
    if chosen is not None:
        mask &= chosen
    tokens = requests.output_tokens[mask] - 1
    tpot = (done.finish_ps - done.first_token_ps)[mask] * 1e-12 / tokens
    ttft = (done.first_token_ps - done.arrival_ps)[mask] * 1e-12
    gap = done.max_gap_ps[mask] * 1e-12
    return Measures(
        tpot_p50_s=float(np.quantile(tpot, 0.5)),
        tpot_p99_s=float(np.quantile(tpot, 0.99)),
        ttft_p50_s=float(np.quantile(ttft, 0.5)),
        ttft_p99_s=float(np.quantile(ttft, 0.99)),
        gap_p99_s=float(np.quantile(gap, 0.99)),
        preempted=float((done.preemptions[mask] > 0).mean()),
    )
