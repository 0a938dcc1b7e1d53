r"""Geometric lengths, plain and censored."""

from __future__ import annotations

__all__ = ["Geometric"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError, finite, positive
from tileq_theory.lengths.base import LengthLaw
from tileq_theory.lengths.checks import LARGEST_TOKENS, token_count

_CERTAIN = -1500.0  # exp of it is 0: X = 1 for sure


def power_sums(log_q: float, count: float) -> tuple[float, float]:
    """Return sum_{j < n} Q^j and sum_{j < n} j Q^j for Q = exp(log_q) < 1, n whole or inf.

    For infinite n the closed forms 1/(1 - Q) and Q/(1 - Q)^2; for finite n doubling, S(2n) = S(n)(1 + Q^n) and
    T(2n) = T(n) + Q^n (T(n) + n S(n)), whose terms are all positive: no cancellation, however close Q is to 1.
    """
    if math.isinf(count):
        rest = -math.expm1(log_q)
        return 1 / rest, math.exp(log_q) / rest**2
    zeroth, first, done = 0.0, 0.0, 0
    for bit in bin(int(count))[2:] if count > 0 else "":
        ratio = math.exp(log_q * done)
        zeroth, first, done = zeroth * (1 + ratio), first + ratio * (first + done * zeroth), 2 * done
        if bit == "1":
            term = math.exp(log_q * done)
            zeroth, first, done = zeroth + term, first + done * term, done + 1
    return zeroth, first


@dataclass(frozen=True, slots=True, init=False)
class Geometric(LengthLaw):
    r"""P(X > k) = q^k for k < cap, and P(X = cap) takes the rest: min(Y, cap) of a geometric Y on {1, 2, ...}.

    Parameters
    ----------
    mean
        E[Y] = 1/(1 - q) of the law without its cap, tokens, at least 1. Give this or `p`.
    p
        Success probability 1 - q in (0, 1].
    cap
        Longest length, tokens; longer ones are cut to it (an atom at the cap). None: unbounded.

    Raises
    ------
    InputError
        When both or neither of `mean` and `p` are given, or one lies outside its domain.

    Examples
    --------
    >>> Geometric(mean=200).mean()
    200.0

    RAD's reference outputs min(floor(Exp(mean 200)) + 1, 512) (arXiv 2508.01002):

    >>> round(Geometric.floor_exponential(200, cap=512).mean(), 5)
    185.00078
    """

    log_q: float
    cap: int | None

    def __init__(self, mean: float | None = None, p: float | None = None, cap: int | None = None) -> None:
        if (mean is None) == (p is None):
            raise InputError("geometric law: give either its mean or its success probability p")
        success = finite("p", p) if p is not None else 1 / _mean_of(mean)
        if not 0 < success <= 1:
            raise InputError(f"geometric p is {success!r}; expected a probability in (0, 1]")
        self._set(math.log1p(-success) if success < 1 else _CERTAIN, cap)

    def _set(self, log_q: float, cap: int | None) -> None:
        limit = None if cap is None else token_count("cap", cap)
        object.__setattr__(self, "log_q", max(log_q, _CERTAIN))
        object.__setattr__(self, "cap", 1 if log_q <= _CERTAIN else limit)

    @classmethod
    def floor_exponential(cls, mean: float, cap: int | None = None) -> Geometric:
        """Return the law of min(floor(E) + 1, cap), E exponential of `mean` tokens: q = exp(-1/mean)."""
        law = cls(p=1.0)
        law._set(-1 / positive("mean", mean), cap)
        return law

    @property
    def longest(self) -> float:
        """The cap, or inf."""
        return math.inf if self.cap is None else float(self.cap)

    @property
    def shortest(self) -> float:
        """1."""
        return 1.0

    def survival(self, tokens: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return P(X > k) at each k."""
        k = np.maximum(np.floor(tokens), 0.0)
        return np.asarray(np.where(k < self.longest, np.exp(self.log_q * k), 0.0))

    def tail_sums(self, step: int, first: int = 0, last: float = math.inf) -> tuple[float, float]:
        """Return the sums of q^(j*step) and of j q^(j*step) over first <= j < last, j*step < cap."""
        stop = last if self.cap is None else min(last, -(-self.cap // step))
        if stop <= first:
            return 0.0, 0.0
        scale = math.exp(self.log_q * step * first)
        zeroth, rising = power_sums(self.log_q * step, stop - first)
        return scale * zeroth, scale * (rising + first * zeroth)

    def quantile(self, probability: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
        """Return the smallest k with 1 - q^k >= p."""
        with np.errstate(divide="ignore"):
            level = np.log1p(-np.asarray(probability, dtype=float)) / self.log_q
        return np.asarray(np.clip(np.ceil(level * (1 - 4e-16)), 1.0, self.longest))

    def sample(self, rng: np.random.Generator, size: int) -> Int[np.ndarray, "request"]:
        """Return `size` independent draws, int64."""
        top = LARGEST_TOKENS if self.cap is None else self.cap
        draw = np.floor(rng.standard_exponential(size) / -self.log_q) + 1
        return np.asarray(np.minimum(draw, float(top)).astype(np.int64))

    def describe(self) -> str:
        """Return one short line."""
        cap = "" if self.cap is None else f", cut at {self.cap}"
        return f"geometric{cap} (mean {self.mean():.6g})"


def _mean_of(mean: float | None) -> float:
    value = finite("mean", mean if mean is not None else math.nan)
    if value < 1:
        raise InputError(f"geometric mean is {value!r}; expected 1 token or more")
    return value
