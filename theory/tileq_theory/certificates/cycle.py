r"""Fluid paths followed exactly, in search of one that comes back larger.

From x the next mode is one whose support is that of x + s d for small s > 0. It runs until a coordinate of its support
empties. A path that starts with one coordinate alone and comes back to that coordinate alone is similar to itself: if
it is larger by alpha > 1, the fluid model diverges, alpha-fold each cycle.
"""

from __future__ import annotations

__all__ = ["growing_cycle", "next_modes", "run_mode"]

from dataclasses import dataclass
from fractions import Fraction

from tileq_theory.certificates.modes import FluidModes, Mode

Vector = tuple[Fraction, ...]
_MOST_LEGS = 60
_MOST_PATHS = 400


def next_modes(model: FluidModes, state: Vector) -> list[int]:
    """Return the modes that can be in force just after `state`."""
    return [number for number, mode in enumerate(model.modes) if _enters(mode, state)]


def _enters(mode: Mode, state: Vector) -> bool:
    after = frozenset(k for k, (x, d) in enumerate(zip(state, mode.drift, strict=True)) if x > 0 or d > 0)
    steady = all(d >= 0 for x, d in zip(state, mode.drift, strict=True) if x == 0)
    return steady and after == mode.support


def run_mode(mode: Mode, state: Vector) -> tuple[Fraction, Vector] | None:
    """Return (time, state) when the first coordinate empties, None if none ever does."""
    times = [x / -d for x, d in zip(state, mode.drift, strict=True) if d < 0 and x > 0]
    if not times:
        return None
    length = min(times)
    return length, tuple(x + length * d for x, d in zip(state, mode.drift, strict=True))


@dataclass(frozen=True, slots=True)
class _Path:
    start: Vector
    here: Vector
    legs: tuple[tuple[int, Fraction], ...]


def growing_cycle(model: FluidModes) -> tuple[Vector, tuple[tuple[int, Fraction], ...], Fraction] | None:
    """Return (x, legs, alpha) of a path from a single coordinate back to it, larger; None where none was met."""
    zero = (Fraction(0),) * model.size
    open_ = []
    for k in range(model.size):
        start = tuple(Fraction(int(j == k)) for j in range(model.size))
        open_.append(_Path(start, start, ()))
    for _ in range(_MOST_PATHS):
        if not open_:
            return None
        path = open_.pop(0)
        for number in next_modes(model, path.here):
            end = run_mode(model.modes[number], path.here)
            if end is None or end[1] == zero:
                continue
            length, there = end
            legs = (*path.legs, (number, length))
            positive = [k for k, x in enumerate(there) if x > 0]
            if len(positive) == 1 and path.start[positive[0]] == 1:
                if there[positive[0]] > 1:
                    return path.start, legs, there[positive[0]]
                continue  # back home and not larger: nothing new follows
            if len(legs) < _MOST_LEGS:
                open_.append(_Path(path.start, there, legs))
    return None
