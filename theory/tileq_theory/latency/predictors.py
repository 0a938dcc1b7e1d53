r"""Predictors of sizes: the law of the predicted size Y given the true size x, both in seconds.

A predictor is a conditional density k(y | x) with its distribution function; together with the law of sizes it is the
joint law g(x, y) of the survey by Mitzenmacher and Shahout (arXiv 2503.07545). Their exponential predictions are
`ExponentialPrediction`; `LogNormalPrediction` is multiplicative noise. A predictor with finitely many answers (one bit,
buckets) is not a density: see `one_bit`.
"""

from __future__ import annotations

__all__ = ["ExponentialPrediction", "LogNormalPrediction", "Predictor"]

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, positive
from tileq_theory.latency.quadrature import gauss

Table = Float[np.ndarray, "..."]


class Predictor(ABC):
    """Law of Y given x; `y` and `x` broadcast, both above 0."""

    __slots__ = ()

    @abstractmethod
    def density(self, y: Table, x: Table) -> Table:
        """Return k(y | x), per second."""

    @abstractmethod
    def cdf(self, y: Table, x: Table) -> Table:
        """Return P(Y <= y | x)."""

    @property
    @abstractmethod
    def spread(self) -> tuple[float, float]:
        """Factors below and above x between which Y/x lies but for a probability of about 1e-15."""

    @property
    def panel_ratio(self) -> float:
        """Ratio of right to left edge of a quadrature panel that resolves the density."""
        return 1.6

    @abstractmethod
    def sample(self, x: Float[np.ndarray, "job"], rng: np.random.Generator) -> Float[np.ndarray, "job"]:
        """Return one prediction for each true size."""

    def overrun(self, y: Table, x: Table) -> Table:
        """Return E[((x - (Y - y))^+)^2; Y > y | x]: the square of what is left when rank y is reached.

        By Gauss-Legendre quadrature over s in (0, x) of (x - s)^2 k(y + s | x), in pieces of a panel's width.
        """
        base, weights = gauss()
        pieces = max(1, int(np.ceil(0.6 / (self.panel_ratio - 1))))
        total = np.zeros(np.broadcast_shapes(np.shape(y), np.shape(x)))
        for piece in range(pieces):
            for node, weight in zip(base, weights, strict=True):
                u = (piece + (node + 1) / 2) / pieces
                total = total + weight / (2 * pieces) * (1 - u) ** 2 * x**3 * self.density(y + u * x, x)
        return total


@dataclass(frozen=True, slots=True)
class ExponentialPrediction(Predictor):
    """Y exponential with mean x: k(y | x) = exp(-y/x)/x.

    Examples
    --------
    >>> ExponentialPrediction().cdf(np.array([1.0]), np.array([1.0])).round(6).tolist()
    [0.632121]
    """

    def density(self, y: Table, x: Table) -> Table:
        """Return exp(-y/x)/x."""
        out: Table = np.exp(-y / x) / x
        return out

    def cdf(self, y: Table, x: Table) -> Table:
        """Return 1 - exp(-y/x)."""
        out: Table = -np.expm1(-y / x)
        return out

    @property
    def spread(self) -> tuple[float, float]:
        """Return factors of x that an exponential leaves with probability 1e-15."""
        return 1e-15, 35.0

    def sample(self, x: Float[np.ndarray, "job"], rng: np.random.Generator) -> Float[np.ndarray, "job"]:
        """Return exponential draws with means x."""
        draws: Float[np.ndarray, "job"] = rng.exponential(1.0, x.size) * x
        return draws

    def overrun(self, y: Table, x: Table) -> Table:
        """Return exp(-y/x) x^2 (1 - 2/e), the closed form of int_0^1 (1 - u)^2 e^-u du = 1 - 2/e."""
        out: Table = np.exp(-y / x) * x * x * (1 - 2 / np.e)
        return out


@dataclass(frozen=True, slots=True)
class LogNormalPrediction(Predictor):
    """Y = x exp(bias + sigma Z), Z standard normal: multiplicative noise.

    Parameters
    ----------
    sigma
        Standard deviation of ln(Y/x), at least 0.1 (below, use exact sizes).
    bias
        Mean of ln(Y/x); any value leaves the order of predictions, and so every answer, the same.
    """

    sigma: float
    bias: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma", positive("sigma", self.sigma))
        if self.sigma < 0.1:
            raise InputError(f"sigma is {self.sigma!r}; expected at least 0.1 (below that use exact sizes)")

    def density(self, y: Table, x: Table) -> Table:
        """Return the log-normal density."""
        z = (np.log(y / x) - self.bias) / self.sigma
        out: Table = np.exp(-z * z / 2) / (y * self.sigma * np.sqrt(2 * np.pi))
        return out

    def cdf(self, y: Table, x: Table) -> Table:
        """Return Phi((ln(y/x) - bias)/sigma)."""
        from scipy.special import ndtr

        out: Table = ndtr((np.log(y / x) - self.bias) / self.sigma)
        return out

    @property
    def spread(self) -> tuple[float, float]:
        """Return exp(bias -+ 8 sigma)."""
        return float(np.exp(self.bias - 8 * self.sigma)), float(np.exp(self.bias + 8 * self.sigma))

    @property
    def panel_ratio(self) -> float:
        """Return exp(3 sigma), at most 1.6: three standard deviations a panel of 16 nodes."""
        return min(1.6, float(np.exp(3 * self.sigma)))

    def sample(self, x: Float[np.ndarray, "job"], rng: np.random.Generator) -> Float[np.ndarray, "job"]:
        """Return x times log-normal noise."""
        noise: Float[np.ndarray, "job"] = np.exp(self.bias + self.sigma * rng.standard_normal(x.size))
        out: Float[np.ndarray, "job"] = x * noise
        return out
