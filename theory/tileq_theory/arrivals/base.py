"""The contract of an arrival process: when requests come, whatever they are."""

from __future__ import annotations

__all__ = ["ArrivalProcess"]

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float


class ArrivalProcess(ABC):
    """A stationary stream of arrivals.

    `scv` is the squared coefficient of variation of one gap; `dispersion` the limit of Var N(t)/E N(t) for long t,
    the index of dispersion, which is what heavy traffic sees of a burst. Both are 1 for Poisson; they are equal when
    gaps are independent. None where no closed form is known.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def rate_per_s(self) -> float:
        """Mean arrivals a second."""

    @property
    @abstractmethod
    def scv(self) -> float | None:
        """Squared coefficient of variation of a gap between arrivals."""

    @property
    @abstractmethod
    def dispersion(self) -> float | None:
        """Asymptotic index of dispersion of counts."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "request"]:
        """Return the times of the first `count` arrivals after 0, seconds, never falling."""

    @abstractmethod
    def scaled_to(self, rate_per_s: float) -> ArrivalProcess:
        """Return the same process on a clock that makes its rate `rate_per_s`: gaps scaled, their pattern kept."""

    @abstractmethod
    def describe(self) -> str:
        """Return one short line for tables and provenance."""
