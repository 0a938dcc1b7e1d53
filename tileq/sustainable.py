"""What makes a rate that meets its limits a capacity: it is at most lambda*, and the run is not found unstable."""

from __future__ import annotations

__all__ = ["NotUnstable", "UpTo"]

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


@dataclass(frozen=True, slots=True)
class NotUnstable(Criterion):
    """The run is not found unstable.

    A policy may keep a limit on times while its queue grows without end: it serves whom it pleases, and a run ends. An
    undecided run counts, with a note: short runs are undecided near every capacity.
    """

    def __call__(self, run: Run) -> float:
        """Return 1 where the run is found unstable, else -1: the search then bisects."""
        return 1.0 if run.count and run.verdict().verdict == "unstable" else -1.0

    def describe(self) -> str:
        """Return the criterion in words."""
        return "not found unstable"
