"""A kernel's time against the tokens it was timed at."""

from __future__ import annotations

__all__ = ["Curve"]

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError

_CLOSE = 1.1


@dataclass(frozen=True, slots=True)
class Curve:
    """Times at sizes; proportional beyond the largest.

    Between two sizes at most a tenth apart the larger one's time holds: a kernel's staircase rises as soon as a tile
    is full, so a batch just above a tread already costs the next one. Between sizes further apart it is linear.

    Parameters
    ----------
    name
        Of the kernel, for messages.
    sizes, seconds
        Ascending sizes and the median time at each.
    """

    name: str
    sizes: Float[np.ndarray, "size"]
    seconds: Float[np.ndarray, "size"]

    @classmethod
    def of(cls, name: str, points: Iterable[tuple[float, float]]) -> Curve:
        """Return the curve of (size, seconds) pairs; repeated sizes give their median."""
        table: dict[float, list[float]] = {}
        for size, seconds in points:
            if not (np.isfinite(size) and np.isfinite(seconds)) or size < 0 or seconds < 0:
                raise InputError(
                    f"operator {name}: size {size!r} takes {seconds!r} s; expected finite numbers of 0 or more"
                )
            table.setdefault(float(size), []).append(float(seconds))
        if not table:
            raise InputError(f"operator {name} has no measurement; expected at least one size with its time")
        sizes = sorted(table)
        return cls(name, np.array(sizes), np.array([np.median(table[s]) for s in sizes]))

    def __call__(self, size: Float[np.ndarray, "point"]) -> Float[np.ndarray, "point"]:
        """Return the time at each size."""
        inside = np.interp(size, self.sizes, self.seconds)
        after = np.clip(np.searchsorted(self.sizes, size), 0, self.sizes.size - 1)
        before = np.maximum(after - 1, 0)
        close = (self.sizes[after] <= _CLOSE * self.sizes[before]) & (self.sizes[after] >= size)
        inside = np.where(close, self.seconds[after], inside)
        out: np.ndarray = np.where(size > self.sizes[-1], inside * size / self.sizes[-1], inside)
        return out
