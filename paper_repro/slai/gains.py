"""Gains of one policy over another on shared streams: log ratios, and what they are in percent."""

from __future__ import annotations

__all__ = ["log_ratio", "percent", "shown"]

from collections.abc import Sequence

import numpy as np

from tileq_engine.intervals import Interval, paired_interval


def log_ratio(ours: Sequence[float], other: Sequence[float], level: float = 0.95) -> Interval:
    """Return the paired interval of log(ours/other) over replications; open where a value is 0 or missing."""
    first, second = (np.asarray(v, dtype=float) for v in (ours, other))
    with np.errstate(divide="ignore", invalid="ignore"):
        return paired_interval(np.log(first).tolist(), np.log(second).tolist(), level)


def percent(ratio: Interval) -> Interval:
    """Return an interval of a log ratio as a change in percent.

    Examples
    --------
    >>> round(percent(log_ratio([1.5, 1.5], [1.0, 1.0])).estimate, 6)
    50.0
    """
    estimate, low, high = (float(100 * np.expm1(v)) for v in (ratio.estimate, ratio.low, ratio.high))
    return Interval(estimate, low, high, ratio.level, ratio.method, ratio.count, ratio.settled, ratio.note)


def shown(change: Interval) -> str:
    """Return a change as text.

    Examples
    --------
    >>> shown(Interval(50.04, 48.0, 52.0, 0.95, "t", 3))
    '+50.0 % [+48.0, +52.0]'
    """
    return f"{change.estimate:+.1f} % [{change.low:+.1f}, {change.high:+.1f}]"
