"""A law of waiting or of time to first token, with the error it is known to."""

from __future__ import annotations

__all__ = ["LatencyLaw"]

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, finite, nonnegative

_AT_TICK = 1e-9  # a time this near a tick is that tick


@dataclass(frozen=True, slots=True, eq=False)
class LatencyLaw:
    r"""P(X <= t), computed at whole ticks.

    With F the computed law, h the tick, e the stretch, b = `misplaced` and l = `lost`,

        F(floor(t/(h (1 + e)))) - b  <=  P(X <= t)  <=  F(ceil(t/(h (1 - e)))) + b + l

    Parameters
    ----------
    kind
        "wait": arrival to the start of the iteration that prefills. "ttft": arrival to the first token.
    tick_s
        h, seconds.
    at_ticks
        F(k), P(X <= k h) on the clock of whole ticks.
    stretch
        e: each iteration's length is within this share of a whole number of ticks (0 to rounding where the lengths
        have a common measure: the law is then exact at ticks, but for `misplaced` and `lost`).
    misplaced
        Bound on the probability given to a wrong tick (0 for "wait"): the number of requests behind, which lengthens
        the last iteration, is counted as of the middle of the tick of the arrival.
    lost
        Bound on the probability that was not followed to its end.
    mean_s
        E[X], from the stationary law, not from these ticks.
    """

    kind: Literal["wait", "ttft"]
    tick_s: float
    at_ticks: Float[np.ndarray, "tick"] = field(repr=False)
    stretch: float
    misplaced: float
    lost: float
    mean_s: float

    def cdf(self, time_s: float) -> float:
        """Return P(X <= t), t in seconds, 0 or more; a straight line between ticks."""
        time = nonnegative("time_s", time_s)
        place = time / self.tick_s
        last = len(self.at_ticks) - 1
        low = min(math.floor(place + _AT_TICK), last)
        high = min(low + 1, last)
        share = min(max(place - low, 0.0), 1.0)
        return float(self.at_ticks[low] * (1 - share) + self.at_ticks[high] * share)

    def cdf_bounds(self, time_s: float) -> tuple[float, float]:
        """Return numbers between which P(X <= t) lies."""
        time = nonnegative("time_s", time_s)
        last = len(self.at_ticks) - 1
        low = min(math.floor(time / (self.tick_s * (1 + self.stretch)) + _AT_TICK), last)
        high = min(math.ceil(time / (self.tick_s * (1 - self.stretch)) - _AT_TICK), last)
        below = max(float(self.at_ticks[low]) - self.misplaced, 0.0)
        return below, min(float(self.at_ticks[high]) + self.misplaced + self.lost, 1.0)

    def quantile(self, probability: float) -> float:
        """Return the smallest t with P(X <= t) >= probability, seconds.

        Raises
        ------
        InputError
            A probability outside (0, 1), or one so near 1 that it is beyond what was followed.
        """
        p = _inside(probability)
        place = int(np.searchsorted(self.at_ticks, p))
        if place == len(self.at_ticks):
            raise InputError(
                f"probability is {probability!r}; expected at most {self.at_ticks[-1]:.9g}, what the law covers"
            )
        if place == 0:
            return 0.0
        below, above = float(self.at_ticks[place - 1]), float(self.at_ticks[place])
        return self.tick_s * (place - 1 + (p - below) / (above - below))

    def quantile_bounds(self, probability: float) -> tuple[float, float]:
        """Return numbers between which the quantile lies, seconds; the second is inf beyond what was followed."""
        p = _inside(probability)
        early = int(np.searchsorted(self.at_ticks, p - self.misplaced - self.lost))
        late = int(np.searchsorted(self.at_ticks, p + self.misplaced))
        low = max(early - 1, 0) * self.tick_s * (1 - self.stretch)
        high = late * self.tick_s * (1 + self.stretch) if late < len(self.at_ticks) else math.inf
        return low, high

    def to_dict(self) -> dict[str, object]:
        """Return the law's main numbers as plain data: mean, quantiles with their bounds, error terms."""
        reach = [p for p in (0.5, 0.9, 0.95, 0.99, 0.999) if p <= self.at_ticks[-1]]
        return {
            "kind": self.kind,
            "mean_s": self.mean_s,
            "quantiles_s": {f"p{100 * p:g}": self.quantile(p) for p in reach},
            "quantile_bounds_s": {f"p{100 * p:g}": list(self.quantile_bounds(p)) for p in reach},
            "tick_s": self.tick_s,
            "stretch": self.stretch,
            "misplaced": self.misplaced,
            "lost": self.lost,
        }


def _inside(probability: float) -> float:
    p = finite("probability", probability)
    if not 0 < p < 1:
        raise InputError(f"probability is {probability!r}; expected a number strictly between 0 and 1")
    return p
