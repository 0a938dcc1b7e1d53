"""Smallest volume first: volumes, and its bounds against every schedule of small bursts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.svf import competitive_ratio, svf_bounds, svf_order, volume


def test_volume_is_the_memory_summed_over_the_steps() -> None:
    prompts, outputs = np.array([10, 10, 10, 7]), np.array([20, 40, 60, 1])
    by_steps = [sum(s + t for t in range(1, o + 1)) for s, o in zip(prompts.tolist(), outputs.tolist(), strict=True)]
    assert volume(prompts, outputs).tolist() == by_steps
    assert by_steps[:3] == [410, 1220, 2430]


def test_competitive_ratio() -> None:
    assert competitive_ratio(0) == 3
    assert competitive_ratio(0.5) == 5
    assert competitive_ratio(0.125) == pytest.approx(1 + 16 / 7, rel=1e-15)


def test_bounds_by_hand() -> None:
    """Volumes 410 and 1220, M = 100, alpha = 1/2: the second request waits at most 2*410/(100/2) steps."""
    bounds = svf_bounds(np.array([10, 10]), np.array([40, 20]), kv_capacity_tokens=100)
    assert bounds.alpha == 0.5
    assert bounds.svf_upper_steps == pytest.approx(60 + 16.4, rel=1e-15)
    assert bounds.lower_steps == 60  # Proposition 3.1 alone says 20.4
    crowded = svf_bounds(np.array([10] * 40), np.array([40] * 40), kv_capacity_tokens=100)
    assert crowded.lower_steps == pytest.approx(1220 * 40 * 41 / 2 / 100, rel=1e-15)


def total_latency(order: tuple[int, ...], prompts: list[int], outputs: list[int], memory: int) -> int:
    """Start requests in this order, each as soon as memory lasts for it and all those before it until their ends."""
    started: list[tuple[int, int]] = []  # request, start
    now = total = 0
    for i in order:
        while True:
            running = [*started, (i, now)]
            steps = range(now + 1, now + 1 + max(outputs))
            used = [sum(prompts[j] + t - k for j, k in running if k < t <= k + outputs[j]) for t in steps]
            if max(used) <= memory:
                break
            now += 1
        started.append((i, now))
        total += now + outputs[i]
    return total


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 6)), min_size=1, max_size=5), st.integers(0, 20))
def test_bounds_hold_for_every_order(requests, extra) -> None:
    prompts, outputs = [s for s, _ in requests], [o for _, o in requests]
    memory = max(s + o for s, o in requests) + 1 + extra
    p, o = np.array(prompts), np.array(outputs)
    bounds = svf_bounds(p, o, kv_capacity_tokens=memory)
    latencies = [
        total_latency(order, prompts, outputs, memory) for order in itertools.permutations(range(len(requests)))
    ]
    svf = total_latency(tuple(svf_order(p, o).tolist()), prompts, outputs, memory)
    assert bounds.lower_steps <= min(latencies) * (1 + 1e-12)
    assert svf <= bounds.svf_upper_steps * (1 + 1e-12)
    assert svf <= bounds.ratio * min(latencies) * (1 + 1e-12)
    assert bounds.svf_upper_steps <= bounds.ratio * bounds.lower_steps * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: competitive_ratio(1), "alpha is 1; expected a share in [0, 1)"),
        (lambda: competitive_ratio(-0.1), "alpha is -0.1"),
        (lambda: volume(np.array([1, -2]), np.array([1, 1])), "request 1 has prompt -2"),
        (lambda: volume(np.array([1]), np.array([0])), "request 0 has prompt 1 and output 0"),
        (lambda: svf_bounds(np.array([5]), np.array([5]), kv_capacity_tokens=10), "the largest peak is 10 tokens"),
        (lambda: svf_bounds(np.array([], int), np.array([], int), kv_capacity_tokens=10), "no request given"),
    ],
)
def test_bad_parameters_are_named(call, message) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
