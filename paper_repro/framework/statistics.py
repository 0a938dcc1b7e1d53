"""Intervals and series that items share, beside those of `tileq_engine.intervals`."""

from __future__ import annotations

__all__ = ["in_system", "prediction_interval", "rounded", "thinned"]

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_engine.intervals import Interval

if TYPE_CHECKING:
    from tileq_engine.simulator import RawRun


def prediction_interval(values: Sequence[float], level: float = 0.99) -> Interval:
    """Return the interval in which one more independent normal value lies: mean +- t s sqrt(1 + 1/k).

    A published number that is a single run is held against it, not against the interval of the mean.

    Examples
    --------
    >>> interval = prediction_interval([1.0, 2.0, 3.0], 0.95)
    >>> round(interval.low, 3), interval.estimate, round(interval.high, 3)
    (-2.968, 2.0, 6.968)
    """
    from scipy.special import stdtrit

    k = len(values)
    mean = statistics.fmean(values)
    if k < 2:
        return Interval(mean, -math.inf, math.inf, level, "one more run", k, False, "one run gives no interval")
    half = float(stdtrit(k - 1, 0.5 + level / 2)) * statistics.stdev(values) * math.sqrt(1 + 1 / k)
    return Interval(mean, mean - half, mean + half, level, "one more run", k)


def in_system(run: RawRun, times_s: Sequence[float]) -> list[int]:
    """Return the requests that had come and not ended at each moment."""
    at = np.round(np.asarray(times_s, dtype=float) * 1e12).astype(np.int64)
    come = np.searchsorted(np.sort(run.arrival_ps), at, side="right")
    gone = np.searchsorted(np.sort(run.finish_ps[run.finish_ps >= 0]), at, side="right")
    return [int(n) for n in come - gone]


def rounded(values: Any, digits: int = 6) -> Any:
    """Return numbers with that many significant digits: data are committed, and must be light.

    Examples
    --------
    >>> rounded([1.23456789, 0.0, 1234567.0], 3)
    [1.23, 0.0, 1230000.0]
    """
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list | tuple):
        return [rounded(v, digits) for v in values]
    return float(f"{values:.{digits}g}")


def thinned(count: int, most: int) -> list[int]:
    """Return at most about `most` evenly spaced places of a series of `count`, both ends kept.

    Examples
    --------
    >>> thinned(10, 4)
    [0, 3, 6, 9]
    """
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})
