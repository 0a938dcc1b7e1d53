r"""The ratio of prefill to decode iterations as a small pair of whole numbers.

An iteration that holds p prefill and d decode tokens counts as p/(p + d) prefill and d/(p + d) decode iterations, so
that a mixed plan and the exclusive plan with the same tiles have the same ratio (RAD: x_p/x_d = (E[P]/b)/(E[O]/b)).

Running h prefill iterations per k decode iterations instead of r = x_p/x_d keeps the time, X_p t_p + X_d t_d, but moves
it; the slower side decides the rate:

    loss = 1 - min(X_p/x_p, X_d/x_d),   X_d = (x_p t_p + x_d t_d)/(h/k t_p + t_d),  X_p = (h/k) X_d
"""

from __future__ import annotations

__all__ = ["TileRatio", "best_rationals", "tile_ratio"]

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tileq_theory.capacity.answer import LevelUse
from tileq_theory.errors import nonnegative

_LARGEST = 10_000


@dataclass(frozen=True, slots=True)
class TileRatio:
    """h prefill iterations to k decode iterations, the exact ratio, and the share of lambda* that rounding it costs."""

    prefill_iterations: int
    decode_iterations: int
    exact: float
    loss: float

    @property
    def pair(self) -> tuple[int, int]:
        """(prefill iterations, decode iterations)."""
        return self.prefill_iterations, self.decode_iterations


def best_rationals(value: float, largest: int = _LARGEST) -> Iterator[Fraction]:
    """Yield the best rational approximations of `value` > 0 (first kind), each closer than all simpler ones.

    Examples
    --------
    >>> [str(f) for f in best_rationals(3.1135)][:4]
    ['3', '16/5', '19/6', '22/7']
    """
    rest = target = Fraction(value)
    last: Fraction | None = None
    error: Fraction | None = None
    h1, k1, h2, k2 = 1, 0, 0, 1  # the two convergents before the first: 1/0 and 0/1
    while True:
        whole = math.floor(rest)
        # intermediate fractions only count once they are closer than what came before
        for step in range(1, whole + 1) if k1 else [whole]:
            h, k = step * h1 + h2, step * k1 + k2
            if k == 0 or k > largest or h > largest:
                return
            candidate = Fraction(h, k)
            distance = abs(candidate - target)
            if error is None or distance < error:
                error = distance
                if h > 0 and candidate != last:
                    last = candidate
                    yield candidate
        h1, k1, h2, k2 = whole * h1 + h2, whole * k1 + k2, h1, k1
        if rest == whole:
            return
        rest = 1 / (rest - whole)


def tile_ratio(levels: Sequence[LevelUse], *, most_loss: float = 0.01) -> TileRatio:
    """Return the smallest pair whose loss against the optimum is at most `most_loss` (see the module's formula)."""
    allowed = nonnegative("most_loss", most_loss)
    x_p = x_d = time_p = time_d = 0.0
    for level in levels:
        share = level.prefill_tokens / (level.prefill_tokens + level.decode_tokens)
        x_p += share * level.iterations_per_s
        x_d += (1 - share) * level.iterations_per_s
        time_p += share * level.iterations_per_s * level.iteration_s
        time_d += (1 - share) * level.iterations_per_s * level.iteration_s
    if x_d <= 0:
        return TileRatio(1, 0, math.inf, 0.0)
    if x_p <= 0:
        return TileRatio(0, 1, 0.0, 0.0)
    exact = x_p / x_d
    t_p, t_d = time_p / x_p, time_d / x_d
    best: TileRatio | None = None
    # a ratio below 1 is approximated through its inverse, so that both sides may be the small one
    side = max(exact, 1 / exact)
    fractions = best_rationals(side, max(_LARGEST, math.floor(side)))  # 400,000 prefill iterations to 1 is an answer
    for fraction in fractions if exact >= 1 else (1 / f for f in fractions):
        ratio = float(fraction)
        decode = (time_p + time_d) / (ratio * t_p + t_d)
        loss = max(0.0, 1.0 - min(ratio * decode / x_p, decode / x_d))
        if best is None or loss < best.loss:
            best = TileRatio(fraction.numerator, fraction.denominator, exact, loss)
        if loss <= allowed:
            break
    assert best is not None  # the first fraction always yields a ratio
    return best
