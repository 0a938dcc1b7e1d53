"""Threshold-exclusive batching: the root, its closed form, the exact renewal cycle, and the crossover test."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.closed_forms import closed_form
from tileq_theory.errors import InputError
from tileq_theory.theta import (
    BatchingCosts,
    best_threshold,
    crossover,
    exact_best_threshold,
    exact_cycles,
    increasing_hazard_correction,
    theta_root,
    threshold_throughput,
)

UNIT = BatchingCosts(alpha_p_s=1.0, alpha_d_s=1.0)


def test_published_instance() -> None:
    assert f"{theta_root(1 / 200):.7f}" == "0.0936781"
    assert best_threshold(slots=128, completion_probability=1 / 200, costs=UNIT) == 11


@settings(max_examples=200, deadline=None)
@given(st.floats(-14, 2.8).map(lambda x: 10.0**x))
def test_root_solves_its_equation(ratio) -> None:
    theta = theta_root(ratio)
    assert 0 < theta < 1
    zeta = -math.log1p(-theta)
    series = sum(zeta**k / math.factorial(k) for k in range(2, 40)) if zeta < 1 else math.expm1(zeta) - zeta
    # theta near 1 holds only as many digits of zeta as 1 - theta has
    assert series == pytest.approx(ratio, rel=1e-12 + 1e-15 * math.exp(min(zeta, 30)))


@pytest.mark.parametrize("ratio", ["1/1000000", "1/200", "3/100", "1/2", "4", "60"])
def test_root_is_lambert_w(ratio) -> None:
    form = closed_form("theta_fraction")
    value = form.evaluate(completion_probability=1, alpha_p_s=ratio, alpha_d_s=1)
    numerator, _, denominator = ratio.partition("/")
    assert theta_root(float(numerator) / float(denominator or 1)) == pytest.approx(value, rel=1e-13)


def test_root_at_the_ends() -> None:
    assert theta_root(0) == 0.0
    assert theta_root(1e-20) == pytest.approx(math.sqrt(2e-20), rel=1e-9)
    assert theta_root(1e6) < 1
    assert best_threshold(slots=4, completion_probability=1e-6, costs=UNIT) == 1


@settings(max_examples=50, deadline=None)
@given(
    st.floats(1e-3, 0.2), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0), st.floats(0, 1e-3), st.floats(0, 1e-3),
    st.floats(0, 2000),
)  # fmt: skip
def test_root_maximises_the_throughput(p0, alpha_p, alpha_d, beta_p, beta_d, prompt) -> None:
    costs = BatchingCosts(alpha_p, alpha_d, beta_p, beta_d)
    where = {"slots": 256, "completion_probability": p0, "costs": costs, "prompt_tokens": prompt}
    root = theta_root(p0 * alpha_p / alpha_d)
    best = threshold_throughput(theta=root, **where)
    for theta in np.linspace(0.01, 0.99, 50):
        assert threshold_throughput(theta=float(theta), **where) <= best * (1 + 1e-12)
    form = closed_form("theta_throughput").evaluate(
        slots=256, theta=root, completion_probability=p0, alpha_p_s=alpha_p, beta_p_s=beta_p, alpha_d_s=alpha_d,
        beta_d_s=beta_d, prompt_tokens=prompt,
    )  # fmt: skip
    assert best == pytest.approx(form, rel=1e-12)


# ---------------------------------------------------------------------- the exact cycle


def enumerated_cycle(slots: int, threshold: int, p0: float) -> tuple[float, float]:
    """Mean steps and completions of a cycle by iterating the law of the active requests."""
    law = {slots: 1.0}
    steps = completed = 0.0
    while sum(law.values()) > 1e-15:
        steps += sum(law.values())
        after: dict[int, float] = {}
        for active, mass in law.items():
            for done in range(active + 1):
                share = mass * math.comb(active, done) * p0**done * (1 - p0) ** (active - done)
                completed += share * done
                if slots - (active - done) < threshold:
                    after[active - done] = after.get(active - done, 0.0) + share
        law = after
    return steps, completed


@pytest.mark.parametrize(("slots", "p0"), [(1, 0.3), (3, 0.5), (6, 0.05), (8, 0.9), (4, 1.0)])
def test_exact_cycle_by_enumeration(slots, p0) -> None:
    cycles = exact_cycles(slots=slots, completion_probability=p0)
    for k in range(1, slots + 1):
        steps, completed = enumerated_cycle(slots, k, p0)
        assert cycles.steps[k - 1] == pytest.approx(steps, rel=1e-12)
        assert cycles.completed[k - 1] == pytest.approx(completed, rel=1e-12)
        assert cycles.decoded_tokens[k - 1] == pytest.approx(completed / p0, rel=1e-12)


def test_exact_cycle_tends_to_the_limit() -> None:
    """With long outputs (few completions per step, so little overshoot) and many slots the limit is reached."""
    p0, costs = 2e-6, BatchingCosts(2000.0, 1.0)
    ratios = []
    for slots in (64, 512, 2048):
        cycles = exact_cycles(slots=slots, completion_probability=p0)
        best = float(cycles.throughput_per_s(costs).max())
        root = theta_root(p0 * 2000)
        ratios.append(best / threshold_throughput(theta=root, slots=slots, completion_probability=p0, costs=costs))
    errors = np.abs(np.array(ratios) - 1)
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 2e-3


def test_exact_threshold_is_the_best_and_near_the_limit() -> None:
    where = {"slots": 128, "completion_probability": 1 / 200}
    best = exact_best_threshold(**where, costs=UNIT)
    rates = exact_cycles(**where).throughput_per_s(UNIT)
    assert rates[best - 1] == rates.max()
    asymptotic = best_threshold(**where, costs=UNIT)
    assert rates[asymptotic - 1] > 0.999 * rates.max()
    # per-token times are paid whatever the threshold
    tokens = BatchingCosts(1.0, 1.0, 0.003, 0.002)
    assert exact_best_threshold(**where, costs=tokens, prompt_tokens=300) == best


# ---------------------------------------------------------------------- correction and crossover


def test_correction_against_a_numerical_optimum() -> None:
    r"""Under h(t) = p0 + eta t the survival is exp(-p0 t - eta t^2/2); refilled requests start at age 0, but the source
    treats each phase as starting at hazard p0, so the phase's survival is that of one cohort.
    """
    p0, slots, eta = 0.01, 400, 1e-8
    costs = BatchingCosts(0.8, 1.0, 0.0, 0.0)
    root = theta_root(p0 * 0.8)

    def phase(theta: float, slope: float) -> float:
        zeta = -math.log1p(-theta)  # p0 T + slope T^2/2 = zeta
        return zeta / p0 if slope == 0 else (math.sqrt(p0 * p0 + 2 * slope * zeta) - p0) / slope

    def best(slope: float) -> float:
        low, high = root / 2, min(0.99, 2 * root)
        for _ in range(200):  # the throughput is unimodal in theta
            a, b = low + (high - low) / 3, high - (high - low) / 3
            if a / (0.8 + phase(a, slope)) < b / (0.8 + phase(b, slope)):
                low = a
            else:
                high = b
        return (low + high) / 2

    predicted = increasing_hazard_correction(
        theta=root, hazard_slope=eta, completion_probability=p0, slots=slots, costs=costs
    )
    # at eta itself the difference would drown in the search; over +-200 eta its second order cancels
    measured = (best(200 * eta) - best(-200 * eta)) / (2 * 200)
    assert predicted == pytest.approx(measured, rel=1e-3)
    form = closed_form("theta_correction").evaluate(
        theta=root, hazard_slope=eta, completion_probability=p0, alpha_d_s=1, beta_d_s=0, slots=slots
    )
    assert predicted == pytest.approx(form, rel=1e-12)


def test_correction_with_token_times_is_the_closed_form() -> None:
    costs = BatchingCosts(0.8, 1.0, 0.001, 0.004)
    root = theta_root(0.008)
    value = increasing_hazard_correction(
        theta=root, hazard_slope=-2e-6, completion_probability=0.01, slots=64, costs=costs
    )
    form = closed_form("theta_correction").evaluate(
        theta=root, hazard_slope=-2e-6, completion_probability=0.01, alpha_d_s=1, beta_d_s=0.004, slots=64
    )
    assert value == pytest.approx(form, rel=1e-12)
    assert value < 0  # a falling hazard rate asks for an earlier switch


@settings(max_examples=60, deadline=None)
@given(
    st.floats(1e-4, 0.1), st.floats(1e-4, 0.1), st.floats(1e-7, 1e-4), st.floats(1e-7, 1e-4), st.floats(1e-4, 0.1),
    st.floats(1e-7, 2e-4), st.integers(8, 1024), st.integers(10, 4000), st.integers(10, 2000),
)  # fmt: skip
def test_crossover_is_the_sources_inequality(a_p, a_d, b_p, b_d, a_m, b_m, slots, prompt, output) -> None:
    theta = theta_root(a_p / (output * a_d))
    costs = BatchingCosts(a_p, a_d, b_p, b_d)
    test = crossover(
        slots=slots, threshold=theta * slots, theta=theta, prompt_tokens=prompt, output_tokens=output, costs=costs,
        alpha_mixed_s=a_m, beta_mixed_s=b_m,
    )  # fmt: skip
    margin = closed_form("theta_crossover").evaluate(
        theta=theta, threshold=theta * slots, slots=slots, alpha_p_s=a_p, beta_p_s=b_p, alpha_d_s=a_d, beta_d_s=b_d,
        alpha_mixed_s=a_m, beta_mixed_s=b_m, prompt_tokens=prompt, output_tokens=output,
    )  # fmt: skip
    saved = (test.exclusive_s - test.mixed_s) / (prompt + output)
    assert saved == pytest.approx(margin, rel=1e-6, abs=1e-9 * test.exclusive_s)
    if abs(margin) > 1e-9 * test.exclusive_s:
        assert test.mixed_wins == (margin > 0) == (test.gain_of_exclusive < 0)
    # what the exclusive side takes per request is one over its throughput
    rate = threshold_throughput(
        theta=theta, slots=slots, completion_probability=1 / output, costs=costs, prompt_tokens=prompt
    )
    assert test.exclusive_s == pytest.approx(1 / rate, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theta_root(-1), "ratio is -1"),
        (lambda: theta_root(math.nan), "ratio is nan"),
        (lambda: BatchingCosts(1.0, 0.0), "alpha_d_s is 0.0"),
        (lambda: BatchingCosts(-1.0, 1.0), "alpha_p_s is -1.0"),
        (lambda: best_threshold(slots=0, completion_probability=0.1, costs=UNIT), "slots is 0"),
        (lambda: best_threshold(slots=8, completion_probability=0, costs=UNIT), "completion_probability is 0"),
        (lambda: best_threshold(slots=8, completion_probability=1.5, costs=UNIT), "completion_probability is 1.5"),
        (
            lambda: threshold_throughput(theta=1, slots=8, completion_probability=0.1, costs=UNIT),
            "theta is 1; expected a fraction",
        ),
        (lambda: exact_cycles(slots=10_000, completion_probability=0.1), "slots is 10000; expected at most 8192"),
        (
            lambda: crossover(slots=8, threshold=0, theta=0.5, prompt_tokens=1, output_tokens=1, costs=UNIT,
                              alpha_mixed_s=1, beta_mixed_s=1),
            "threshold is 0",
        ),
    ],
)  # fmt: skip
def test_bad_parameters_are_named(call, message) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)


def test_large_systems_keep_their_precision() -> None:
    """Completions and tokens of a full drain are known: N requests, N/p0 tokens, the mean maximum of N geometrics."""
    slots, p0 = 600, 1 / 300
    cycles = exact_cycles(slots=slots, completion_probability=p0)
    assert cycles.completed[-1] == pytest.approx(slots, rel=1e-9)
    assert cycles.decoded_tokens[-1] == pytest.approx(slots / p0, rel=1e-9)
    j = np.arange(0, 20_000)
    longest = math.fsum(-np.expm1(slots * np.log1p(-((1 - p0) ** j[1:])))) + 1
    assert cycles.steps[-1] == pytest.approx(longest, rel=1e-9)
    assert all(a < b for a, b in itertools.pairwise(cycles.steps))
