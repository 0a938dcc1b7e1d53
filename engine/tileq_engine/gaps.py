r"""Distribution of the gaps between a request's consecutive output tokens (TBT), exact or with a bounded error.

Small runs keep run-length pairs (gap, count), which are exact; large runs keep a log-linear histogram of fixed size
(`gaps_bins`). Each says which it is: `exact`, and `relative_error`, the bound on the relative error of a quantile. The
mean, the count, the least and the largest gap are exact in both.

*Quantile convention* (the same in all of Tileq's results): the quantile at probability p in [0, 1] of n values is the
order statistic of rank max(1, ceil(p n)), the smallest value v with (share of values <= v) >= p. It is always a value
that occurred (or the representative of the bin that holds it); nothing is interpolated. p is read as the decimal it was
written as, so .07 of 100 is rank 7 and not 8.
"""

from __future__ import annotations

__all__ = ["GapDistribution", "GapHistogram", "GapPairs", "exact_sum", "merge_gaps", "quantile_rank"]

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Int

from tileq_engine.gaps_bins import bin_bounds, bin_index, bin_values, bins_for, worst_relative_error
from tileq_theory.errors import InputError

PS_PER_S = 10**12
DEFAULT_SUB_BINS = 128


def quantile_rank(probability: float, count: int) -> int:
    """Return max(1, ceil(p n)), the 1-based rank of the quantile at p of n values, in exact arithmetic.

    Examples
    --------
    >>> quantile_rank(0.07, 100), quantile_rank(0.5, 5), quantile_rank(0, 5)
    (7, 3, 1)
    """
    p = float(probability)
    if not 0.0 <= p <= 1.0:
        raise InputError(f"quantile probability is {probability!r}; expected a number in [0, 1]")
    if count < 1:
        raise InputError(f"a quantile of {count} values was asked for; expected at least one value")
    return max(1, math.ceil(Fraction(p).limit_denominator(10**9) * count))


def exact_sum(values: Int[np.ndarray, "n"], counts: Int[np.ndarray, "n"]) -> int:
    """Return the sum of values*counts as a Python integer, safe where int64 would overflow.

    The values are cut into parts of 20 bits; each partial sum stays below 2^20 times the total count.
    """
    total, rest = 0, np.asarray(values, dtype=np.int64)
    for part in range(4):
        total += int(np.dot(rest & 0xFFFFF, counts)) << (20 * part)
        rest = rest >> 20
    return total


@dataclass(frozen=True, slots=True, eq=False)
class GapPairs:
    """Exact gaps as pairs: `gap_ps` strictly increasing, `counts` above 0.

    Examples
    --------
    >>> gaps = GapPairs.of(np.array([50, 20, 20, 90]))
    >>> gaps.count, gaps.quantile_ps(0.5), gaps.mean_ps, gaps.exact
    (4, 20.0, 45.0, True)
    """

    gap_ps: Int[np.ndarray, "pair"]
    counts: Int[np.ndarray, "pair"]

    def __post_init__(self) -> None:
        gap, counts = self.gap_ps, self.counts
        if gap.shape != counts.shape or gap.ndim != 1:
            raise InputError(f"gap pairs have shapes {gap.shape} and {counts.shape}; expected two equal lengths")
        if gap.size and (int(gap[0]) < 0 or bool((np.diff(gap) <= 0).any()) or int(counts.min()) < 1):
            raise InputError("gap pairs must have increasing gaps of 0 ps or more and counts of 1 or more")

    @classmethod
    def of(cls, gap_ps: Int[np.ndarray, "n"], counts: Int[np.ndarray, "n"] | None = None) -> GapPairs:
        """Build pairs from gaps in any order with repeats (`counts` default to one each)."""
        gap = np.asarray(gap_ps, dtype=np.int64)
        weight = np.ones_like(gap) if counts is None else np.asarray(counts, dtype=np.int64)
        if gap.shape != weight.shape or (weight.size and int(weight.min()) < 0):
            raise InputError("gaps and counts must have the same length, with counts of 0 or more")
        gap, weight = gap[weight > 0], weight[weight > 0]
        unique, inverse = np.unique(gap, return_inverse=True)
        total = np.zeros(unique.size, dtype=np.int64)
        np.add.at(total, inverse, weight)
        return cls(unique, total)

    @property
    def exact(self) -> bool:
        """Always True: nothing is rounded."""
        return True

    @property
    def relative_error(self) -> float:
        """Bound of the relative error of a quantile: 0."""
        return 0.0

    @property
    def mean_exact(self) -> bool:
        """Always True: the mean is exact."""
        return True

    @property
    def count(self) -> int:
        """Number of gaps."""
        return int(self.counts.sum())

    @property
    def sum_ps(self) -> int:
        """Sum of all gaps, picoseconds, exact."""
        return exact_sum(self.gap_ps, self.counts)

    @property
    def mean_ps(self) -> float:
        """Mean gap, picoseconds (nan when there is none)."""
        return self.sum_ps / self.count if self.count else math.nan

    @property
    def min_ps(self) -> int:
        """Least gap, picoseconds (0 when there is none)."""
        return int(self.gap_ps[0]) if self.gap_ps.size else 0

    @property
    def max_ps(self) -> int:
        """Largest gap, picoseconds (0 when there is none)."""
        return int(self.gap_ps[-1]) if self.gap_ps.size else 0

    def quantile_ps(self, probability: float) -> float:
        """Return the gap of rank max(1, ceil(p n)), picoseconds (nan when there is none)."""
        if not self.count:
            return math.nan
        rank = quantile_rank(probability, self.count)
        return float(self.gap_ps[int(np.searchsorted(np.cumsum(self.counts), rank))])

    def share_within(self, limit_ps: int) -> tuple[float, float]:
        """Return lower and upper bound of the share of gaps of at most `limit_ps` (equal here; nan when none)."""
        if not self.count:
            return math.nan, math.nan
        share = int(self.counts[: int(np.searchsorted(self.gap_ps, limit_ps, side="right"))].sum()) / self.count
        return share, share

    def to_histogram(self, sub_bins: int = DEFAULT_SUB_BINS) -> GapHistogram:
        """Return the histogram of the same gaps: same count, sum, least and largest."""
        index = bin_index(self.gap_ps, sub_bins)
        bins = np.zeros(bins_for(self.max_ps, sub_bins), dtype=np.int64)
        np.add.at(bins, index, self.counts)
        return GapHistogram(bins, sub_bins, self.sum_ps, self.min_ps, self.max_ps)


@dataclass(frozen=True, slots=True, eq=False)
class GapHistogram:
    """Gaps in a log-linear histogram: `bin_counts[i]` gaps in bin i of `gaps_bins`, with exact sum, least and largest.

    `mean_exact` is False where whoever counted could not keep the exact sum (requests cut off by the end of the run,
    counted by a recorder without sums); the mean is then as good as a quantile.
    """

    bin_counts: Int[np.ndarray, "bin"]
    sub_bins: int
    sum_ps: int
    min_ps: int
    max_ps: int
    mean_exact: bool = True

    def __post_init__(self) -> None:
        worst_relative_error(self.sub_bins)
        if self.bin_counts.ndim != 1 or (self.bin_counts.size and int(self.bin_counts.min()) < 0):
            raise InputError("gap histogram must be one row of counts of 0 or more")
        if not (0 <= self.min_ps <= self.max_ps and self.sum_ps >= 0):
            raise InputError(f"gap histogram has min {self.min_ps}, max {self.max_ps}, sum {self.sum_ps} ps")

    @property
    def exact(self) -> bool:
        """Always False: quantiles are rounded to a bin."""
        return False

    @property
    def relative_error(self) -> float:
        """Bound of the relative error of a quantile, 1/(2 S + 1)."""
        return worst_relative_error(self.sub_bins)

    @property
    def count(self) -> int:
        """Number of gaps."""
        return int(self.bin_counts.sum())

    @property
    def mean_ps(self) -> float:
        """Mean gap, picoseconds, exact when `mean_exact` (nan when there is none)."""
        return self.sum_ps / self.count if self.count else math.nan

    def quantile_ps(self, probability: float) -> float:
        """Return the representative of the bin that holds the gap of rank max(1, ceil(p n)), picoseconds."""
        if not self.count:
            return math.nan
        rank = quantile_rank(probability, self.count)
        if rank == self.count:
            return float(self.max_ps)
        place = np.array([int(np.searchsorted(np.cumsum(self.bin_counts), rank))], dtype=np.int64)
        return min(max(float(bin_values(place, self.sub_bins)[0]), float(self.min_ps)), float(self.max_ps))

    def share_within(self, limit_ps: int) -> tuple[float, float]:
        """Return lower and upper bound of the share of gaps of at most `limit_ps` (the limit may cut a bin)."""
        if not self.count:
            return math.nan, math.nan
        if limit_ps >= self.max_ps:
            return 1.0, 1.0
        low, high = bin_bounds(np.arange(self.bin_counts.size, dtype=np.int64), self.sub_bins)
        below = int(self.bin_counts[high <= limit_ps].sum())
        return below / self.count, int(self.bin_counts[low <= limit_ps].sum()) / self.count

    def to_histogram(self, sub_bins: int = DEFAULT_SUB_BINS) -> GapHistogram:
        """Return itself; the resolution of a histogram cannot be changed."""
        if sub_bins != self.sub_bins:
            raise InputError(f"a histogram of {self.sub_bins} sub-bins was given where {sub_bins} are expected")
        return self


GapDistribution = GapPairs | GapHistogram


def merge_gaps(parts: Iterable[GapDistribution]) -> GapDistribution:
    """Return the distribution of all gaps of `parts`: exact when every part is, else a histogram.

    Examples
    --------
    >>> merge_gaps([GapPairs.of(np.array([1, 2])), GapPairs.of(np.array([2, 3]))]).counts.tolist()
    [1, 2, 1]
    """
    kept = list(parts)
    pairs = [p for p in kept if isinstance(p, GapPairs)]
    if len(pairs) == len(kept):
        empty = np.zeros(0, dtype=np.int64)
        return GapPairs.of(
            np.concatenate([empty, *(p.gap_ps for p in pairs)]), np.concatenate([empty, *(p.counts for p in pairs)])
        )
    sub_bins = next(p.sub_bins for p in kept if isinstance(p, GapHistogram))
    parts_binned = [p.to_histogram(sub_bins) for p in kept]
    total = np.zeros(max(p.bin_counts.size for p in parts_binned), dtype=np.int64)
    for part in parts_binned:
        total[: part.bin_counts.size] += part.bin_counts
    filled = [p for p in parts_binned if p.count]
    least = min((p.min_ps for p in filled), default=0)
    largest = max((p.max_ps for p in filled), default=0)
    exact = all(p.mean_exact for p in filled)
    return GapHistogram(total, sub_bins, sum(p.sum_ps for p in filled), least, largest, exact)
