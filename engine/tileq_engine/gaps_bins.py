r"""Bins of a log-linear histogram of whole picoseconds, by integer shifts only.

With S = 2^bits sub-bins an octave, value v goes to bin

    i = v                        for v < S          (exact, width 1)
    i = (o << bits) + (v >> o)   otherwise, o = bit_length(v) - bits - 1,

so bin i >= S holds the 2^o whole numbers from low = ((i mod S) + S) << o on. A bin [low, high] is represented by the
harmonic value r = 2 low high/(low + high), which makes the worst relative error |r - v|/v the same at both ends:

    error <= (high - low)/(high + low) < 1/(2 S + 1)

that is .389 % for S = 128 and .775 % for S = 64.
"""

from __future__ import annotations

__all__ = ["bin_bounds", "bin_index", "bin_values", "bins_for", "sub_bin_bits", "worst_relative_error"]

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError


def sub_bin_bits(sub_bins: int) -> int:
    """Return log2 of `sub_bins`, a power of two from 1 to 2^20."""
    bits = int(sub_bins).bit_length() - 1
    if sub_bins < 1 or bits > 20 or (1 << bits) != sub_bins:
        raise InputError(f"sub_bins is {sub_bins!r}; expected a power of two from 1 to 1048576")
    return bits


def worst_relative_error(sub_bins: int) -> float:
    """Return 1/(2 S + 1), the bound of the relative error of any quantile read from the histogram.

    Examples
    --------
    >>> round(worst_relative_error(128), 5)
    0.00389
    """
    sub_bin_bits(sub_bins)
    return 1.0 / (2 * sub_bins + 1)


def _bit_length(values: Int[np.ndarray, "n"]) -> Int[np.ndarray, "n"]:
    """Return the bit length of each nonnegative int64, exactly (floats would round up near powers of two)."""
    length = np.zeros(values.shape, dtype=np.int64)
    rest = values.copy()
    for shift in (32, 16, 8, 4, 2, 1):
        large = rest >= (1 << shift)
        length[large] += shift
        rest[large] >>= shift
    return np.asarray(length + (rest > 0), dtype=np.int64)


def bin_index(values_ps: Int[np.ndarray, "n"], sub_bins: int) -> Int[np.ndarray, "n"]:
    """Return the bin of each value (whole picoseconds, 0 or more)."""
    bits = sub_bin_bits(sub_bins)
    values = np.asarray(values_ps, dtype=np.int64)
    if values.size and int(values.min()) < 0:
        raise InputError(f"a gap of {int(values.min())} ps was given; expected 0 or more")
    octave = np.maximum(_bit_length(values) - bits - 1, 0)
    return np.asarray((octave << bits) + (values >> octave), dtype=np.int64)


def bin_bounds(index: Int[np.ndarray, "n"], sub_bins: int) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Return the smallest and the largest whole value of each bin, picoseconds."""
    bits = sub_bin_bits(sub_bins)
    i = np.asarray(index, dtype=np.int64)
    octave = np.maximum((i >> bits) - 1, 0)
    low = np.where(i < sub_bins, i, ((i & (sub_bins - 1)) + sub_bins) << octave)
    return low, low + (np.int64(1) << octave) - 1


def bin_values(index: Int[np.ndarray, "n"], sub_bins: int) -> Float[np.ndarray, "n"]:
    """Return the harmonic representative of each bin, picoseconds."""
    low, high = (bound.astype(float) for bound in bin_bounds(index, sub_bins))
    total = low + high
    return np.asarray(np.divide(2.0 * low * high, total, out=np.zeros_like(total), where=total > 0), dtype=float)


def bins_for(largest_ps: int, sub_bins: int) -> int:
    """Return how many bins hold the values 0 to `largest_ps`."""
    return int(bin_index(np.array([largest_ps], dtype=np.int64), sub_bins)[0]) + 1
