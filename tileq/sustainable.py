"""The criterion that theory adds to every search: a rate beyond lambda* is no capacity, however short the run."""

from __future__ import annotations

__all__ = ["UpTo"]

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tileq_engine.capacity_search_criteria import Criterion

if TYPE_CHECKING:
    from tileq_engine.run import Run

_PS_PER_S = 1e12


@dataclass(frozen=True, slots=True)
class UpTo(Criterion):
    """The rate that the run was offered is at most `rate_per_s` (where it has none, that of its arrivals).

    A few hundred requests that all come at once may be served within a limit on times, at any rate at all. No policy
    is stable beyond lambda*, so no search need look there.
    """

    rate_per_s: float

    def __call__(self, run: Run) -> float:
        """Return log(offered rate / limit); inf where all come at once."""
        if run.info.rate_per_s is not None:
            return math.log(run.info.rate_per_s / self.rate_per_s)
        arrivals = run.requests["arrival_ps"]
        span_s = (int(arrivals[-1]) - int(arrivals[0])) / _PS_PER_S
        if span_s <= 0:
            return math.inf if len(arrivals) > 1 else -math.inf
        return math.log((len(arrivals) - 1) / span_s / self.rate_per_s)

    def describe(self) -> str:
        """Return the criterion in words."""
        return f"a rate up to {self.rate_per_s:.4g}/s, beyond which no policy is stable"
