r"""Certificates of stability and instability of a fluid model: `certify`.

In order, each proposal checked in fractions before it is believed:

1. a linear Lyapunov function (linear program);
2. a linear function that grows in every mode (linear program);
3. a cycle that comes back larger (exact path);
4. a maximum of 2, 3, ... linear functions (mixed-integer program).
"""

from __future__ import annotations

__all__ = ["certify"]

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tileq_theory.certificates.answer import Certificate, Cycle
from tileq_theory.certificates.cycle import growing_cycle
from tileq_theory.certificates.exact_check import check_cycle, check_growth, check_lyapunov, dot, falling
from tileq_theory.certificates.modes import FluidModes
from tileq_theory.certificates.programs import farkas_shares, growth_weights, linear_weights, piecewise_weights
from tileq_theory.errors import InputError, positive_int

Vector = tuple[Fraction, ...]
_SMALLEST_MARGIN = 1e-7  # below it a solver's answer is noise
_DENOMINATORS = (100, 10_000, 10**6, 10**9)


def certify(model: FluidModes, *, pieces: int = 2) -> Certificate:
    r"""Return a proof that a fluid model drains, or that it grows, or "undecided".

    Parameters
    ----------
    model
        Its modes.
    pieces
        Most linear functions in V(x) = max_j w_j x, 1 to 4.

    Raises
    ------
    InputError
        `pieces` outside its domain.

    References
    ----------
    Dai and Vande Vate, The stability of two-station multitype fluid networks, Operations Research 48, 2000, and
    Bertsimas, Gamarnik, Tsitsiklis, Annals of Applied Probability 6, 1996 (piecewise-linear functions, two stations);
    the choice of the falling functions by binaries is this library's own.

    Examples
    --------
    >>> from tileq_theory.certificates import FluidModes, Mode
    >>> queue = FluidModes(("work",), (Mode("busy", [Fraction(-1, 10)]),))
    >>> proof = certify(queue)
    >>> proof.verdict, proof.value([3])
    ('stable', Fraction(30, 1))
    """
    most = positive_int("pieces", pieces)
    if most > 4:
        raise InputError(f"pieces is {pieces}; expected at most 4")
    linear = _stable(model, 1)
    if linear is not None:
        return linear
    shares = _shares(model)
    direction = None if shares is None else _sum(model, shares)
    grown = _growing(model)
    if grown is not None:
        return Certificate("unstable", (), grown[0], None, grown[1], shares, direction)
    cycle = growing_cycle(model)
    if cycle is not None and check_cycle(model, *cycle):
        return Certificate("unstable", (), None, Cycle(*cycle), cycle[2] - 1, shares, direction)
    for count in range(2, most + 1):
        found = _stable(model, count)
        if found is not None:
            return Certificate("stable", found.weights, None, None, found.margin, shares, direction)
    return Certificate("undecided", (), None, None, Fraction(0), shares, direction)


def _stable(model: FluidModes, pieces: int) -> Certificate | None:
    """Return a Lyapunov certificate with this many functions, None where none was found and checked."""
    proposal = linear_weights(model) if pieces == 1 else piecewise_weights(model, pieces)
    if proposal is None or proposal[0] < _SMALLEST_MARGIN:
        return None
    scale = _scale(model)
    for denominator in _DENOMINATORS:
        weights = [_fractions(row, denominator) for row in np.atleast_2d(proposal[1])]
        rate = Fraction(proposal[0]).limit_denominator(10**9) * scale / 2
        weights = _repaired(model, weights, rate)
        margin = _margin(model, weights)
        if margin > 0:
            scaled = tuple(tuple(w / margin for w in row) for row in weights)
            if check_lyapunov(model, scaled):
                return Certificate("stable", scaled, None, None, margin / _largest(weights), None, None)
    return None


def _repaired(model: FluidModes, weights: list[Vector], rate: Fraction) -> list[Vector]:
    """Lower the weights that rounding lifted above the function that covers them; the margin pays for it."""
    rows = [list(row) for row in weights]
    for mode in model.modes:
        falls = [j for j, w in enumerate(rows) if dot(w, mode.drift) <= -rate]
        for i in set(range(len(rows))) - set(falls):
            near = [j for j in falls if all(rows[i][k] <= rows[j][k] + Fraction(1, 10**5) for k in mode.support)]
            for k in mode.support if near else ():
                rows[i][k] = min(rows[i][k], rows[near[0]][k])
    return [tuple(row) for row in rows]


def _margin(model: FluidModes, weights: Sequence[Vector]) -> Fraction:
    """Return the largest rate at which max_j w_j x falls in every mode (0 where it does not)."""
    slowest: Fraction | None = None
    for mode in model.modes:
        rates = {-dot(w, mode.drift) for w in weights}
        best = max((r for r in rates if r > 0 and falling(weights, mode, r) is not None), default=None)
        if best is None:
            return Fraction(0)
        slowest = best if slowest is None else min(slowest, best)
    return slowest or Fraction(0)


def _growing(model: FluidModes) -> tuple[Vector, Fraction] | None:
    """Return (v, margin) of a growth certificate, None where none was found and checked."""
    proposal = growth_weights(model)
    if proposal is None or proposal[0] < _SMALLEST_MARGIN:
        return None
    for denominator in _DENOMINATORS:
        weights = _fractions(proposal[1], denominator)
        margin = min(dot(weights, mode.drift) for mode in model.modes)
        if margin > 0:
            scaled = tuple(w / margin for w in weights)
            if check_growth(model, scaled):
                return scaled, margin / max(weights)
    return None


def _shares(model: FluidModes) -> Vector | None:
    """Return exact shares whose mean drift shrinks in no coordinate, None where rounding leaves none."""
    proposal = farkas_shares(model)
    if proposal is None:
        return None
    for denominator in _DENOMINATORS:
        rough = _fractions(proposal, denominator)
        total = sum(rough, Fraction(0))
        if total > 0:
            shares = tuple(y / total for y in rough)
            if min(_sum(model, shares)) >= 0:
                return shares
    return None


def _sum(model: FluidModes, shares: Vector) -> Vector:
    return tuple(dot(shares, column) for column in zip(*(mode.drift for mode in model.modes), strict=True))


def _fractions(row: np.ndarray, denominator: int) -> Vector:
    return tuple(max(Fraction(float(x)).limit_denominator(denominator), Fraction(0)) for x in row)


def _largest(weights: Sequence[Vector]) -> Fraction:
    return max(max(row) for row in weights)


def _scale(model: FluidModes) -> Fraction:
    return max(abs(d) for mode in model.modes for d in mode.drift)
