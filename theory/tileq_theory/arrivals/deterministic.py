"""Arrivals at equal gaps."""

from __future__ import annotations

__all__ = ["Deterministic"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.arrivals.base import ArrivalProcess
from tileq_theory.errors import positive


@dataclass(frozen=True, slots=True)
class Deterministic(ArrivalProcess):
    """The i-th arrival at i/rate, i = 1, 2, ...

    Parameters
    ----------
    rate
        Arrivals a second, above 0.

    Examples
    --------
    >>> Deterministic(2.0).sample(np.random.default_rng(0), 3).tolist()
    [0.5, 1.0, 1.5]
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
        """0."""
        return 0.0

    @property
    def dispersion(self) -> float:
        """0."""
        return 0.0

    def sample(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "request"]:
        """Return the times of the first `count` arrivals, seconds; `rng` is not used."""
        return np.arange(1, count + 1) / self.rate

    def scaled_to(self, rate_per_s: float) -> Deterministic:
        """Return equal gaps of another rate."""
        return Deterministic(rate_per_s)

    def describe(self) -> str:
        """Return one short line."""
        return f"one every {1 / self.rate:g} s"
