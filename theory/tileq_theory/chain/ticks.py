r"""A clock for iteration lengths: a tick of which every length is (nearly) a whole multiple.

With lengths T_i = h m_i (1 + e_i), |e_i| <= e, a sum of iterations lies within the factors 1 - e and 1 + e of its sum
of whole ticks, whatever iterations it is made of. Coefficients are mostly decimal numbers: lengths mostly have a
common measure: then e = 0 to rounding, and what is computed on the clock is exact at its ticks.
"""

from __future__ import annotations

__all__ = ["Clock", "common_clock", "nearest_clock"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

_EXACT = 1e-9  # relative: lengths are sums of floats, known no better
_CANDIDATES = 2000
_FINEST = 100_000  # ticks in the shortest length


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """Whole ticks instead of lengths.

    Parameters
    ----------
    tick_s
        h, seconds.
    ticks
        m_i, at least 1.
    stretch
        e: every length is within this share of h m_i.
    """

    tick_s: float
    ticks: Int[np.ndarray, "duration"]
    stretch: float


def common_clock(lengths_s: Float[np.ndarray, "duration"], resolution: int) -> Clock | None:
    """Return a clock whose tick measures every length and a typical one in `resolution` ticks or more, if there is one.

    The typical length is the mean of the shortest and the longest.
    """
    measure = _common_measure(lengths_s, float(lengths_s.min()) / _FINEST)
    if measure is None:
        return None
    return _clock(lengths_s, measure / max(1, round(measure * resolution / _typical(lengths_s))))


def nearest_clock(lengths_s: Float[np.ndarray, "duration"], resolution: int) -> Clock:
    """Return the clock of least stretch among many with resolution/2 to `resolution` ticks in a typical length."""
    candidates = _typical(lengths_s) / resolution * np.geomspace(1.0, 2.0, _CANDIDATES)
    worst = np.zeros(_CANDIDATES)
    for length in lengths_s:
        whole = np.maximum(np.rint(length / candidates), 1)
        worst = np.maximum(worst, np.abs(length / (candidates * whole) - 1))
    return _clock(lengths_s, float(candidates[int(np.argmin(worst))]))


def _typical(lengths_s: np.ndarray) -> float:
    return (float(lengths_s.min()) + float(lengths_s.max())) / 2


def _clock(lengths_s: np.ndarray, tick: float) -> Clock:
    whole = np.maximum(np.rint(lengths_s / tick), 1).astype(np.int64)
    stretch = float(np.abs(lengths_s / (tick * whole) - 1).max())
    return Clock(tick, whole, stretch)


def _common_measure(lengths_s: np.ndarray, least: float) -> float | None:
    """Return the largest common measure of the lengths that is not below `least`, by Euclid's algorithm."""
    measure = longest = float(lengths_s[0])
    for length in lengths_s[1:]:
        one, other = float(length), measure
        while other > least / 10:  # no measure of interest is that short: what is left is rounding
            rest = one % other
            one, other = other, min(rest, other - rest)  # a remainder a rounding below the divisor is none
        if one < least:
            return None
        # rounding grows with each quotient: read the measure off the longest length again
        longest = max(longest, float(length))
        measure = longest / round(longest / one)
    return measure if _clock(lengths_s, measure).stretch < _EXACT else None
