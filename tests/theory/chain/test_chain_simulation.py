"""The chain against a simulation of the same model: waiting, TTFT, number in system.

Eight systems, three means each, 99 % intervals by Student's t over independent replications: if the chain is right,
the chance that any of the 24 comparisons fails is at most 24 % over seeds (Bonferroni), and the seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest
from chain_reference import Discipline, System, simulate
from scipy.stats import t as student

from tileq_theory import Geometric, IterationTime, Uniform
from tileq_theory.chain import (
    BatchRule,
    ChainSystem,
    DecodeFirst,
    DiscretePhaseType,
    PrefillFirst,
    RadRule,
    chain_capacity,
    iteration_chain,
)

REPLICATIONS, REQUESTS = 24, 7000
TIME = IterationTime(launch_s=0.008, tile_s=0.004, tile_tokens=16, token_s=5e-5, sequence_s=1e-4)
SYSTEMS: list[tuple[Discipline, int, str, str, dict[int, float], float | None, float]] = [
    ("decode-first", 4, "engine", "geometric", {20: 1.0}, None, 0.8),
    ("decode-first", 8, "paper", "geometric", {20: 1.0}, None, 0.7),
    ("decode-first", 4, "engine", "uniform", {10: 0.5, 40: 0.5}, 50, 0.6),
    ("prefill-first", 6, "engine", "geometric", {20: 1.0}, 60, 0.8),
    ("prefill-first", 4, "paper", "geometric", {8: 0.7, 30: 0.3}, 40, 0.7),
    ("rad", 6, "paper", "geometric", {16: 1.0}, None, 0.8),
    ("rad", 4, "engine", "mixture", {16: 0.5, 9: 0.5}, None, 0.6),
    ("decode-first", 5, "engine", "mixture", {12: 1.0}, 20, 0.7),
]


def rule_of(discipline: str, budget: float | None) -> BatchRule:
    limit = None if budget is None else int(budget)
    if discipline == "rad":
        return RadRule(16)
    return DecodeFirst(limit) if discipline == "decode-first" else PrefillFirst(limit)


def law_of(kind: str) -> tuple[DiscretePhaseType | Geometric | Uniform, object]:
    """Return the chain's law and the simulation's draws of outputs, each in its own words."""
    if kind == "geometric":
        return Geometric(mean=9.0), lambda rng, n: rng.geometric(1 / 9, n)
    if kind == "uniform":
        return Uniform(1, 3), lambda rng, n: rng.integers(1, 4, n)
    mixture = DiscretePhaseType(np.array([0.6, 0.4]), np.diag([1 - 1 / 3, 1 - 1 / 15]))
    return mixture, lambda rng, n: np.where(rng.random(n) < 0.6, rng.geometric(1 / 3, n), rng.geometric(1 / 15, n))


@pytest.mark.parametrize("case", range(len(SYSTEMS)))
def test_means_lie_in_the_simulations_intervals(case: int) -> None:
    discipline, residents, convention, kind, prompts, budget, load = SYSTEMS[case]
    law, draws = law_of(kind)
    system = ChainSystem(
        time=TIME,
        rule=rule_of(discipline, budget),
        residents=residents,
        prompt_tokens=prompts,
        outputs=law,
        convention=convention,
    )  # type: ignore[arg-type]
    rate = load * chain_capacity(system)
    exact = iteration_chain(system, rate_per_s=rate)
    lengths, shares = np.array(list(prompts)), np.array(list(prompts.values()))
    model = System(
        discipline,
        residents,
        convention,
        lambda n, m: 0.008 + 0.004 * -(-n // 16) + 5e-5 * n + 1e-4 * m,
        draws,
        lambda rng, n: rng.choice(lengths, size=n, p=shares),
        np.inf if budget is None else budget,
        16,
    )  # type: ignore[arg-type]
    runs = np.array([simulate(model, rate, REQUESTS, 1000 * case + r) for r in range(REPLICATIONS)])
    half = student.ppf(0.995, REPLICATIONS - 1) * runs.std(axis=0, ddof=1) / np.sqrt(REPLICATIONS)
    expected = np.array([exact.mean_wait_s, exact.mean_ttft_s, exact.mean_in_system])
    assert (half < 0.15 * expected).all(), "intervals too wide to tell anything"
    assert (np.abs(runs.mean(axis=0) - expected) <= half).all(), (expected, runs.mean(axis=0), half)
