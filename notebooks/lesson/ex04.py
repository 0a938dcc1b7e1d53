"""The exercises of notebook 04: schedulers on the same minute of traffic."""

from __future__ import annotations

__all__ = ["exercise_1", "exercise_2", "exercise_3"]

import math
from functools import cache
from typing import Any

import numpy as np

from lesson.answers import Verdict, about, exactly
from tileq.planning import Plan, plan
from tileq_engine import EngineConfig, Requests, Run, simulate
from tileq_engine.policy import Policy
from tileq_engine.registry import policy
from tileq_engine.run_raw import run_from_raw
from tileq_theory.capacity import rad_capacity

CLASSES = (
    "chat=lognormal(5.5,0.8,2048):lognormal(4.8,0.7,1024)@4",
    "document=lognormal(8,0.5,8192):lognormal(4,0.5,256)@1",
)
SEED, MINUTE_S, LOAD = 3, 60.0, 0.8


@cache
def machine() -> Plan:
    """Return the plan of the notebook's machine and traffic."""
    name = "rtx-4090/llama-3.1-8b"
    return plan(gpu="rtx-4090", model="llama-3.1-8b", calibration=name, classes=list(CLASSES))


@cache
def minute() -> Requests:
    """Return one minute of the notebook's traffic."""
    rate = LOAD * machine().rate_per_s
    drawn = Requests.from_workload(machine().traffic.workload, 2000, seed=SEED, rate=rate)
    count = int(np.searchsorted(drawn.arrival_ps, MINUTE_S * 1e12))
    return drawn.head(count).with_tiers(seed=SEED, paying_share=0.05)


def run(chosen: Policy, token_budget: int = 512) -> Run:
    """Return the minute under a policy."""
    config = EngineConfig(kv_tokens=machine().setting.kv_tokens, max_num_seqs=128, token_budget=token_budget)
    return run_from_raw(simulate(minute(), chosen, machine().setting.time, config))


@cache
def _rad_share() -> float:
    bound = machine().tile.capacity
    tiles = {"prefill_tile_tokens": bound.time.tile_tokens, "decode_tile_tokens": bound.time.tile_tokens}
    return rad_capacity(bound.time, bound.demand, bound.limits, **tiles).rate_per_s / bound.rate_per_s


@cache
def _p99_ms(budget: int) -> float:
    return float(run(policy("sarathi", token_budget=budget), budget).merged_gaps().quantile_ps(0.99)) / 1e9


def _largest_budget() -> int:
    return max(budget for budget in (128, 256, 512, 1024, 2048) if _p99_ms(budget) <= 45)


def _score(wait_s: float, tokens: float) -> float:
    """Return the scorer of vLLM's RFC: half a sigmoid of the wait, half an inverse one of the length."""
    waited = 1 / (1 + math.exp(-(wait_s - 5) / 5))
    short = 1 - 1 / (1 + math.exp(-(tokens - 32768) / 32768))
    return 0.5 * waited + 0.5 * short


@cache
def _overtakes_s() -> float:
    """Return how long a request of 8192 tokens must wait until it stands before a new one of 128, seconds."""
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _score(middle, 8192) > _score(0.0, 128) else (middle, high)
    return high


def exercise_1(answer: Any) -> Verdict:
    """RAD's own bound with one tile as a share of lambda*."""
    return about(
        answer,
        _rad_share,
        rel=0.01,
        why="the rate of this minute lies beyond it: RAD's queue was bound to grow.",
        hint="tq.rad_capacity(...) with both tiles set to the tile of the iteration time, over the rate of the plan.",
        traps={"give the share of lambda*, not the rate.": lambda: _rad_share() * machine().rate_per_s},
    )


def exercise_2(answer: Any) -> Verdict:
    """The largest token budget, a power of two, at which Sarathi's p99 TBT stays within 45 ms."""
    return exactly(
        answer,
        _largest_budget,
        why="the budget bounds the length of an iteration, and with it every gap.",
        hint="run Sarathi with budgets 128, 256, 512, 1024, 2048 (policy and engine alike) and read tbt p99.",
    )


def exercise_3(answer: Any) -> Verdict:
    """Seconds until a waiting request of 8192 tokens stands before a new one of 128, by the aging score."""
    return about(
        answer,
        _overtakes_s,
        rel=0.03,
        why="length moves the score little, waiting moves it much: that is what keeps long requests from starving.",
        hint="set score(w, 8192) = score(0, 128) and solve for w; sigma has its middle at 5 s.",
        traps={},
    )
