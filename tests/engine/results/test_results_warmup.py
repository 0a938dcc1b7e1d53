"""The warm-up rule: what it cuts, what it leaves, and that it does not choose what it likes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tileq_engine.intervals import batch_means_interval
from tileq_engine.metrics_window import mser5


def sojourns(load: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sojourn times of an M/M/1 that starts empty, mean service 1."""
    service, gaps = rng.exponential(1.0, count), rng.exponential(1 / load, count)
    steps = np.concatenate([[0.0], np.cumsum((service - gaps)[:-1])])
    return np.asarray(steps - np.minimum.accumulate(steps) + service)


@pytest.mark.parametrize(("load", "count"), [(0.8, 4000), (0.9, 20_000)])
def test_nothing_is_lost_to_early_busy_periods(load: float, count: int) -> None:
    """The mean of 600 runs holds 1/(1 - load) within 4 standard errors; the plain rule misses it by 6 and more."""
    rng = np.random.default_rng(41)
    means = []
    for _ in range(600):
        path = sojourns(load, count, rng)
        means.append(path[mser5(path)[0] :].mean() * (1 - load))
    error = np.std(means, ddof=1) / np.sqrt(600)
    assert error < 0.012
    assert abs(np.mean(means) - 1) < 4 * error


def test_intervals_of_the_mean_hold_after_the_cut() -> None:
    rng, runs = np.random.default_rng(42), 300
    hits = 0
    for _ in range(runs):
        path = sojourns(0.8, 20_000, rng)
        hits += batch_means_interval(path[mser5(path)[0] :]).contains(5.0)
    assert stats.binom.cdf(hits, runs, 0.91) > 1e-4


@pytest.mark.parametrize("fill", [200, 600])
def test_a_slow_fill_is_cut(fill: int) -> None:
    rng = np.random.default_rng(43)
    path = 100 * (1 - np.exp(-np.arange(6000) / fill)) + rng.normal(0, 4, 6000)
    drop, settled = mser5(path)
    assert settled and 2 * fill < drop < 8 * fill
    assert path[drop:].mean() == pytest.approx(100, rel=0.01)


def test_a_burst_at_the_start_is_cut_and_a_busy_period_is_not() -> None:
    rng = np.random.default_rng(44)
    level = 10 + rng.normal(0, 1, 5000)
    burst = level.copy()
    burst[:400] += np.linspace(300, 0, 400)
    drop, settled = mser5(burst)
    assert settled and 300 <= drop <= 500
    busy = level.copy()
    for start in (100, 1500, 3200, 4400):
        busy[start : start + 200] += 30
    assert mser5(busy)[0] <= 100


def test_a_path_that_grows_to_the_end_has_not_settled() -> None:
    assert mser5(np.arange(4000.0)) == (2000, False)
