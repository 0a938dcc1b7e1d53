r"""Fluid modes: which way the state drifts, and where.

A policy's fluid model is a finite set of modes. In mode m the state x >= 0 moves with the constant drift d_m, and the
mode can only be in force where the positive coordinates of x are exactly its support. Outside a bounded set that is the
whole of the policy: what happens on a smaller scale (a batch that is not full, a queue of a few requests) is gone in
the fluid limit.

Numbers are kept as fractions: a float is taken for the binary fraction that it is, so that what is proved of the modes
is proved of the numbers that were given.
"""

from __future__ import annotations

__all__ = ["FluidModes", "Mode", "exact"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tileq_theory.errors import InputError

Number = int | float | Fraction


def exact(name: str, value: Number) -> Fraction:
    """Return a number as the fraction it is; anything not finite raises `InputError`."""
    if isinstance(value, (int, Fraction)) and type(value) is not bool:
        return Fraction(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; expected a number") from None
    if isinstance(value, bool) or not math.isfinite(number):
        raise InputError(f"{name} is {value!r}; expected a finite number")
    return Fraction(number)


@dataclass(frozen=True, slots=True, init=False)
class Mode:
    """One mode of a fluid model.

    Parameters
    ----------
    name
        For people.
    drift
        d, change of each coordinate a unit of time.
    support
        Coordinates that are positive while the mode is in force; None: all of them may be (a mode that does not ask).

    Raises
    ------
    InputError
        No coordinate, a number that is not finite, a support outside the coordinates.
    """

    name: str
    drift: tuple[Fraction, ...]
    support: frozenset[int]

    def __init__(
        self, name: str, drift: Sequence[Number], support: Sequence[int] | frozenset[int] | None = None
    ) -> None:
        if len(drift) == 0:
            raise InputError(f"mode {name!r} has no coordinate; expected at least one")
        values = tuple(exact(f"drift[{k}] of mode {name!r}", d) for k, d in enumerate(drift))
        inside = frozenset(range(len(values)) if support is None else support)
        if not inside <= frozenset(range(len(values))):
            raise InputError(
                f"support of mode {name!r} is {sorted(inside)}; expected numbers from 0 to {len(values) - 1}"
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "drift", values)
        object.__setattr__(self, "support", inside)


@dataclass(frozen=True, slots=True)
class FluidModes:
    """The modes of a policy.

    Parameters
    ----------
    coordinates
        Names of the state's coordinates, with units.
    modes
        At least one; each has as many coordinates.
    """

    coordinates: tuple[str, ...]
    modes: tuple[Mode, ...]

    def __post_init__(self) -> None:
        if not self.modes:
            raise InputError("no mode given; expected at least one")
        for mode in self.modes:
            if len(mode.drift) != len(self.coordinates):
                raise InputError(
                    f"mode {mode.name!r} has {len(mode.drift)} coordinates; expected {len(self.coordinates)} "
                    f"({', '.join(self.coordinates)})"
                )

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)
