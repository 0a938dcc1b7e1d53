"""The chain where the textbook knows the answer: M/D/1, M/M/1, M/M/1/K, M/G/1, exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tileq_theory import Fixed, Geometric, InputError, IterationTime, Uniform
from tileq_theory.chain import ChainSystem, DecodeFirst, PrefillFirst, RadRule, chain_capacity, iteration_chain


def one_token(seconds: float = 0.5, **changes: object) -> ChainSystem:
    settings: dict[str, object] = {
        "time": IterationTime.constant(seconds),
        "rule": PrefillFirst(),
        "residents": 1,
        "prompt_tokens": 1,
        "outputs": Fixed(1),
    }
    return ChainSystem(**(settings | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("rho", [0.1, 0.6, 0.9, 0.97])
@pytest.mark.parametrize("rule", [PrefillFirst(), DecodeFirst(), RadRule(1)])
def test_one_token_jobs_are_m_d_1(rho: float, rule: PrefillFirst | DecodeFirst | RadRule) -> None:
    answer = iteration_chain(one_token(rule=rule), rate_per_s=rho / 0.5)
    assert math.isclose(answer.mean_in_system, rho + rho**2 / (2 * (1 - rho)), rel_tol=1e-9)
    wait = rho * 0.5 / (2 * (1 - rho))
    assert math.isclose(answer.mean_wait_s, wait, rel_tol=1e-9)
    # Takacs: E[W^2] = 2 E[W]^2 + lambda E[S^3]/(3 (1 - rho))
    square = 2 * wait**2 + (rho / 0.5) * 0.125 / (3 * (1 - rho))
    assert math.isclose(answer.wait_variance_s2, square - wait**2, rel_tol=1e-8)
    assert math.isclose(answer.idle_share, 1 - rho, rel_tol=1e-9)


def test_the_printed_m_d_1() -> None:
    assert math.isclose(iteration_chain(one_token(), rate_per_s=1.2).mean_in_system, 1.05, rel_tol=1e-12)


@pytest.mark.parametrize("rho", [0.3, 0.8])
def test_exponential_iterations_are_m_m_1(rho: float) -> None:
    answer = iteration_chain(one_token(1.0, duration_stages=1), rate_per_s=rho)
    expected = (1 - rho) * rho ** np.arange(20)
    assert np.allclose(answer.in_system_law[:20], expected, rtol=1e-9, atol=0)
    assert math.isclose(answer.mean_in_system, rho / (1 - rho), rel_tol=1e-9)


@pytest.mark.parametrize(("rho", "system"), [(0.9, 5), (1.0, 3), (1.7, 8)])
def test_a_finite_room_is_m_m_1_k(rho: float, system: int) -> None:
    answer = iteration_chain(one_token(1.0, duration_stages=1, waiting_room=system - 1), rate_per_s=rho)
    expected = rho ** np.arange(system + 1)
    expected /= expected.sum()
    assert np.allclose(answer.in_system_law[: system + 1], expected, rtol=1e-9)
    assert math.isclose(answer.loss, expected[-1], rel_tol=1e-9)
    accepted = rho * (1 - expected[-1])
    assert math.isclose(answer.mean_response_s, np.arange(system + 1) @ expected / accepted, rel_tol=1e-9)


@pytest.mark.parametrize("stages", [2, 5])
def test_erlang_iterations_are_m_e_1(stages: int) -> None:
    rho = 0.7
    answer = iteration_chain(one_token(1.0, duration_stages=stages), rate_per_s=rho)
    assert math.isclose(answer.mean_in_system, rho + rho**2 * (1 + 1 / stages) / (2 * (1 - rho)), rel_tol=1e-9)


@pytest.mark.parametrize("convention", ["engine", "paper"])
@pytest.mark.parametrize("rule", [PrefillFirst(), DecodeFirst(), RadRule(64)])
@pytest.mark.parametrize("outputs", [Geometric(mean=12.0), Uniform(2, 9), Fixed(5)])
def test_no_batching_is_m_g_1(convention: str, rule: object, outputs: Geometric | Uniform | Fixed) -> None:
    time = IterationTime(launch_s=0.01, token_s=0.001, pair_s=1e-6, sequence_s=0.002)
    system = ChainSystem(
        time=time, rule=rule, residents=1, prompt_tokens={20: 0.25, 50: 0.75}, outputs=outputs, convention=convention
    )  # type: ignore[arg-type]
    charged = {p: 64 if isinstance(rule, RadRule) else p for p in (20, 50)}
    prefill = {p: float(time(charged[p], p * (p + 1) / 2, 0, 1)) for p in (20, 50)}
    mean_prefill = 0.25 * prefill[20] + 0.75 * prefill[50]
    var_prefill = 0.25 * prefill[20] ** 2 + 0.75 * prefill[50] ** 2 - mean_prefill**2
    step = float(time(1, 0, 0, 1))
    steps = outputs.mean() - (convention == "engine")
    mean, variance = mean_prefill + step * steps, var_prefill + step**2 * outputs.variance()
    rho = 0.75
    rate = rho / mean
    answer = iteration_chain(system, rate_per_s=rate)
    length = rho + rate**2 * (variance + mean**2) / (2 * (1 - rho))
    assert math.isclose(answer.mean_in_system, length, rel_tol=1e-9)
    assert math.isclose(answer.capacity_per_s, 1 / mean, rel_tol=1e-9)
    first = mean_prefill + (step if convention == "paper" else 0.0)
    assert math.isclose(answer.mean_ttft_s, answer.mean_wait_s + first, rel_tol=1e-9)


def test_saturated_mean_drift_is_the_policys_capacity() -> None:
    # decode-first, saturated: cap = a + d always, so an iteration lasts launch + (d + 20 a) token and a = cap p
    time, cap, p = IterationTime(launch_s=0.01, token_s=1e-4), 8, 1 / 20
    system = ChainSystem(time=time, rule=DecodeFirst(), residents=cap, prompt_tokens=20, outputs=Geometric(mean=20))
    admitted = cap * p  # every resident ends a step with probability p, prefills included (engine convention)
    length = 0.01 + 1e-4 * (cap - admitted + 20 * admitted)
    assert math.isclose(chain_capacity(system), admitted / length, rel_tol=1e-10)


def test_rates_at_capacity_are_refused() -> None:
    for rate in (2.0, 3.0):
        with pytest.raises(InputError, match=r"rate_per_s.*capacity"):
            iteration_chain(one_token(), rate_per_s=rate)
    for rate in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="rate_per_s"):
            iteration_chain(one_token(), rate_per_s=rate)
