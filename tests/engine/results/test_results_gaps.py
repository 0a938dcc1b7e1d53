"""Gap distributions: exact pairs, bounded histogram, merging, the quantile convention."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq_engine.gaps import GapHistogram, GapPairs, exact_sum, merge_gaps, quantile_rank
from tileq_engine.gaps_bins import bin_bounds, bin_index, bin_values, bins_for, worst_relative_error
from tileq_theory.errors import InputError

ROUNDING = 1e-15  # whole picoseconds beyond 2^53 are rounded when shown as floats
gap_lists = st.lists(st.integers(0, 2**55), min_size=1, max_size=60)


def brute_quantile(values: list[int], p: Fraction) -> int:
    """The smallest value v with share(values <= v) >= p, by counting."""
    return next(v for v in sorted(values) if Fraction(sum(w <= v for w in values), len(values)) >= p)


@given(gap_lists, st.integers(0, 1000))
def test_pairs_quantile_is_the_smallest_value_with_enough_mass(values: list[int], thousandths: int) -> None:
    gaps = GapPairs.of(np.array(values))
    assert gaps.quantile_ps(thousandths / 1000) == float(brute_quantile(values, Fraction(thousandths, 1000)))
    assert gaps.sum_ps == sum(values)
    assert gaps.count == len(values)
    assert (gaps.min_ps, gaps.max_ps) == (min(values), max(values))


@given(gap_lists, st.integers(0, 100), st.sampled_from([16, 64, 128]))
def test_histogram_errs_by_less_than_it_says_and_its_mean_is_exact(
    values: list[int], hundredths: int, sub: int
) -> None:
    gaps = GapPairs.of(np.array(values))
    histogram = gaps.to_histogram(sub)
    p = hundredths / 100
    true = gaps.quantile_ps(p)
    assert abs(histogram.quantile_ps(p) - true) <= (histogram.relative_error + ROUNDING) * true
    assert histogram.mean_ps == gaps.mean_ps
    assert not histogram.exact
    assert histogram.quantile_ps(1.0) == float(max(values))


def test_default_resolution_keeps_the_promised_error() -> None:
    assert GapPairs.of(np.array([5])).to_histogram().relative_error <= 0.006
    assert worst_relative_error(64) > 0.006


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=40), st.sampled_from([1, 2, 64, 128, 1024]))
def test_bins_hold_their_values_and_lie_side_by_side(values: list[int], sub: int) -> None:
    x = np.array(values, dtype=np.int64)
    index = bin_index(x, sub)
    low, high = bin_bounds(index, sub)
    assert bool(((low <= x) & (x <= high)).all())
    representative = bin_values(index, sub)
    assert bool((np.abs(representative - x) <= (worst_relative_error(sub) + ROUNDING) * x).all())


@pytest.mark.parametrize("sub", [1, 64, 128])
def test_bins_partition_the_whole_numbers(sub: int) -> None:
    index = np.arange(bins_for(100_000, sub), dtype=np.int64)
    low, high = bin_bounds(index, sub)
    assert low[0] == 0
    assert bool((low[1:] == high[:-1] + 1).all())


@given(st.lists(gap_lists, min_size=1, max_size=4), st.data())
def test_merge_is_the_distribution_of_all(parts: list[list[int]], data: st.DataObject) -> None:
    binned = [data.draw(st.booleans()) for _ in parts]
    pairs = [GapPairs.of(np.array(p)) for p in parts]
    merged = merge_gaps([p.to_histogram() if b else p for p, b in zip(pairs, binned, strict=True)])
    whole = GapPairs.of(np.array([v for p in parts for v in p]))
    assert merged.exact == (not any(binned))
    assert (merged.count, merged.sum_ps, merged.max_ps, merged.min_ps) == (
        whole.count,
        whole.sum_ps,
        whole.max_ps,
        whole.min_ps,
    )
    expected = whole if merged.exact else whole.to_histogram()
    assert all(merged.quantile_ps(p) == expected.quantile_ps(p) for p in (0.01, 0.5, 0.9, 0.99, 1.0))


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**20)), max_size=30))
def test_exact_sum_survives_where_int64_overflows(pairs: list[tuple[int, int]]) -> None:
    values, counts = np.array([p[0] for p in pairs], dtype=np.int64), np.array([p[1] for p in pairs], dtype=np.int64)
    assert exact_sum(values, counts) == sum(v * c for v, c in pairs)


@given(gap_lists, st.integers(0, 2**56))
def test_share_within_brackets_the_truth(values: list[int], limit: int) -> None:
    gaps = GapPairs.of(np.array(values))
    share = sum(v <= limit for v in values) / len(values)
    assert gaps.share_within(limit) == (share, share)
    low, high = gaps.to_histogram().share_within(limit)
    assert low <= share <= high


def test_rank_reads_decimals_as_written() -> None:
    assert [quantile_rank(0.07, 100), quantile_rank(0.29, 100), quantile_rank(0.57, 100)] == [7, 29, 57]
    assert [quantile_rank(0.99, 100), quantile_rank(0.99, 101), quantile_rank(1.0, 7)] == [99, 100, 7]


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_a_probability_outside_the_unit_interval_is_refused(p: float) -> None:
    with pytest.raises(InputError, match="probability"):
        GapPairs.of(np.array([1])).quantile_ps(p)


def test_bad_pairs_and_histograms_are_refused() -> None:
    with pytest.raises(InputError, match="increasing"):
        GapPairs(np.array([2, 1]), np.array([1, 1]))
    with pytest.raises(InputError, match="power of two"):
        GapHistogram(np.array([1]), 100, 0, 0, 0)
    with pytest.raises(InputError, match="0 or more"):
        bin_index(np.array([-1]), 64)


def test_no_gaps_have_no_mean_and_no_quantile() -> None:
    none = GapPairs.of(np.zeros(0, dtype=np.int64))
    assert np.isnan(none.mean_ps) and np.isnan(none.quantile_ps(0.5)) and np.isnan(none.to_histogram().quantile_ps(0.5))
