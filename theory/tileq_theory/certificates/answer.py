"""What the certificate program answers."""

from __future__ import annotations

__all__ = ["Certificate", "Cycle", "Verdict"]

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tileq_theory.certificates.exact_check import check_cycle, check_growth, check_lyapunov, dot
from tileq_theory.certificates.modes import FluidModes, Number, exact
from tileq_theory.errors import InputError

Verdict = Literal["stable", "unstable", "undecided"]


@dataclass(frozen=True, slots=True)
class Cycle:
    """A fluid path that comes back `factor` times as large.

    Parameters
    ----------
    start
        x, where it starts.
    legs
        (mode number, time in it), in order.
    factor
        alpha > 1: the path ends in alpha x.
    """

    start: tuple[Fraction, ...]
    legs: tuple[tuple[int, Fraction], ...]
    factor: Fraction

    def path(self, model: FluidModes) -> list[tuple[Fraction, tuple[Fraction, ...]]]:
        """Return (time, state) at the corners of one cycle."""
        points = [(Fraction(0), self.start)]
        for number, length in self.legs:
            time, here = points[-1]
            drift = model.modes[number].drift
            points.append((time + length, tuple(x + length * d for x, d in zip(here, drift, strict=True))))
        return points


@dataclass(frozen=True, slots=True)
class Certificate:
    """A verdict on a fluid model, with the object that proves it.

    Parameters
    ----------
    verdict
        "stable", "unstable", or "undecided" where neither was proved.
    weights
        "stable": rows w_j of V(x) = max_j w_j x, which falls at 1 or more a unit of time in every mode.
    growth
        "unstable": v >= 0 with v d >= 1 in every mode, or None.
    cycle
        "unstable": a path that grows, or None.
    margin
        "stable": the rate at which V falls when its largest weight is 1; "unstable" by growth: at which v x then grows;
        by a cycle: alpha - 1; "undecided": 0.
    shares, direction
        Shares of time over the modes and sum of shares times drifts, no coordinate of which shrinks: why no linear
        function can do. None where there is a linear one, or none was found exactly.
    """

    verdict: Verdict
    weights: tuple[tuple[Fraction, ...], ...]
    growth: tuple[Fraction, ...] | None
    cycle: Cycle | None
    margin: Fraction
    shares: tuple[Fraction, ...] | None
    direction: tuple[Fraction, ...] | None

    def value(self, state: Sequence[Number]) -> Fraction:
        """Return V(x), also the longest time in which the fluid drains from x ("stable" only)."""
        if self.verdict != "stable":
            raise InputError(f"the verdict is {self.verdict}; expected 'stable': there is no Lyapunov function")
        x = [exact(f"state[{k}]", s) for k, s in enumerate(state)]
        if len(x) != len(self.weights[0]) or min(x) < 0:
            raise InputError(f"state is {list(state)}; expected {len(self.weights[0])} numbers of 0 or more")
        return max(dot(w, x) for w in self.weights)

    def verify(self, model: FluidModes) -> bool:
        """Return True where the object proves the verdict, in exact arithmetic ("undecided" claims nothing: True)."""
        if self.direction is not None and not self._direction_holds(model):
            return False
        if self.verdict == "stable":
            return check_lyapunov(model, self.weights)
        if self.verdict == "unstable":
            grows = self.growth is not None and check_growth(model, self.growth)
            loops = self.cycle is not None and check_cycle(model, self.cycle.start, self.cycle.legs, self.cycle.factor)
            return grows or loops
        return True

    def _direction_holds(self, model: FluidModes) -> bool:
        if self.shares is None or self.direction is None or len(self.shares) != len(model.modes):
            return False
        if min(self.shares) < 0 or sum(self.shares) != 1:
            return False
        columns = zip(*(mode.drift for mode in model.modes), strict=True)
        total = tuple(dot(self.shares, column) for column in columns)
        return total == self.direction and min(total) >= 0

    def to_dict(self) -> dict[str, object]:
        """Return the certificate as plain data, fractions as strings."""

        def text(row: tuple[Fraction, ...] | None) -> list[str] | None:
            return None if row is None else [str(x) for x in row]

        cycle = None
        if self.cycle is not None:
            legs = [[number, str(length)] for number, length in self.cycle.legs]
            cycle = {"start": text(self.cycle.start), "legs": legs, "factor": str(self.cycle.factor)}
        return {
            "verdict": self.verdict,
            "weights": [text(w) for w in self.weights],
            "growth": text(self.growth),
            "cycle": cycle,
            "margin": float(self.margin),
            "shares": text(self.shares),
            "direction": text(self.direction),
        }
