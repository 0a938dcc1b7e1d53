"""The evaluation's setting: Mistral-7B on an RTX 6000 Ada, ShareGPT lengths, two tiers, eight policies."""

from __future__ import annotations

__all__ = [
    "BASE",
    "LENGTHS_FILE",
    "LIMITS_S",
    "POLICIES",
    "SARATHI",
    "SLAI",
    "TTFT_MEDIAN_S",
    "Measured",
    "draw",
    "feasible",
    "lengths_at_hand",
    "serve",
]

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from paper_repro.slai.setting import BLOCK_TOKENS, BLOCKS, CALIBRATION
from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError

LIMITS_S = {"paying": 0.1, "standard": 0.5}
PAYING_SHARE = 0.05
TTFT_MEDIAN_S = 0.5
LENGTHS_FILE = "slai/sharegpt_8k_filtered_stats_llama2_tokenizer.csv"
_POOL = 8192  # requests of one replication; a rate and a horizon take the first of them

# label -> policy, its parameters, settings. vLLM's budget is the longest context, Orca has 16 slots and no budget: the
# authors' configuration (agrimUT/SLAI). None: the run's own.
POLICIES: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    "vLLM": ("vllm_v0", {}, {"token_budget": 8192}),
    "Orca": ("orca", {}, {"token_budget": 16 * 8192, "max_num_seqs": 16}),
    "Sarathi-Serve FCFS": ("sarathi", {}, {}),
    "Sarathi-Serve SPF": ("sarathi", {"order": "spf"}, {}),
    "SLAI FCFS, fixed": ("slai", {"theta": 10.0}, {}),
    "SLAI SPF, fixed": ("slai", {"order": "spf", "theta": 10.0}, {}),
    "SLAI SPF, dynamic": ("slai", {"order": "spf"}, {}),
    "SLAI SPF, dynamic, user priority": ("slai", {"order": "paying_spf"}, {}),
}
SARATHI, SLAI = "Sarathi-Serve FCFS", "SLAI SPF, dynamic"

# what a sensitivity run may change; lengths None: the recorded ones where they are at hand
BASE: dict[str, Any] = {
    "convention": "slai",  # metrics: "slai" as the authors measure, "tileq" as the engine does
    "arrivals": "cut",  # gaps "cut" at three means (the authors' generator), or "poisson"
    "tokens": "engine",  # the last prompt chunk emits a token; "paper": every token is a decode step
    "lengths": None,
    "time": {},  # coefficients of the iteration time in place of the calibrated ones
    "scale": 1.0,
    "kv_tokens": BLOCKS * BLOCK_TOKENS,
    "token_budget": 512,
    "theta": None,
}


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run showed: TTFT of all and of the paying, p99 TBT of each tier, in seconds; nan where nothing was."""

    ttft_p50_s: float
    ttft_p99_s: float
    ttft_mean_s: float
    paying_ttft_p50_s: float
    tbt_p99_s: dict[str, float]
    finished: int
    preemptions: int


def lengths_at_hand() -> str:
    """Return "recorded" where the authors' file of lengths is there, "fitted" (the shipped workload) otherwise."""
    return "recorded" if _file() is not None else "fitted"


def _file() -> Path | None:
    """Return the authors' lengths in $TILEQ_DATA, or in shared/data beside the checkout."""
    named = os.environ.get("TILEQ_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    path = folder / LENGTHS_FILE
    return path if path.is_file() else None


@cache
def _recorded() -> Int[np.ndarray, "2 row"]:
    from tileq_profiling.readers.registry import read_trace

    path = _file()
    if path is None:
        raise InputError(f"lengths 'recorded' need {LENGTHS_FILE} under $TILEQ_DATA or shared/data; use 'fitted'")
    trace = read_trace(path)
    return np.stack([trace.prompt_tokens, trace.output_tokens]).astype(np.int64)


@cache
def _pool(lengths: str, seed: int, replication: int) -> Int[np.ndarray, "2 request"]:
    """Return prompt and output lengths of a replication: rows without repetition, or draws of the fitted table."""
    rng = np.random.default_rng([seed, replication, 0])
    if lengths == "recorded":
        table = _recorded()
        return table[:, rng.permutation(table.shape[1])[:_POOL]]
    from tileq_theory.workloads import named_workload

    drawn = named_workload("sharegpt").with_rate(1.0).sample(rng, _POOL)
    return np.stack([drawn.prompt_tokens, drawn.output_tokens]).astype(np.int64)


def draw(rate: float, horizon_s: float, lengths: str, arrivals: str, seed: int, replication: int) -> Requests:
    """Return the requests of a rate: one stream for every policy, the same requests closer together at a higher rate.

    Each pays with probability .05, with a TBT limit of .1 s, else .5 s.
    """
    from tileq_engine.metrics_slai import slai_arrivals_s

    rng = np.random.default_rng([seed, replication, 1])
    at = slai_arrivals_s(rng, _POOL, rate) if arrivals == "cut" else np.cumsum(rng.standard_exponential(_POOL)) / rate
    if at[-1] < horizon_s:
        raise InputError(f"{_POOL} requests end before {horizon_s:g} s at {rate:g} requests/s; lower rate or horizon")
    count = max(int(np.searchsorted(at, horizon_s)), 1)
    paying = np.random.default_rng([seed, replication, 2]).random(_POOL) < PAYING_SHARE
    pool = _pool(lengths, seed, replication)
    limit = np.where(paying, LIMITS_S["paying"], LIMITS_S["standard"])
    return Requests.from_arrays(
        prompt_tokens=pool[0, :count],
        output_tokens=pool[1, :count],
        arrival_s=at[:count],
        paying=paying[:count],
        tbt_limit_s=limit[:count],
    )


def serve(
    label: str, rate: float, horizon_s: float, setting: Mapping[str, Any], seed: int, replication: int
) -> Measured:
    """Serve `horizon_s` seconds of arrivals under a policy of `POLICIES` and measure by the setting's convention."""
    from tileq_engine.registry import policy
    from tileq_engine.run_raw import run_from_raw
    from tileq_engine.simulator import simulate

    s = {**BASE, **setting}
    name, params, own = POLICIES[label]
    if s["theta"] is not None and name == "slai":
        params = {**params, "theta": s["theta"]}
    requests = draw(rate, horizon_s, s["lengths"] or lengths_at_hand(), s["arrivals"], seed, replication)
    config = EngineConfig(
        token_budget=own.get("token_budget", s["token_budget"]),
        max_num_seqs=own.get("max_num_seqs", 128),
        kv_tokens=s["kv_tokens"],
        block_tokens=BLOCK_TOKENS,
        watermark=0.01,
        convention=s["tokens"],
        stop_time_s=horizon_s,
    )
    time = CALIBRATION.time.with_(**s["time"]).scaled(s["scale"])
    raw = simulate(requests, policy(name, **params), time, config)
    found = run_from_raw(raw, tier_names=("standard", "paying")).metrics(convention=s["convention"], intervals=False)
    return Measured(
        ttft_p50_s=found.all.ttft_s.p50,
        ttft_p99_s=found.all.ttft_s.p99,
        ttft_mean_s=found.all.ttft_s.mean,
        paying_ttft_p50_s=found.tiers["paying"].ttft_s.p50,
        tbt_p99_s={tier: found.tiers[tier].tbt_s.p99 for tier in LIMITS_S},
        finished=int(raw.counters["finished"]),
        preemptions=int(raw.counters["preemptions"]),
    )


def feasible(found: Measured, *, tbt: bool = True) -> bool:
    """Return whether median TTFT < .5 s and, with `tbt`, p99 TBT within each tier's limit (nan: nobody to hold)."""
    if not found.ttft_p50_s < TTFT_MEDIAN_S:
        return False
    return not tbt or not any(found.tbt_p99_s[tier] > limit for tier, limit in LIMITS_S.items())
