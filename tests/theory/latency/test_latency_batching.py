"""Dynamic batching: published numbers, Inoue's formula, M/D/1, bounds, another computation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_theory import InputError, IterationTime, SolveError
from tileq_theory.latency import batch_queue, batch_response_bounds

V100 = (0.1438, 1.8874)  # ms


@pytest.mark.parametrize(("load", "expected"), [(0.3, 4.2248), (0.5, 5.9019), (0.7, 9.8176)])
def test_published_means(load: float, expected: float) -> None:
    rate = load / V100[0]
    queue = batch_queue(rate_per_s=rate, service=V100)
    assert queue.response_s == pytest.approx(expected, abs=5.1e-5)
    assert queue.response_s <= min(batch_response_bounds(rate_per_s=rate, alpha_s=V100[0], tau0_s=V100[1]))


@given(load=st.floats(0.02, 0.9), alpha=st.floats(0.01, 2.0), tau0=st.floats(0.05, 3.0))
@settings(max_examples=20, deadline=None)
def test_little_and_inoue_agree_and_bounds_hold(load: float, alpha: float, tau0: float) -> None:
    rate = load / alpha
    if rate * tau0 > 50:  # thousands of states: no new case
        rate = 50 / tau0
    q = batch_queue(rate_per_s=rate, service=(alpha, tau0))
    inoue = alpha + tau0 + (1 + 2 * rate * alpha) * (q.batch_second_moment - q.mean_batch) / (2 * rate * q.mean_batch)
    assert q.response_s == pytest.approx(inoue, rel=1e-9)
    assert q.response_s <= min(batch_response_bounds(rate_per_s=rate, alpha_s=alpha, tau0_s=tau0)) * (1 + 1e-9)
    assert q.tail_bound < 1e-14


@pytest.mark.parametrize("rho", [0.2, 0.6, 0.95])
def test_batches_of_one_are_m_d_1(rho: float) -> None:
    q = batch_queue(rate_per_s=rho, service=(0.4, 0.6), max_batch=1)
    assert q.waiting_s == pytest.approx(rho / (2 * (1 - rho)), rel=1e-9)
    assert q.busy == pytest.approx(rho, rel=1e-9)


def test_a_large_limit_is_take_all() -> None:
    rate = 0.6 / V100[0]
    free, capped = (batch_queue(rate_per_s=rate, service=V100, max_batch=b) for b in (None, 400))
    assert capped.response_s == pytest.approx(free.response_s, rel=1e-9)


def test_finite_batch_against_simulation() -> None:
    """24 replications of an event simulation; 99.9 % interval of one quantity: false-alarm rate 0.1 %."""
    from scipy import stats

    rng, limit, rate = np.random.default_rng(3), 6, 3.4
    means = []
    for _ in range(24):
        arrivals = np.cumsum(rng.exponential(1 / rate, 8000))
        now, i, total, count = 0.0, 0, 0.0, 0
        while i < arrivals.size:
            now = max(now, arrivals[i])
            k = min(int(np.searchsorted(arrivals, now, side="right")) - i, limit)
            now += 0.1 * k + 1.0
            if i > 500:
                total += k * now - arrivals[i : i + k].sum()
                count += k
            i += k
        means.append(total / count)
    expected = batch_queue(rate_per_s=rate, service=(0.1, 1.0), max_batch=limit).response_s
    half = stats.t.ppf(0.9995, 23) * np.std(means, ddof=1) / np.sqrt(24)
    assert abs(np.mean(means) - expected) < half < 0.2 * expected


def test_any_service_function_an_iteration_time_for_one() -> None:
    time = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    q = batch_queue(rate_per_s=1000.0, service=lambda k: float(time(k)), max_batch=512)
    assert 0.04 < q.response_s < 0.2 and q.busy == pytest.approx(1.0, abs=1e-6)


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match=r"rate_per_s \* alpha_s is 1"):
        batch_queue(rate_per_s=2.0, service=(0.5, 1.0))
    with pytest.raises(InputError, match=r"rate_per_s \* service\(max_batch\)/max_batch is 1.2"):
        batch_queue(rate_per_s=1.2, service=(0.0, 8.0), max_batch=8)
    with pytest.raises(InputError, match="rate_per_s is -1"):
        batch_queue(rate_per_s=-1.0, service=(0.5, 1.0))
    with pytest.raises(InputError, match=r"service\(1\)"):
        batch_queue(rate_per_s=0.1, service=lambda k: k - 1.0, max_batch=4)
    with pytest.raises(SolveError, match="near to capacity"):
        batch_queue(rate_per_s=0.99999, service=(0.0, 1.0), max_batch=1)
    with pytest.raises(InputError, match="below 1"):
        batch_response_bounds(rate_per_s=1.0, alpha_s=1.0, tau0_s=1.0)
