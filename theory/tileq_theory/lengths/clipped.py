"""Any law, cut to a range."""

from __future__ import annotations

__all__ = ["Clipped"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError
from tileq_theory.lengths.base import LengthLaw
from tileq_theory.lengths.checks import token_count


@dataclass(frozen=True, slots=True)
class Clipped(LengthLaw):
    """min(max(X, low), high): shorter lengths are raised to low, longer ones cut to high (atoms at both).

    Parameters
    ----------
    law
        Law of X.
    low, high
        Ends of the range, tokens; high None: not cut.

    Raises
    ------
    InputError
        For low < 1 or high < low.

    Examples
    --------
    >>> from tileq_theory.lengths import Uniform
    >>> round(Clipped(Uniform(1, 10), high=4).mean(), 12)
    3.4
    """

    law: LengthLaw
    low: int = 1
    high: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", token_count("low", self.low))
        if self.high is not None:
            object.__setattr__(self, "high", token_count("high", self.high))
            if self.high < self.low:
                raise InputError(f"clipping range is {self.low}..{self.high}; expected low <= high")

    @property
    def _top(self) -> float:
        return math.inf if self.high is None else float(self.high)

    @property
    def longest(self) -> float:
        """The law's own longest length, within the range."""
        return max(float(self.low), min(self._top, self.law.longest))

    @property
    def shortest(self) -> float:
        """The law's own shortest length, within the range."""
        return max(float(self.low), min(self._top, self.law.shortest))

    def survival(self, tokens: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return P(X > k) at each k."""
        k = np.floor(tokens)
        return np.asarray(np.where(k < self.low, 1.0, np.where(k < self._top, self.law.survival(tokens), 0.0)))

    def tail_sums(self, step: int, first: int = 0, last: float = math.inf) -> tuple[float, float]:
        """Return the law's tail sums with S = 1 below low and S = 0 from high on."""
        stop = min(last, math.ceil(self._top / step) if self.high is not None else math.inf)
        start = int(min(max(first, -(-self.low // step)), max(stop, first)))
        below = max(start - first, 0)
        ones = (float(below), below * (first + start - 1) / 2)
        rest = self.law.tail_sums(step, start, stop) if stop > start else (0.0, 0.0)
        return ones[0] + rest[0], ones[1] + rest[1]

    def quantile(self, probability: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
        """Return the law's quantile, within the range."""
        return np.asarray(np.clip(self.law.quantile(probability), float(self.low), self._top))

    def sample(self, rng: np.random.Generator, size: int) -> Int[np.ndarray, "request"]:
        """Return `size` independent draws, int64."""
        return np.asarray(np.clip(self.law.sample(rng, size), self.low, self.high))

    def describe(self) -> str:
        """Return one short line."""
        top = "" if self.high is None else str(self.high)
        return f"({self.law.describe()}) cut to {self.low}..{top} (mean {self.mean():.6g})"
