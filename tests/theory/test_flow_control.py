"""Flow control: the published numbers, the queue by three methods, and the memory bound by playing the slots."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import poisson

from tileq_theory.errors import InputError
from tileq_theory.flow_control import (
    FlowClass,
    capacity_per_slot,
    flow_control,
    largest_equal_budget,
    mean_queue,
)

CLASSES = [FlowClass(10, 20), FlowClass(10, 40), FlowClass(10, 60)]
M = 16_492


def test_published_instance() -> None:
    plan = flow_control(CLASSES, rates_per_slot=[3, 3, 3], budgets=[4, 4, 4], kv_capacity_tokens=M)
    assert plan.workloads == (410, 1220, 2430)
    assert sum(plan.workloads) == 4060
    assert plan.peak_kv_tokens == 16_240
    assert f"{capacity_per_slot(CLASSES, kv_capacity_tokens=M):.5f}" == "4.06207"
    assert all(f"{q:.3f}" == "0.801" for q in plan.mean_queues)
    assert plan.fits
    assert plan.stable
    assert plan.possible
    assert largest_equal_budget(CLASSES, kv_capacity_tokens=M) == 4
    assert largest_equal_budget(CLASSES, kv_capacity_tokens=4059) == 0


def test_overload_is_told_apart() -> None:
    between = flow_control(CLASSES, rates_per_slot=[4.05] * 3, budgets=[4, 4, 4], kv_capacity_tokens=M)
    assert (between.possible, between.fits, between.stable) == (True, True, False)  # necessary holds, sufficient not
    assert between.mean_queues == (math.inf,) * 3
    beyond = flow_control(CLASSES, rates_per_slot=[4.07] * 3, budgets=[5, 5, 5], kv_capacity_tokens=M)
    assert (beyond.possible, beyond.fits, beyond.stable) == (False, False, False)


def chain_mean(rate: float, budget: int, states: int) -> float:
    """E[Q] from the truncated transition matrix, solved for its stationary law."""
    law = poisson.pmf(np.arange(states + budget + 1), rate)
    move = np.zeros((states, states))
    for q in range(states):
        for a, mass in enumerate(law):
            move[q, min(max(q + a - budget, 0), states - 1)] += mass
    system = np.vstack([(move.T - np.eye(states))[:-1], np.ones(states)])
    stationary = np.linalg.solve(system, np.append(np.zeros(states - 1), 1.0))
    return float(stationary @ np.arange(states))


@pytest.mark.parametrize(("rate", "budget"), [(3, 4), (0.4, 1), (0.9, 1), (1.2, 2), (6.5, 8), (11, 12), (2.0, 7)])
def test_mean_queue_against_the_chain(rate, budget) -> None:
    assert mean_queue(rate, budget) == pytest.approx(chain_mean(rate, budget, 400), rel=1e-8)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.floats(0.5, 0.98))
def test_series_and_roots_agree(budget, load) -> None:
    from tileq_theory.flow_control import _roots, _spitzer

    rate = load * budget
    decay = budget * math.log(budget / rate) - (budget - rate)
    assert _spitzer(rate, budget, decay) == pytest.approx(_roots(rate, budget), rel=1e-8, abs=1e-11 * budget)


def test_mean_queue_limits() -> None:
    assert mean_queue(0, 3) == 0
    for load in (0.3, 0.99, 0.9999, 0.999999):
        assert mean_queue(load, 1) == pytest.approx(load**2 / (2 * (1 - load)), rel=1e-9)  # M/D/1
    heavy = mean_queue(3.9999, 4)
    assert heavy == pytest.approx(3.9999 / (2 * 0.0001), rel=1e-3)  # heavy traffic: variance over twice the slack
    # nearly empty: only a burst of b + 1 in one slot waits
    assert mean_queue(1e-3, 2) == pytest.approx(1e-9 / 6, rel=2e-3)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12), st.integers(1, 4)), min_size=1, max_size=3))
def test_memory_never_exceeds_the_peak_and_reaches_it(spec) -> None:
    """Play the slots with an endless queue: b activations of each class in each slot, one token per active request."""
    classes = [FlowClass(prompt, output) for prompt, output, _ in spec]
    budgets = [budget for _, _, budget in spec]
    plan = flow_control(classes, rates_per_slot=[0.5] * len(spec), budgets=budgets, kv_capacity_tokens=10**6)
    ages: list[tuple[FlowClass, int]] = []
    peak = 0
    for _ in range(30):
        ages += [(c, 0) for c, b in zip(classes, budgets, strict=True) for _ in range(b)]
        ages = [(c, age + 1) for c, age in ages]
        used = sum(c.prompt_tokens + age for c, age in ages)
        assert used <= plan.peak_kv_tokens
        peak = max(peak, used)
        ages = [(c, age) for c, age in ages if age < c.output_tokens]
    assert peak == plan.peak_kv_tokens


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.integers(1, 200), st.floats(0, 5)), min_size=1, max_size=4),
    st.floats(1, 1e6),
)
def test_capacity_along_a_mix(spec, memory) -> None:
    classes = [FlowClass(prompt, output) for prompt, output, _ in spec]
    mix = [share for _, _, share in spec]
    if not any(mix):
        with pytest.raises(InputError, match="not all 0"):
            capacity_per_slot(classes, kv_capacity_tokens=memory, mix=mix)
        return
    scale = capacity_per_slot(classes, kv_capacity_tokens=memory, mix=mix)
    if math.isfinite(scale) and scale < 1e12:
        rates = [scale * share for share in mix]
        plan = flow_control(classes, rates_per_slot=rates, budgets=[1] * len(spec), kv_capacity_tokens=memory)
        assert plan.load == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FlowClass(10, 0), "output_tokens is 0"),
        (lambda: FlowClass(-1, 5), "prompt_tokens is -1"),
        (lambda: mean_queue(4, 4), "rate_per_slot is 4 with budget 4; expected a rate below the budget"),
        (lambda: mean_queue(-1, 4), "rate_per_slot is -1"),
        (lambda: mean_queue(1, 0), "budget is 0"),
        (lambda: largest_equal_budget([], kv_capacity_tokens=1), "no class given"),
        (lambda: capacity_per_slot(CLASSES, kv_capacity_tokens=0), "kv_capacity_tokens is 0"),
        (lambda: capacity_per_slot(CLASSES, kv_capacity_tokens=1, mix=[1]), "as many shares"),
        (
            lambda: flow_control(CLASSES, rates_per_slot=[1], budgets=[1], kv_capacity_tokens=1),
            "3 classes, 1 rates and 1 budgets",
        ),
        (
            lambda: flow_control(CLASSES, rates_per_slot=[1, 1, -2], budgets=[1, 1, 1], kv_capacity_tokens=1),
            "rates_per_slot[2] is -2",
        ),
    ],
)
def test_bad_parameters_are_named(call, message) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
