r"""What a certificate must satisfy, checked in fractions, without the program that found it.

*Lyapunov function* V(x) = max_j w_j x. Along a fluid path V is differentiable almost everywhere, and there its
derivative is w_j dx/dt for any j that attains the maximum. So V falls at rate 1 or more wherever mode m is in force if
some set J of functions with w_j d_m <= -1 always contains one that attains it; for this it is enough that each w_i
outside J is at most some w_j of J on every coordinate of the mode's support. With w_j >= 0 and V > 0 off the origin the
path is at the origin no later than V(x(0)).

*Growth function* v >= 0 with v d_m >= 1 in every mode: v x grows without limit on every path.

*Growing cycle*: a path through the modes, each in force where it is used, from x to alpha x with alpha > 1.
"""

from __future__ import annotations

__all__ = ["check_cycle", "check_growth", "check_lyapunov", "dot", "falling"]

from collections.abc import Sequence
from fractions import Fraction

from tileq_theory.certificates.modes import FluidModes, Mode

Vector = tuple[Fraction, ...]


def dot(one: Sequence[Fraction], other: Sequence[Fraction]) -> Fraction:
    """Return the inner product."""
    return sum((a * b for a, b in zip(one, other, strict=True)), Fraction(0))


def falling(weights: Sequence[Vector], mode: Mode, rate: Fraction) -> set[int] | None:
    """Return J, the functions that fall at `rate` or more in the mode, if they cover it; else None."""
    falls = {j for j, w in enumerate(weights) if dot(w, mode.drift) <= -rate}
    others = set(range(len(weights))) - falls

    def covered(i: int) -> bool:
        return any(all(weights[i][k] <= weights[j][k] for k in mode.support) for j in falls)

    return falls if falls and all(covered(i) for i in others) else None


def check_lyapunov(model: FluidModes, weights: Sequence[Vector], rate: Fraction = Fraction(1)) -> bool:
    """Return True where max_j w_j x is a Lyapunov function that falls at `rate` in every mode."""
    if not weights or any(len(row) != model.size for row in weights):
        return False
    nonnegative = all(w >= 0 for row in weights for w in row)
    seen = set().union(*(mode.support for mode in model.modes))
    positive = all(any(row[k] > 0 for row in weights) for k in seen)
    return nonnegative and positive and all(falling(weights, mode, rate) is not None for mode in model.modes)


def check_growth(model: FluidModes, weights: Vector, rate: Fraction = Fraction(1)) -> bool:
    """Return True where v x grows at `rate` or more in every mode."""
    if len(weights) != model.size:
        return False
    return all(w >= 0 for w in weights) and all(dot(weights, mode.drift) >= rate for mode in model.modes)


def check_cycle(model: FluidModes, start: Vector, legs: Sequence[tuple[int, Fraction]], factor: Fraction) -> bool:
    """Return True where the legs (mode number, time in it) lead, in order, from x to factor*x with factor > 1.

    Inside each leg, ends excluded, the positive coordinates are exactly the mode's support: positive at both ends or
    at one of them, since the path is straight.
    """
    here = start
    if len(start) != model.size or not all(0 <= number < len(model.modes) for number, _ in legs):
        return False
    for number, length in legs:
        mode = model.modes[number]
        there = tuple(x + length * d for x, d in zip(here, mode.drift, strict=True))
        inside = frozenset(k for k in range(model.size) if here[k] + there[k] > 0)
        if length <= 0 or min(there) < 0 or inside != mode.support:
            return False
        here = there
    return factor > 1 and any(x > 0 for x in start) and here == tuple(factor * x for x in start)
