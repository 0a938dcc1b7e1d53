r"""Che's approximation of a least-recently-used cache, and the exact answer for few items.

Items i are referenced by independent renewal processes of rate lambda_i with law F_i of the gaps. A cache of C items
keeps an item for the characteristic time T after its last reference, taken as the same constant for all:

    C = sum_i lambda_i integral_0^T (1 - F_i(t)) dt,    hit_i = F_i(T),    hit = sum_i lambda_i F_i(T) / sum_i lambda_i

(Che, Tung, Wang, IEEE JSAC 20(7), 2002; Fricker, Robert, Roberts, ITC 24, 2012, say why it is accurate). Poisson
references (the independent reference model) have F = 1 - exp(-lambda t), hence 1 - exp(-lambda_i T) in both places.
Gamma gaps of another variation bring bursts or regularity. Items that are popular for a while only are not renewal
processes: use `reuse.Reuse`, or `conversations.Conversations`, whose law of ages is exact.

The exact law under independent references is King's (IFIP Congress, 1971): the cache holds the first C different items
of the reversed reference string, so the probability of a set S is built up item by item,

    f(S) = sum over i in S of f(S - i) p_i / (1 - p(S - i)),     hit = sum over |S| = C of f(S) p(S).
"""

from __future__ import annotations

__all__ = ["Che", "che", "king"]

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Num

from tileq_theory.errors import InputError, nonnegative, positive, positive_int, row_of_numbers

_MOST_ITEMS = 18  # of the exact law: 2^18 sets
Number = TypeVar("Number", float, Fraction)


@dataclass(frozen=True, slots=True, eq=False)
class Che:
    """Answer of `che`.

    Parameters
    ----------
    characteristic
        T, in the unit of 1/rate; inf where all items fit.
    hit_share
        Share of references that hit.
    hits
        Probability of a hit of each item.
    """

    characteristic: float
    hit_share: float
    hits: Float[np.ndarray, "item"]


def che(rates: Sequence[float] | Num[np.ndarray, "item"], cache: float, *, scv: float = 1.0) -> Che:
    """Return Che's approximation of an LRU cache.

    Parameters
    ----------
    rates
        Reference rate (or popularity) of each item, 0 or more, not all 0.
    cache
        C, items that fit; a fraction is allowed.
    scv
        Squared coefficient of variation of the gaps between references to an item, above 0: 1 Poisson, larger for
        bursts.

    Raises
    ------
    InputError
        A rate below 0, none above 0, a size below 0.

    Examples
    --------
    >>> popularity = [0.5, 0.25, 0.125, 0.125]
    >>> round(che(popularity, 2).hit_share, 3), round(king(popularity, 2), 3)
    (0.617, 0.625)
    """
    rate = row_of_numbers("rates", rates)
    if rate.ndim != 1 or not np.isfinite(rate).all() or (rate < 0).any():
        wrong = next((r for r in rate.ravel() if not (np.isfinite(r) and r >= 0)), rate.tolist())
        raise InputError(f"rate is {wrong}; expected a row of finite numbers of 0 or more, one an item")
    size, variation = nonnegative("cache", cache), positive("scv", scv)
    asked = rate[rate > 0]
    if not asked.size:
        raise InputError("rates are all 0; expected at least one above 0")
    if size >= asked.size:
        return Che(float("inf"), 1.0, np.where(rate > 0, 1.0, 0.0))
    low, high = 0.0, 1.0 / float(asked.max())
    while _occupancy(asked, high, variation) < size:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _occupancy(asked, middle, variation) < size else (low, middle)
    hits = _gap_law(rate, high, variation)
    return Che(high, float(rate @ hits / rate.sum()), hits)


def _gap_law(rate: np.ndarray, time: float, scv: float) -> np.ndarray:
    """Return F_i(T)."""
    from scipy.special import gammainc

    shape = 1.0 / scv
    return np.asarray(-np.expm1(-rate * time) if scv == 1 else gammainc(shape, shape * rate * time))


def _occupancy(rate: np.ndarray, time: float, scv: float) -> float:
    """Return sum_i lambda_i integral_0^T (1 - F_i): lambda T (1 - F(T)) plus the size-biased law at T."""
    from scipy.special import gammainc, gammaincc

    if scv == 1:
        return float(-np.expm1(-rate * time).sum())
    shape = 1.0 / scv
    at = shape * rate * time
    return float((rate * time * gammaincc(shape, at) + gammainc(shape + 1, at)).sum())


def king(popularity: Sequence[Number], cache: int) -> Number:
    """Return the exact hit probability of an LRU cache under independent references, for at most 18 items.

    Fractions in, a fraction out.

    Examples
    --------
    >>> king([Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)], 1)
    Fraction(3, 8)
    """
    size = positive_int("cache", cache)
    if isinstance(popularity, str) or not hasattr(popularity, "__iter__"):
        raise InputError(f"popularity is {popularity!r}; expected a row of numbers, one an item")
    odd = next((p for p in popularity if not isinstance(p, Real)), None)
    if odd is not None or any(p is None for p in popularity):
        raise InputError(f"popularity has {odd!r}; expected a row of numbers, one an item")
    share = [p for p in popularity if p > 0]
    if any(p < 0 for p in popularity) or not share:
        raise InputError("popularity has a number below 0 or none above 0; expected shares of references")
    if len(share) > _MOST_ITEMS:
        raise InputError(f"{len(share)} items are given; expected at most {_MOST_ITEMS}: use che")
    total = sum(share)
    p = [x / total for x in share]
    if size >= len(p):
        return p[0] / p[0]
    sets: dict[int, Number] = {0: p[0] / p[0]}
    for _ in range(size):
        grown: dict[int, Number] = {}
        for held, weight in sets.items():
            left = 1 - _sum_of(p, held)
            for i, each in enumerate(p):
                if not held >> i & 1:
                    more = held | 1 << i
                    grown[more] = grown.get(more, 0 * each) + weight * each / left
        sets = grown
    zero = 0 * p[0]
    return sum((weight * _sum_of(p, held) for held, weight in sets.items()), zero)


def _sum_of(p: Sequence[Number], held: int) -> Number:
    return sum((x for i, x in enumerate(p) if held >> i & 1), 0 * p[0])
