"""Poisson arrivals."""

from __future__ import annotations

__all__ = ["Poisson"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.arrivals.base import ArrivalProcess
from tileq_theory.errors import positive


@dataclass(frozen=True, slots=True)
class Poisson(ArrivalProcess):
    """Independent exponential gaps of mean 1/rate.

    Parameters
    ----------
    rate
        Arrivals a second, above 0.

    Examples
    --------
    >>> Poisson(5.0).scaled_to(2.0)
    Poisson(rate=2.0)
    """

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", positive("rate", self.rate))

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals a second."""
        return self.rate

    @property
    def scv(self) -> float:
        """1."""
        return 1.0

    @property
    def dispersion(self) -> float:
        """1."""
        return 1.0

    def sample(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "request"]:
        """Return the times of the first `count` arrivals, seconds."""
        return np.cumsum(rng.standard_exponential(count) / self.rate)

    def scaled_to(self, rate_per_s: float) -> Poisson:
        """Return Poisson arrivals of another rate."""
        return Poisson(rate_per_s)

    def describe(self) -> str:
        """Return one short line."""
        return f"Poisson {self.rate:g}/s"
