"""Intervals: closed forms, and their coverage measured where the truth is known.

Coverage tests count hits over R seeded runs and ask whether the count is compatible with the least coverage claimed, by
a binomial test at a false-alarm rate of 1e-4 for each cell.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tileq_engine.intervals import (
    Interval,
    batch_means_interval,
    batch_quantile_interval,
    bonferroni,
    paired_interval,
    quantile_interval,
    sidak,
    student_interval,
)
from tileq_theory.errors import InputError

FALSE_ALARM = 1e-4


def assert_coverage(hits: int, runs: int, claimed: float) -> None:
    """Fail only if `hits` of `runs` would be this low with probability below the false-alarm rate at `claimed`."""
    assert stats.binom.cdf(hits, runs, claimed) > FALSE_ALARM, f"covered {hits / runs:.3f}, claimed {claimed}"


def ar1(phi: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Stationary AR(1) of mean 0."""
    from scipy.signal import lfilter

    noise = rng.standard_normal(count)
    noise[0] /= math.sqrt(1 - phi**2)
    return np.asarray(lfilter([1.0], [1.0, -phi], noise))


def mm1_sojourns(load: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sojourn times of a stationary M/M/1 with mean service 1, by Lindley's recursion."""
    service, gaps = rng.exponential(1.0, count), rng.exponential(1 / load, count)
    steps = np.concatenate([[0.0], np.cumsum((service - gaps)[:-1])])
    first = rng.exponential(1 / (1 - load)) if rng.random() < load else 0.0
    return np.asarray(steps - np.minimum(np.minimum.accumulate(steps), -first) + service)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.sampled_from([0.9, 0.95, 0.99]))
def test_student_interval_is_the_textbook_one(values: list[float], level: float) -> None:
    interval = student_interval(values, level)
    low, high = stats.t.interval(level, len(values) - 1, loc=np.mean(values), scale=max(stats.sem(values), 1e-300))
    assert interval.low == pytest.approx(low, rel=1e-9, abs=1e-6)
    assert interval.high == pytest.approx(high, rel=1e-9, abs=1e-6)


def test_one_replication_gives_an_open_interval() -> None:
    interval = student_interval([3.0])
    assert (interval.estimate, interval.low, interval.high, interval.settled) == (3.0, -math.inf, math.inf, False)
    assert interval.to_dict()["low"] is None


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_batch_means_cover_the_mean_of_an_ar1(phi: float) -> None:
    rng, runs = np.random.default_rng(11), 800
    hits = sum(batch_means_interval(ar1(phi, 1000, rng)).contains(0.0) for _ in range(runs))
    assert_coverage(hits, runs, 0.92)


@pytest.mark.parametrize(("load", "count", "claimed"), [(0.5, 4000, 0.92), (0.8, 20_000, 0.91), (0.9, 20_000, 0.87)])
def test_batch_means_cover_the_mean_sojourn_of_mm1(load: float, count: int, claimed: float) -> None:
    rng, runs = np.random.default_rng(12), 300
    hits = sum(batch_means_interval(mm1_sojourns(load, count, rng)).contains(1 / (1 - load)) for _ in range(runs))
    assert_coverage(hits, runs, claimed)


def test_batches_that_are_too_short_are_said_to_be() -> None:
    rng, runs = np.random.default_rng(13), 60
    settled = sum(batch_means_interval(ar1(0.999, 1000, rng)).settled for _ in range(runs))
    assert settled < runs / 2
    clean = sum(batch_means_interval(rng.standard_normal(1000)).settled for _ in range(runs))
    assert clean > 0.8 * runs


@pytest.mark.parametrize(("p", "count"), [(0.5, 25), (0.9, 100), (0.99, 1000)])
def test_order_statistics_cover_a_quantile_of_any_law(p: float, count: int) -> None:
    rng, runs = np.random.default_rng(14), 600
    true = -math.log(1 - p)
    hits = sum(quantile_interval(rng.exponential(1.0, count), p).contains(true) for _ in range(runs))
    assert_coverage(hits, runs, 0.95)


@settings(deadline=None)
@given(st.integers(2, 300), st.sampled_from([0.1, 0.5, 0.9, 0.99]), st.sampled_from([0.8, 0.95, 0.99]))
def test_order_statistic_ranks_are_the_tightest_that_hold(count: int, p: float, level: float) -> None:
    interval = quantile_interval(np.arange(1.0, count + 1.0), p, level)
    law, tail = stats.binom(count, p), (1 - level) / 2 * (1 + 1e-9)
    low, high = interval.low, interval.high
    assert low == -math.inf or law.cdf(low - 1) <= tail
    assert law.cdf(0 if low == -math.inf else low) > (1 - level) / 2 * (1 - 1e-9)
    assert high == math.inf or 1 - law.cdf(high - 1) <= tail + 1e-12
    assert high == 1.0 or 1 - law.cdf((count if high == math.inf else high - 1) - 1) > tail - 1e-9


@pytest.mark.parametrize(
    ("load", "p", "count", "claimed"),
    [
        (0.5, 0.5, 4000, 0.92),
        (0.5, 0.99, 4000, 0.90),
        (0.8, 0.9, 20_000, 0.92),
        (0.8, 0.99, 20_000, 0.90),
        (0.9, 0.99, 20_000, 0.84),
        (0.9, 0.9, 100_000, 0.92),
    ],
)
def test_inverted_batch_means_cover_a_quantile_of_mm1(load: float, p: float, count: int, claimed: float) -> None:
    rng, runs = np.random.default_rng(15), 200
    true = -math.log(1 - p) / (1 - load)
    hits = sum(batch_quantile_interval(mm1_sojourns(load, count, rng), p).contains(true) for _ in range(runs))
    assert_coverage(hits, runs, claimed)


def test_a_quantile_that_rests_on_few_busy_periods_is_said_to() -> None:
    """Load .9, 20 000 customers are worth some 50 independent ones, and half of one lies beyond the 99th percentile."""
    rng = np.random.default_rng(19)
    runs = [batch_quantile_interval(mm1_sojourns(0.9, 20_000, rng), 0.99) for _ in range(40)]
    assert not any(i.settled for i in runs) and sum(math.isinf(i.high) for i in runs) > 20
    long = [batch_quantile_interval(mm1_sojourns(0.5, 40_000, rng), 0.9) for _ in range(40)]
    assert sum(i.settled for i in long) > 30 and all(math.isfinite(i.half_width) for i in long)


def test_the_interval_of_a_quantile_of_too_few_values_is_open() -> None:
    interval = batch_quantile_interval(np.arange(30.0), 0.99)
    assert not interval.settled and interval.high == math.inf and interval.estimate == 29.0
    assert batch_quantile_interval(np.zeros(0), 0.5).count == 0
    same = batch_quantile_interval(np.full(1000, 3.0), 0.5)
    assert (same.low, same.estimate, same.high) == (3.0, 3.0, 3.0)


def test_common_random_numbers_tighten_a_difference() -> None:
    rng = np.random.default_rng(16)
    shared = rng.normal(0, 10, 20)
    first, second = shared + rng.normal(1, 0.1, 20), shared + rng.normal(0, 0.1, 20)
    assert paired_interval(list(first), list(second)).half_width < 0.2
    with pytest.raises(InputError, match="lengths"):
        paired_interval([1.0], [1.0, 2.0])


@given(st.integers(1, 200), st.floats(0.5, 0.999))
def test_family_wise_levels_hold_together(count: int, level: float) -> None:
    assert sidak(level, count) ** count == pytest.approx(level)
    assert (1 - bonferroni(level, count)) * count == pytest.approx(1 - level)
    assert level - 1e-12 <= sidak(level, count) <= bonferroni(level, count) + 1e-12


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, float("nan")])
def test_a_level_that_is_no_probability_is_refused(level: float) -> None:
    with pytest.raises(InputError, match="level"):
        student_interval([1.0, 2.0], level)


def test_interval_to_dict_is_plain() -> None:
    shown = Interval(1.0, 0.0, 2.0, 0.95, "x", 3).to_dict()
    assert shown["estimate"] == 1.0 and shown["settled"] is True


@given(st.floats(-5, 5), st.floats(0.1, 5), st.floats(-3, 3), st.floats(0, 3))
def test_an_interval_is_cut_to_where_the_quantity_lies(middle: float, half: float, least: float, width: float) -> None:
    """What lies in the domain and in the interval stays in it; nothing outside the domain does."""
    whole = Interval(middle, middle - half, middle + half, 0.95, "x", 3)
    cut = whole.within(least, least + width)
    assert least <= cut.low <= cut.high <= least + width and cut.estimate == middle
    for value in np.linspace(least, least + width, 7):
        if whole.contains(float(value)):
            assert cut.contains(float(value))
    assert whole.within() == whole
