"""The wait's law: M/D/1's closed form, moments by the distributional form of Little's law, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tileq_theory import Fixed, Geometric, InputError, IterationTime
from tileq_theory.chain import (
    BatchRule,
    ChainSystem,
    DecodeFirst,
    PrefillFirst,
    RadRule,
    chain_capacity,
    iteration_chain,
    wait_distribution,
)


def one_token(**changes: int) -> ChainSystem:
    return ChainSystem(
        time=IterationTime.constant(0.5), rule=PrefillFirst(), residents=1, prompt_tokens=1, outputs=Fixed(1), **changes
    )


def test_the_law_of_m_d_1() -> None:
    # Erlang: P(W <= t) = (1 - rho) sum_n (rate (n D - t))^n e^(-rate (n D - t))/n!, n D <= t
    times = np.array([0.0, 0.1, 0.25, 0.5, 0.8, 1.7, 3.0])
    exact = [
        0.4
        * sum(
            math.exp(-u) * u**n / math.factorial(n) for n in range(int(2 * t + 1e-12) + 1) for u in [1.2 * (n / 2 - t)]
        )
        for t in times
    ]
    found = wait_distribution(iteration_chain(one_token(), rate_per_s=1.2), times)
    assert np.abs(found - exact).max() < 5e-4


@pytest.mark.parametrize("rule", [DecodeFirst(), PrefillFirst(40), RadRule(32)])
def test_its_moments_are_those_of_the_queue(rule: BatchRule) -> None:
    # the tagged request and the number waiting are two ways to the same wait
    system = ChainSystem(
        time=IterationTime(launch_s=0.008, tile_s=0.004, tile_tokens=16, token_s=5e-5),
        rule=rule,
        residents=3,
        prompt_tokens=20,
        outputs=Geometric(mean=6.0),
    )
    answer = iteration_chain(system, rate_per_s=0.8 * chain_capacity(system))
    times = np.linspace(0, 25 * answer.mean_wait_s, 1500)
    beyond = 1 - wait_distribution(answer, times)
    assert np.all(np.diff(beyond) < 2e-3)
    assert math.isclose(np.trapezoid(beyond, times), answer.mean_wait_s, rel_tol=5e-3)
    second = answer.wait_variance_s2 + answer.mean_wait_s**2
    assert math.isclose(2 * np.trapezoid(times * beyond, times), second, rel_tol=2e-2)


def test_laws_that_are_refused() -> None:
    with pytest.raises(InputError, match="waiting_room"):
        wait_distribution(iteration_chain(one_token(waiting_room=3), rate_per_s=1.0), np.array([1.0]))
    with pytest.raises(InputError, match="times_s"):
        wait_distribution(iteration_chain(one_token(), rate_per_s=1.0), np.array([-1.0]))
