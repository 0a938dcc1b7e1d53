"""The exact chain as the referee of the simulator: mean wait, mean TTFT, mean number in system.

The engine's policies where the chain has the same rule, on requests that the chain can know: one class, geometric (or
mixed geometric) outputs, prompts of one chunk, a cap on residents, memory without limit, Poisson arrivals.

| engine | setting | chain |
|---|---|---|
| sarathi, vllm_v1, orca, slai | a budget that cuts nothing (slai: every decode critical) | DecodeFirst() |
| vllm_v0 | any budget, whole prompts | PrefillFirst(token_budget) |
| rad | b_lcm >= P | RadRule(b_lcm), residents = b_col |
| theta | k | ThresholdRule(k, max_prefills=k) |
| static | - | ThresholdRule(residents) |

Without a counterpart: budgets that cut prompts (sarathi, vllm_v1, chunked orca: the chain's prompts are of one chunk),
whole-prompt orca with a budget that bites (prompts go before decodes there), WAIT and nested WAIT (residents stand
still until prompts have gathered), orders other than first come first served, limited KV.

Statistics: CHECKS intervals by Student's t over independent replications, each of confidence 1 - .01/CHECKS: each is
wider than a 99 % interval, and by Bonferroni a right simulator fails any of them with probability of at most 1 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as student

from tileq_engine import EngineConfig, RawRun, Requests, simulate
from tileq_engine.registry import policy
from tileq_theory import Geometric, IterationTime
from tileq_theory.chain import (
    BatchRule,
    ChainSystem,
    DecodeFirst,
    DiscretePhaseType,
    PrefillFirst,
    RadRule,
    ThresholdRule,
    chain_capacity,
    iteration_chain,
    ttft_law,
)

TIME = IterationTime(launch_s=0.008, tile_s=0.004, tile_tokens=16, token_s=5e-5, sequence_s=1e-4)
REPLICATIONS, REQUESTS, WARMUP, SEED = 24, 24_000, 1_500, 41_000
ROOMY = 4096


@dataclass(frozen=True)
class Case:
    """One system, in the words of the engine and in those of the chain."""

    name: str
    rule: BatchRule
    residents: int
    convention: str
    load: float
    params: dict[str, Any] = field(default_factory=dict)
    prompts: dict[int, float] = field(default_factory=lambda: {20: 1.0})
    mixture: bool = False
    budget: int = ROOMY
    tbt_limit_s: float | None = None


CASES = [
    Case("sarathi", DecodeFirst(), 4, "engine", 0.8),
    Case("vllm_v1", DecodeFirst(), 4, "paper", 0.7, mixture=True),
    Case("orca", DecodeFirst(), 8, "engine", 0.7, prompts={10: 0.5, 40: 0.5}),
    Case("slai", DecodeFirst(), 5, "engine", 0.75, {"theta": 10.0}, tbt_limit_s=1e-12),
    Case("vllm_v0", PrefillFirst(60), 6, "engine", 0.8, prompts={10: 0.5, 40: 0.5}, budget=60),
    Case("vllm_v0", PrefillFirst(), 4, "paper", 0.7, mixture=True),
    Case("rad", RadRule(16), 6, "paper", 0.8, {"b_col": 6, "b_lcm": 16}, prompts={16: 1.0}),
    Case("rad", RadRule(32), 4, "engine", 0.7, {"b_col": 4, "b_lcm": 32}, prompts={32: 0.5, 9: 0.5}),
    Case("theta", ThresholdRule(2, 2), 5, "engine", 0.7, {"k": 2}),
    Case("static", ThresholdRule(4), 4, "engine", 0.7),
]
CHECKS = 4 * len(CASES)
MIXED = DiscretePhaseType(np.array([0.6, 0.4]), np.diag([1 - 1 / 3, 1 - 1 / 15]))


def draw(case: Case, rate: float, seed: int) -> Requests:
    rng = np.random.default_rng(seed)
    mean = np.where(rng.random(REQUESTS) < 0.6, 3.0, 15.0) if case.mixture else np.full(REQUESTS, 9.0)
    return Requests.from_arrays(
        prompt_tokens=rng.choice(list(case.prompts), size=REQUESTS, p=list(case.prompts.values())),
        output_tokens=rng.geometric(1 / mean),
        arrival_s=rng.exponential(1 / rate, REQUESTS).cumsum(),
        tbt_limit_s=None if case.tbt_limit_s is None else np.full(REQUESTS, case.tbt_limit_s),
    )


def measured(run: RawRun, quantile_s: float) -> tuple[float, float, float, float]:
    """Return (mean wait, mean TTFT, time mean of the number in system, share with TTFT up to the quantile)."""
    arrival, finish = run.arrival_ps * 1e-12, run.finish_ps * 1e-12
    assert (run.status == 3).all() and not run.preemptions.any()
    begin, end = arrival[WARMUP], arrival[-1]
    inside = np.clip(np.minimum(finish, end) - np.maximum(arrival, begin), 0, None).sum() / (end - begin)
    ttft = (run.first_token_ps - run.arrival_ps)[WARMUP:] * 1e-12
    wait = (run.admit_ps - run.arrival_ps)[WARMUP:] * 1e-12
    return float(wait.mean()), float(ttft.mean()), float(inside), float(np.mean(ttft <= quantile_s))


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.name}-{c.convention}")
def test_the_simulator_agrees_with_the_chain(case: Case) -> None:
    system = ChainSystem(
        time=TIME,
        rule=case.rule,
        residents=case.residents,
        prompt_tokens=case.prompts,
        outputs=MIXED if case.mixture else Geometric(mean=9.0),
        convention=case.convention,  # type: ignore[arg-type]
    )
    rate = case.load * chain_capacity(system)
    exact = iteration_chain(system, rate_per_s=rate)
    law = ttft_law(exact, resolution=64)
    tick = math.ceil(law.quantile(0.9) / law.tick_s - 1e-9)
    expected = np.array([exact.mean_wait_s, exact.mean_ttft_s, exact.mean_in_system, law.at_ticks[tick]])
    config = EngineConfig(token_budget=case.budget, max_num_seqs=case.residents, convention=case.convention)  # type: ignore[arg-type]
    made = policy(case.name, **case.params)
    runs = np.array(
        [
            measured(simulate(draw(case, rate, SEED + r), made, TIME, config), (tick + 1e-3) * law.tick_s)
            for r in range(REPLICATIONS)
        ]
    )
    half = student.ppf(1 - 0.005 / CHECKS, REPLICATIONS - 1) * runs.std(axis=0, ddof=1) / math.sqrt(REPLICATIONS)
    assert (half < 0.12 * expected).all(), f"intervals too wide to tell: {half / expected}"
    assert (np.abs(runs.mean(axis=0) - expected) <= half).all(), (runs.mean(axis=0), expected, half)
