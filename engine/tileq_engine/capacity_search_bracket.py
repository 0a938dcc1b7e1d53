r"""The search of one replication: bracket, narrow, probe; every rate is simulated once.

The criterion's margin changes sign at the capacity. Doubling or halving finds a bracket; secant steps in log rate, held
inside its middle four fifths, alternate with bisection, so that the width falls at least as fast as by bisection every
second step; probes beyond the bracket look for violations of monotonicity.
"""

from __future__ import annotations

__all__ = ["BracketSearch"]

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tileq_engine.capacity_search_criteria import Criterion
from tileq_engine.experiment_store import ResultStore
from tileq_engine.requests import ClockError
from tileq_engine.run import REJECT_REASONS, Run

MOST_DOUBLINGS = 40
_PROBES = (1.05, 1.2)


@dataclass(slots=True)
class BracketSearch:
    """State of one replication: its evaluations so far, each rate simulated once."""

    simulate: Callable[[float], Run]
    criterion: Criterion
    tolerance: float
    most_runs: int
    allowed_rejections: float
    store: ResultStore
    replication: int
    tried: dict[float, float] = field(default_factory=dict)
    order: list[float] = field(default_factory=list)
    verdicts: dict[float, str] = field(default_factory=dict)
    rejections: str = ""
    hopeless: bool = False

    def margin(self, rate: float) -> float:
        """Return the margin at `rate`, from the store or a simulation; inf when too many requests are rejected."""
        point = {"replication": self.replication, "rate_per_s": rate}
        kept = self.store.read(point)
        if kept is None:
            kept = self._evaluate(rate)
            self.store.write(point, kept)
        self.verdicts[rate] = kept["verdict"]
        if kept["rejections"]:
            self.rejections, self.hopeless = kept["rejections"], kept["hopeless"]
        return float(kept["margin"])

    def _evaluate(self, rate: float) -> dict[str, Any]:
        run = self.simulate(rate)
        verdict = run.verdict().verdict if run.count else ""
        if run.rejected_share <= self.allowed_rejections:
            return {"margin": repr(float(self.criterion(run))), "verdict": verdict, "rejections": "", "hopeless": False}
        reasons = run.rejections()
        text = ", ".join(f"{count} of {run.count} {reason}" for reason, count in reasons.items())
        # who is too long for the settings is rejected at every rate: no use in trying others
        hopeless = REJECT_REASONS[-1] not in reasons
        return {"margin": "inf", "verdict": verdict, "rejections": text, "hopeless": hopeless}

    def met(self, rate: float) -> bool:
        """Return whether the criterion holds at `rate`, simulating it if that was not done."""
        if rate not in self.tried:
            self.tried[rate] = self.margin(rate)
            self.order.append(rate)
        return self.tried[rate] <= 0.0

    @property
    def spent(self) -> bool:
        """Whether the allowance of simulations is used up, or more of them can change nothing."""
        return self.hopeless or len(self.order) >= self.most_runs

    def bracket(self, start: float) -> tuple[float, float]:
        """Return (rate that met, rate that missed) around `start` by doubling or halving; 0 or inf where none."""
        rate, step = start, 2.0 if self.met(start) else 0.5
        for _ in range(MOST_DOUBLINGS):
            if self.spent:
                break
            following = rate * step
            try:
                met = self.met(following)
            except ClockError:
                if step > 1:
                    raise
                break  # requests so rare that the clock cannot hold them, and still the objective is missed
            if met != (step > 1):
                return (rate, following) if step > 1 else (following, rate)
            rate = following
        return (rate, math.inf) if step > 1 else (0.0, rate)

    def narrow(self, low: float, high: float) -> tuple[float, float]:
        """Shrink a bracket to the tolerance: secant in log rate inside the middle four fifths, then the middle."""
        by_secant = True
        while high > low * (1.0 + self.tolerance) and not self.spent:
            left, right = math.log(low), math.log(high)
            middle = 0.5 * (left + right)
            one, two = self.tried[low], self.tried[high]
            if by_secant and math.isfinite(one) and math.isfinite(two) and two > one:
                tenth = 0.1 * (right - left)
                middle = min(max(left - one * (right - left) / (two - one), left + tenth), right - tenth)
            by_secant = not by_secant
            rate = math.exp(middle)
            low, high = (rate, high) if self.met(rate) else (low, rate)
        return low, high

    def probe(self, low: float, high: float) -> tuple[float, float]:
        """Try rates beyond the bracket; return it, or a higher one when the criterion holds above."""
        for factor in _PROBES:
            if self.spent:
                return low, high
            self.met(low / factor)
            if self.met(high * factor):
                above = [r for r, m in self.tried.items() if r > high * factor and m > 0.0]
                met, missed = high * factor, min(above, default=math.inf)
                if math.isinf(missed):
                    met, missed = self.bracket(met)
                return (met, missed) if math.isinf(missed) else self.probe(*self.narrow(met, missed))
        return low, high

    def violations(self) -> int:
        """Return how many rates missed the criterion although a higher one met it."""
        best = max((r for r, m in self.tried.items() if m <= 0.0), default=0.0)
        return sum(1 for r, m in self.tried.items() if m > 0.0 and r < best)
