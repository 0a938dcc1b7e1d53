"""Independent gamma gaps: bursts by their coefficient of variation alone."""

from __future__ import annotations

__all__ = ["GammaArrivals"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.arrivals.base import ArrivalProcess
from tileq_theory.errors import positive


@dataclass(frozen=True, slots=True)
class GammaArrivals(ArrivalProcess):
    """Independent gamma gaps of mean 1/rate and coefficient of variation cv (shape 1/cv^2).

    cv 1 is Poisson. A cv far above 1 means many gaps near 0 and few long ones: bursts at one instant.

    Parameters
    ----------
    rate
        Arrivals a second, above 0.
    cv
        Standard deviation of a gap over its mean, above 0 (`Deterministic` is the limit 0).

    Examples
    --------
    >>> GammaArrivals(5.0, 2.0).dispersion
    4.0
    """

    rate: float
    cv: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", positive("rate", self.rate))
        object.__setattr__(self, "cv", positive("cv", self.cv))

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals a second."""
        return self.rate

    @property
    def scv(self) -> float:
        """cv^2."""
        return self.cv**2

    @property
    def dispersion(self) -> float:
        """cv^2, since gaps are independent."""
        return self.cv**2

    def sample(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "request"]:
        """Return the times of the first `count` arrivals, seconds."""
        shape = self.cv**-2
        return np.cumsum(rng.gamma(shape, 1 / (shape * self.rate), count))

    def scaled_to(self, rate_per_s: float) -> GammaArrivals:
        """Return gamma gaps of another rate and the same cv."""
        return GammaArrivals(rate_per_s, self.cv)

    def describe(self) -> str:
        """Return one short line."""
        return f"gamma gaps, {self.rate:g}/s, CV {self.cv:g}"
