r"""Stability verdict from one finite run: "stable", "unstable" or "undecided", never a bare yes.

The slope of the work in system W(t) over the second half of the run is fitted by least squares and given a confidence
interval. The verdict compares that interval with a threshold, a share theta (default 2 %) of the rate at which work
arrives:

    unstable   whole interval above theta * (arriving work per second)
    stable     whole interval below it
    undecided  otherwise, or when the run is too small to say

A stationary queue scatters *around* its level, an overloaded one wanders *away* from its line (its noise is itself a
random walk), and an interval made for the first is several times too short for the second. So the path, read at 65
evenly spaced moments, goes through a Dickey-Fuller test with trend and one lag first. If a unit root is rejected at 1
% (tau < -4.11 for these 65 points) the interval comes from the autocorrelation of the levels, else from that of the
increments; both by Bartlett-weighted covariances up to a quarter of the points, with the critical values of Kiefer
and Vogelsang (2005, Econometric Theory 21:1130, table 1) for that share. With the second kind an undecided verdict is
the usual price of a short run.

Measured on an M/G/1 workload (400 runs a cell, theta = 2 %, level 95 %): share of the runs called stable/unstable,
with T mean service times in the second half:

    load                 .8        .9        .95       1.0       1.05      1.1       1.2
    exponential T = 500  .27/.00   .08/.00   .02/.01   .02/.02   .01/.08   .00/.17   .00/.60
                T = 2000 .79/.00   .33/.00   .14/.00   .04/.01   .01/.14   .00/.54   .00/.98
                T = 8000 1.0/.00   .98/.00   .68/.00   .17/.00   .00/.35   .00/.96   .00/1.0
    lognormal   T = 2000 .24/.00   .10/.00   .06/.00   .02/.01   .02/.04   .00/.12   .00/.59   (cv of service 2.9)
                T = 8000 .63/.00   .24/.00   .10/.00   .05/.01   .02/.10   .00/.49   .00/.98
    batches of  T = 8000 .18/.00   .07/.00                       .01/.06   .00/.14   .00/.44   (exponential, 25 at once)
    arrivals   T = 32000 .61/.00   .19/.00                       .01/.10   .00/.41   .00/.93

Wrong verdicts (unstable below load 1, stable at 1.05 or more) stay at or below 2 %; the interval covers the true
drift in .91 to .98 of the runs. To decide near load 1 simulate more requests, or pool replications (`pooled_verdict`).
A load between 1 and 1/(1 - theta), 1.0204, grows more slowly than the threshold: the longer the run, the surer it is
called "stable". It is a verdict on growth worth the name, not on the last percents before load 1.

*Filling is not growth.* Until the first requests have been served the work in system climbs however light the load:
where the path lasts less than three stays (of half of the work, so that few long requests count) the verdict is
"undecided". Where many are served at once and each slows the others (decodes that read KV), it climbs for far longer,
smoothly, and a line through it is significant. What tells is that it slows down: a system at load 1 exactly climbs as
sqrt(t), its second half by sqrt(2) - 1 = .41 of its first, one below load 1 by less, an overloaded one in the end by
1. "Unstable" asks that the work grow in the second half by at least .55 of what it grew in the first. And as an
overload without a bound on residents makes stays as long as the run, however long it is, a ratio surely above .6 over
a run of one stay or more (a fill has exp(-1/2) = .61 by then, and less from there on) says that it is no fill.
Measured, with no bound on residents: decodes that read KV at .9 and .98, 8 to 60 runs a cell of 8 to 100 stays of an
empty system, unstable in 0 to .017 (without the ratio up to .7); an iteration of constant time, 150 to 200 runs a cell
of .5 to 8 mean stays, geometric outputs or a fifth of them ten times as long as the others, unstable in 0 to .035
(without the weights up to .4). The ratio costs the queue above at most .04 of its "unstable" runs.
"""

from __future__ import annotations

__all__ = [
    "GRID_POINTS",
    "THRESHOLD_SHARE",
    "StabilityVerdict",
    "pooled_verdict",
    "slope_interval",
    "stability_verdict",
]

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_engine.intervals import Interval
from tileq_theory.errors import InputError, nonnegative

GRID_POINTS = 65
THRESHOLD_SHARE = 0.02
LEAST_ARRIVALS = 50
LEAST_STAYS = 3
LEAST_GROWTH = 0.55
STEADY_GROWTH = 0.6
_BANDWIDTH = 0.25
_UNIT_ROOT_TAU = -4.11
# Kiefer and Vogelsang 2005, table 1, Bartlett kernel: critical value of the t statistic as a cubic in bandwidth/points
_CRITICAL = {
    0.80: (1.2816, 1.3040, 0.5135, -0.3386),
    0.90: (1.6449, 2.1859, 0.3142, -0.3427),
    0.95: (1.9600, 2.9694, 0.4160, -0.5324),
    0.98: (2.3263, 4.1618, 0.5368, -0.9060),
}
Stability = Literal["stable", "unstable", "undecided"]


@dataclass(frozen=True, slots=True)
class StabilityVerdict:
    """The verdict, the slope behind it and the threshold it was held against (work per second).

    `growth_ratio` is the growth over the second half of the run as a share of that over the first: 1 where it goes on
    as it began, below `LEAST_GROWTH` where it slows down as a filling system's does; None where there was none.
    """

    verdict: Stability
    slope_per_s: Interval
    threshold_per_s: float
    reason: str
    growth_ratio: float | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the verdict as plain data."""
        return {
            "verdict": self.verdict,
            "slope_tokens_per_s": self.slope_per_s.to_dict(),
            "threshold_tokens_per_s": self.threshold_per_s,
            "reason": self.reason,
            "growth_ratio": self.growth_ratio,
        }


def _bartlett(scores: Float[np.ndarray, "n"], lags: int) -> float:
    """Return the Bartlett-weighted sum of the scores' cross products: the variance of their sum."""
    total = float(np.dot(scores, scores))
    for lag in range(1, lags + 1):
        total += 2.0 * (1.0 - lag / (lags + 1)) * float(np.dot(scores[lag:], scores[:-lag]))
    return max(total, 0.0)


def _unit_root_tau(path: Float[np.ndarray, "n"]) -> float:
    """Return the Dickey-Fuller statistic with constant, trend and one lagged difference (0 for a constant path)."""
    steps = np.diff(path)
    response, n = steps[1:], path.size - 2
    if n < 8 or float(np.ptp(path)) == 0.0:
        return 0.0
    design = np.column_stack([np.ones(n), np.arange(n) - (n - 1) / 2.0, path[1:-1], steps[:-1]])
    scale = np.abs(design).max(axis=0)
    design = design / np.where(scale > 0, scale, 1.0)
    coefficients = np.linalg.lstsq(design, response, rcond=None)[0]
    residual = response - design @ coefficients
    variance = float(residual @ residual) / max(n - 4, 1) * float(np.linalg.pinv(design.T @ design)[2, 2])
    return float(coefficients[2]) / math.sqrt(variance) if variance > 0 else 0.0


def slope_interval(path: Float[np.ndarray, "n"], step_s: float, level: float = 0.95) -> Interval:
    """Return the least-squares slope of an evenly sampled path with its interval (unit of the path per second).

    Parameters
    ----------
    path
        Values at evenly spaced moments, at least 12.
    step_s
        Spacing, seconds.
    level
        .80, .90, .95 or .98, the levels for which critical values are published.
    """
    if level not in _CRITICAL:
        raise InputError(f"slope level is {level!r}; expected one of {', '.join(map(str, _CRITICAL))}")
    w = np.asarray(path, dtype=float)
    n = w.size
    if n < 12 or not step_s > 0:
        raise InputError(f"slope of {n} values at spacing {step_s!r} s; expected 12 values or more, spacing above 0")
    time = (np.arange(n) - (n - 1) / 2.0) * step_s
    spread = float(time @ time)
    slope = float(time @ w) / spread
    lags = int(_BANDWIDTH * (n - 1))
    if _unit_root_tau(w) < _UNIT_ROOT_TAU:
        method, parameters = "HAC of levels", 2
        scores = (w - w.mean() - slope * time) * time / spread
    else:
        method, parameters = "HAC of increments", 1
        weights = np.cumsum(time[::-1])[::-1][1:] / spread  # slope = sum of weights * increments
        scores = (np.diff(w) - slope * step_s) * weights
    deviation = math.sqrt(_bartlett(scores, lags) * scores.size / (scores.size - parameters))
    share = lags / scores.size
    critical = sum(c * share**power for power, c in enumerate(_CRITICAL[level]))
    return Interval(slope, slope - critical * deviation, slope + critical * deviation, level, method, n)


def _judge(interval: Interval, threshold: float) -> tuple[Stability, str]:
    if interval.low > threshold:
        return "unstable", "the work in system grows faster than the threshold"
    if interval.high < threshold:
        return "stable", "the work in system grows more slowly than the threshold, if at all"
    return "undecided", "the slope's interval contains the threshold: the run is too short or the load too near 1"


def _growth_ratio(path: Float[np.ndarray, "n"], rise: float, begin_work: float | None) -> float | None:
    """Return the rise of the fitted line over that from the run's beginning to the line's; None where there is none."""
    if begin_work is None:
        return None
    before = float(np.mean(path)) - rise / 2.0 - begin_work
    return rise / before if rise > 0 and before > 0 else None


def stability_verdict(
    path: Float[np.ndarray, "n"],
    step_s: float,
    *,
    arriving_work_per_s: float,
    arrivals: int,
    threshold_share: float = THRESHOLD_SHARE,
    level: float = 0.95,
    stopped_by_backlog: bool = False,
    stay_s: float = 0.0,
    begin_work: float | None = None,
) -> StabilityVerdict:
    """Judge the path of the work in system over the second half of a run.

    Parameters
    ----------
    path, step_s
        Work in system (tokens) at evenly spaced moments of the second half, and their spacing.
    arriving_work_per_s
        Work that arrives per second (tokens a second), 0 or more; the threshold is `threshold_share` of it.
    arrivals
        Requests that arrived in the second half; below 50 the verdict is "undecided".
    stopped_by_backlog
        True when the run ended because its backlog hit the bound given for it: "unstable", or "undecided" where the
        slope's interval is wholly below the threshold.
    stay_s
        How long work is resident, from the admission of its request on, seconds (a median over tokens: long requests
        fill a system); inf where the run is shorter. A path of less than `LEAST_STAYS` of them
        shows how the system fills and not whether it is stable: "undecided", unless its growth is as steady as that of
        no fill (`STEADY_GROWTH`, over the path and as long before it, one stay at least).
    begin_work
        Work in system (tokens) when the run began, as long before the path as the path lasts; growth that slows down
        by more than `LEAST_GROWTH` since then is "undecided" instead of "unstable". None: not asked.
    """
    threshold = nonnegative("threshold_share", threshold_share) * nonnegative(
        "arriving_work_per_s", arriving_work_per_s
    )
    if np.asarray(path).size < 12 or not step_s > 0:
        none = Interval(math.nan, -math.inf, math.inf, level, "none", int(np.asarray(path).size), False, "no path")
        verdict: Stability = "unstable" if stopped_by_backlog else "undecided"
        return StabilityVerdict(verdict, none, threshold, "the run is too short for a slope")
    interval = slope_interval(path, step_s, level)
    verdict, reason = _judge(interval, threshold)
    ratio = _growth_ratio(path, interval.estimate * step_s * (np.asarray(path).size - 1), begin_work)
    if stopped_by_backlog and verdict != "unstable":
        bound = "the backlog reached the bound set for the run"
        if verdict == "undecided":
            return StabilityVerdict("unstable", interval, threshold, bound)
        return StabilityVerdict("undecided", interval, threshold, f"{bound}, yet the work in system hardly grows")
    span_s = step_s * (np.asarray(path).size - 1)
    # the lower end of the ratio: chance would lift that of a fill above any mark too often
    steady = ratio is not None and ratio * interval.low >= STEADY_GROWTH * interval.estimate and 2 * span_s >= stay_s
    if span_s < LEAST_STAYS * stay_s and not stopped_by_backlog and not steady:
        served = "longer than the run" if math.isinf(stay_s) else f"for {stay_s:.4g} s"
        reason = (
            f"the second half of the run lasts {span_s:.4g} s and a request is served {served}: "
            f"this is how the system fills; a verdict needs {LEAST_STAYS} times that"
        )
        return StabilityVerdict("undecided", replace(interval, settled=False, note=reason), threshold, reason)
    if arrivals < LEAST_ARRIVALS and not stopped_by_backlog:
        reason = f"{arrivals} arrivals in the second half of the run; a verdict needs {LEAST_ARRIVALS}"
        return StabilityVerdict("undecided", interval, threshold, reason)
    if verdict == "unstable" and not stopped_by_backlog and ratio is not None and ratio < LEAST_GROWTH:
        return StabilityVerdict("undecided", interval, threshold, _slows(ratio), ratio)
    return StabilityVerdict(verdict, interval, threshold, reason, ratio)


def _slows(ratio: float) -> str:
    return (
        f"the work in system grew in the second half of the run by {ratio:.2g} of what it grew in the first: that is "
        f"how a system fills; a verdict needs {LEAST_GROWTH}, or a longer run"
    )


def pooled_verdict(verdicts: Sequence[StabilityVerdict]) -> StabilityVerdict:
    """Judge independent replications together: mean slope, half-widths added in squares and divided by their number.

    Where one of them only shows how the system fills, so do the others: their mean would be the surer of it. Growth
    slows down where the median of their growth ratios says so.
    """
    if not verdicts:
        raise InputError("pooled_verdict of no verdicts; expected at least one")
    if len(verdicts) == 1:
        return verdicts[0]
    slopes = [v.slope_per_s for v in verdicts]
    threshold = math.fsum(v.threshold_per_s for v in verdicts) / len(verdicts)
    if any(not math.isfinite(s.half_width) for s in slopes):
        verdict: Stability = "unstable" if all(v.verdict == "unstable" for v in verdicts) else "undecided"
        return StabilityVerdict(verdict, slopes[0], threshold, "a replication is too short for a slope")
    filling = next((v for v in verdicts if not v.slope_per_s.settled and v.verdict == "undecided"), None)
    if filling is not None:
        return filling
    mean = math.fsum(s.estimate for s in slopes) / len(slopes)
    half = math.sqrt(math.fsum(s.half_width**2 for s in slopes)) / len(slopes)
    pooled = Interval(mean, mean - half, mean + half, slopes[0].level, "pooled HAC", len(slopes))
    verdict, reason = _judge(pooled, threshold)
    ratios = [v.growth_ratio for v in verdicts if v.growth_ratio is not None]
    ratio = float(np.median(ratios)) if ratios else None
    if verdict == "undecided" and all(v.verdict == "unstable" for v in verdicts):
        verdict, reason = "unstable", "every replication is unstable"
    elif verdict == "unstable" and ratio is not None and ratio < LEAST_GROWTH:
        verdict, reason = "undecided", _slows(ratio)
    return StabilityVerdict(verdict, pooled, threshold, reason, ratio)
