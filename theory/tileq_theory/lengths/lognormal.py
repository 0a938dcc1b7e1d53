r"""Lognormal lengths, rounded to whole tokens."""

from __future__ import annotations

__all__ = ["LogNormal"]

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError, finite, nonnegative, positive
from tileq_theory.lengths.base import LengthLaw
from tileq_theory.lengths.checks import LARGEST_TOKENS, token_count

_DIRECT = 2**15  # terms summed one by one; beyond them Euler-Maclaurin
_REACH = 9.0  # standard deviations; the normal tail beyond is 1e-19
_NODES = 20


@dataclass(frozen=True, slots=True)
class LogNormal(LengthLaw):
    r"""X = nearest whole number of exp(mu + sigma Z), Z standard normal, cut to low..high.

    The moments are those of the whole-number law: E[X] = sum S(k), with S(k) = Phi((mu - ln(k + 1/2))/sigma). The
    first 2^15 terms are summed one by one, the rest by the Euler-Maclaurin formula with Gauss-Legendre integrals,
    so no tail is cut off; relative error below 1e-11. They differ from the continuous moments
    exp(mu + sigma^2/2), exp(2 mu + 2 sigma^2) by the rounding alone: E[X^2] by about 1/12, and by what low and
    high cut.

    Parameters
    ----------
    mu, sigma
        Mean and standard deviation of the logarithm of the length (natural logarithm); sigma >= 0.
    low, high
        Shortest and longest length, tokens; shorter and longer ones are set to it. high None: unbounded.

    Raises
    ------
    InputError
        For sigma < 0, low < 1, high < low, or a second moment that no float holds.

    Examples
    --------
    >>> round(LogNormal(7, 0.7).mean(), 3)
    1401.082
    """

    mu: float
    sigma: float
    low: int = 1
    high: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", finite("mu", self.mu))
        object.__setattr__(self, "sigma", nonnegative("sigma", self.sigma))
        object.__setattr__(self, "low", token_count("low", self.low))
        if self.high is not None:
            object.__setattr__(self, "high", token_count("high", self.high))
            if self.high < self.low:
                raise InputError(f"lognormal range is {self.low}..{self.high}; expected low <= high")
        elif self.mu + self.sigma**2 > 80 or self.mu > 34:
            raise InputError(
                f"lognormal mu {self.mu:g}, sigma {self.sigma:g} has moments beyond any token count; set high"
            )

    @classmethod
    def from_median_cv(cls, median: float, cv: float, low: int = 1, high: int | None = None) -> LogNormal:
        """Return the law whose unrounded form has this median (tokens) and coefficient of variation."""
        return cls(math.log(positive("median", median)), _sigma_of_cv(cv), low, high)

    @classmethod
    def from_mean_cv(cls, mean: float, cv: float, low: int = 1, high: int | None = None) -> LogNormal:
        """Return the law whose unrounded form has this mean (tokens) and coefficient of variation."""
        sigma = _sigma_of_cv(cv)
        return cls(math.log(positive("mean", mean)) - sigma**2 / 2, sigma, low, high)

    @classmethod
    def from_percentiles(cls, p50: float, p99: float, low: int = 1, high: int | None = None) -> LogNormal:
        """Return the law whose unrounded form has this median and 99th percentile (tokens)."""
        if positive("p99", p99) < positive("p50", p50):
            raise InputError(f"p50 is {p50:g} and p99 is {p99:g}; expected p50 <= p99")
        return cls(math.log(p50), math.log(p99 / p50) / 2.3263478740408408, low, high)  # Phi^-1(0.99)

    @property
    def longest(self) -> float:
        """`high`, or inf; what the median rounds to when sigma is 0."""
        top = math.inf if self.high is None else float(self.high)
        if self.sigma == 0:
            return max(float(self.low), min(top, math.floor(math.exp(min(self.mu, 700.0)) + 0.5)))
        return top

    @property
    def shortest(self) -> float:
        """`low`, which the normal's endless tail reaches with some probability; the one length when sigma is 0."""
        return self.longest if self.sigma == 0 else float(self.low)

    def survival(self, tokens: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return P(X > k) at each k."""
        k = np.maximum(np.floor(tokens), 0.0)
        tail = self._tail(k + 0.5)
        return np.asarray(np.where(k < self.low, 1.0, np.where(k < self.longest, tail, 0.0)))

    def tail_sums(self, step: int, first: int = 0, last: float = math.inf) -> tuple[float, float]:
        """Return the sums of S(j*step) and of j*S(j*step) over first <= j < last."""
        if self.sigma == 0:
            return _ones(first, min(last, math.ceil(self.longest / step)))
        return _lognormal_sums(self, step, first, last)

    def _tail(self, tokens: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return P(exp(mu + sigma Z) >= y) at each y > 0."""
        from scipy.special import ndtr

        if self.sigma == 0:
            return np.asarray((self.mu >= np.log(tokens)).astype(float))
        return np.asarray(ndtr((self.mu - np.log(tokens)) / self.sigma))

    def quantile(self, probability: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
        """Return the smallest k with P(X <= k) >= p."""
        from scipy.special import ndtri

        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.zeros_like(probability) if self.sigma == 0 else self.sigma * ndtri(probability)
            level = np.exp(self.mu + spread)
        return np.asarray(np.clip(np.ceil(level - 0.5), float(self.low), self.longest))

    def sample(self, rng: np.random.Generator, size: int) -> Int[np.ndarray, "request"]:
        """Return `size` independent draws, int64."""
        with np.errstate(over="ignore"):
            draw = np.floor(np.exp(self.mu + self.sigma * rng.standard_normal(size)) + 0.5)
        return np.asarray(np.clip(draw, self.low, min(self.longest, float(LARGEST_TOKENS))).astype(np.int64))

    def describe(self) -> str:
        """Return one short line."""
        top = "" if self.high is None else f", at most {self.high}"
        return f"lognormal mu {self.mu:g} sigma {self.sigma:g}{top} (mean {self.mean():.6g})"


def _sigma_of_cv(cv: float) -> float:
    return math.sqrt(math.log1p(nonnegative("cv", cv) ** 2))


def _ones(first: int, last: float) -> tuple[float, float]:
    """Return the number and the sum of the whole j with first <= j < last."""
    count = max(last - first, 0.0)
    return count, count * (first + last - 1) / 2 if count else 0.0


@lru_cache(maxsize=4096)
def _lognormal_sums(law: LogNormal, step: int, first: int, last: float) -> tuple[float, float]:
    """Return the two sums: ones below the law's reach, single terms, then Euler-Maclaurin."""
    lowest = max(float(law.low), math.floor(math.exp(law.mu - _REACH * law.sigma)))
    # the second moment lives 2 sigma higher in the normal's scale
    reach = law.mu + (_REACH + 2 * law.sigma) * law.sigma
    highest = max(float(law.low), min(law.longest, math.ceil(math.exp(min(reach, 700.0)))))
    stop = min(last, math.ceil(highest / step))
    start = min(max(first, math.ceil(lowest / step)), stop)
    middle = min(start + _DIRECT, stop)
    zeroth, rising = _ones(first, start)
    j = np.arange(start, middle, dtype=float)
    terms = law._tail(j * step + 0.5)
    smooth = _euler_maclaurin(law, step, float(middle), float(stop)) if stop > middle else (0.0, 0.0)
    return zeroth + float(terms.sum()) + smooth[0], rising + float((j * terms).sum()) + smooth[1]


def _euler_maclaurin(law: LogNormal, step: int, first: float, last: float) -> tuple[float, float]:
    """Return sum f(j) and sum j f(j), f(j) = P(Y >= j*step + 1/2), first <= j < last, by integrals and end terms.

    sum_{a <= j < b} h(j) = int_a^b h - [h]/2 + [h']/12 - ...: after 2^15 terms the next one is below 1e-12.
    """
    start, stop = math.log(first * step + 0.5), math.log(last * step + 0.5)
    panels = max(1, math.ceil((stop - start) / min(law.sigma, 0.5)))
    node, weight = np.polynomial.legendre.leggauss(_NODES)
    half = (stop - start) / (2 * panels)
    centres = start + half * (2 * np.arange(panels) + 1)
    y = np.exp((centres[:, None] + half * node).ravel())
    measure = np.tile(half * weight, panels) * y * law._tail(y) / step
    j = (y - 0.5) / step
    ends = np.array([first, last])
    y = ends * step + 0.5
    f = law._tail(y)
    z = (np.log(y) - law.mu) / law.sigma
    slope = -step * np.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * law.sigma * y)
    zeroth = float(measure.sum()) - float(f[1] - f[0]) / 2 + float(slope[1] - slope[0]) / 12
    h, rise = ends * f, f + ends * slope
    first_moment = float((j * measure).sum()) - float(h[1] - h[0]) / 2 + float(rise[1] - rise[0]) / 12
    return zeroth, first_moment
