r"""On-off bursts: Poisson arrivals whose rate a two-state Markov chain switches.

With lambda_1 while on (mean time on 1/s_1) and lambda_2 while off (mean time off 1/s_2), and s = s_1 + s_2
(Fischer and Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, Performance Evaluation 18, 1993):

    rate        = (lambda_1 s_2 + lambda_2 s_1)/s
    scv of gaps = 1 + 2 s_1 s_2 (lambda_1 - lambda_2)^2 / (s^2 (lambda_1 lambda_2 + lambda_1 s_2 + lambda_2 s_1))
    dispersion  = 1 + 2 s_1 s_2 (lambda_1 - lambda_2)^2 / (s^2 (lambda_1 s_2 + lambda_2 s_1))
"""

from __future__ import annotations

__all__ = ["OnOff"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.arrivals.base import ArrivalProcess
from tileq_theory.errors import InputError, nonnegative, positive

_CYCLES = 200_000  # periods drawn at once, so that memory stays bounded


@dataclass(frozen=True, slots=True)
class OnOff(ArrivalProcess):
    """Poisson at `rate_on` for exponential times on, at `rate_off` for exponential times off.

    Parameters
    ----------
    rate_on
        Arrivals a second while on, above 0.
    mean_on_s, mean_off_s
        Mean time on and off, seconds, above 0.
    rate_off
        Arrivals a second while off, 0 or more.

    Examples
    --------
    >>> OnOff(10.0, mean_on_s=1.0, mean_off_s=4.0).rate_per_s
    2.0
    """

    rate_on: float
    mean_on_s: float
    mean_off_s: float
    rate_off: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rate_on", "mean_on_s", "mean_off_s"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "rate_off", nonnegative("rate_off", self.rate_off))

    @classmethod
    def from_dispersion(cls, rate: float, dispersion: float, on_share: float) -> OnOff:
        """Return bursts, silent while off, of a given rate, dispersion and long-run share of time on.

        Then dispersion - 1 = 2 (rate/on_share) (1 - on_share)^2 mean_on_s, which fixes the mean burst length.

        Parameters
        ----------
        rate
            Mean arrivals a second, above 0.
        dispersion
            Asymptotic index of dispersion of counts, above 1.
        on_share
            Share of time on, in (0, 1).
        """
        mean, share = positive("rate", rate), positive("on_share", on_share)
        if share >= 1:
            raise InputError(f"on_share is {share!r}; expected a share in (0, 1)")
        if positive("dispersion", dispersion) <= 1:
            raise InputError(f"dispersion is {dispersion!r}; expected a number above 1 (1 is Poisson)")
        length = (dispersion - 1) * share / (2 * mean * (1 - share) ** 2)
        return cls(mean / share, length, length * (1 - share) / share)

    @property
    def on_share(self) -> float:
        """Long-run share of time on."""
        return self.mean_on_s / (self.mean_on_s + self.mean_off_s)

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals a second."""
        return self.rate_on * self.on_share + self.rate_off * (1 - self.on_share)

    def _excess(self) -> float:
        """Return 2 s_1 s_2 (lambda_1 - lambda_2)^2/s^2, the numerator that both indices share."""
        share = self.on_share
        return 2 * share * (1 - share) * (self.rate_on - self.rate_off) ** 2

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of a gap in the stationary stream."""
        switching = 1 / self.mean_on_s + 1 / self.mean_off_s
        product = self.rate_on * self.rate_off
        return 1 + self._excess() / (product + self.rate_per_s * switching)

    @property
    def dispersion(self) -> float:
        """Asymptotic index of dispersion of counts."""
        return 1 + self._excess() / (self.rate_per_s * (1 / self.mean_on_s + 1 / self.mean_off_s))

    def sample(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "request"]:
        """Return the times of the first `count` arrivals, seconds; the state at 0 is drawn from its long-run law.

        Arrivals of a unit Poisson process are put on the clock that the integrated rate inverts: the work is that
        of the arrivals and the switches, however long a burst is.
        """
        on = bool(rng.random() < self.on_share)
        lengths = np.array([self.mean_on_s, self.mean_off_s])[:: 1 if on else -1]
        rates = np.array([self.rate_on, self.rate_off])[:: 1 if on else -1]
        work = np.cumsum(rng.standard_exponential(count))
        per_cycle = float(lengths @ rates)
        times, have = np.empty(count), 0
        clock, done = 0.0, 0.0
        while have < count:
            cycles = int(min((work[-1] - done) / per_cycle * 1.1 + 10, _CYCLES))
            periods = rng.standard_exponential((cycles, 2)) * lengths
            ends = clock + np.cumsum(periods.ravel())
            reached = done + np.cumsum((periods * rates).ravel())
            upto = int(np.searchsorted(work, reached[-1], side="right"))
            times[have:upto] = np.interp(
                work[have:upto], np.concatenate([[done], reached]), np.concatenate([[clock], ends])
            )
            have, clock, done = upto, float(ends[-1]), float(reached[-1])
        return times

    def scaled_to(self, rate_per_s: float) -> OnOff:
        """Return the same bursts on a clock that makes the rate `rate_per_s`."""
        f = positive("rate_per_s", rate_per_s) / self.rate_per_s
        return OnOff(self.rate_on * f, self.mean_on_s / f, self.mean_off_s / f, self.rate_off * f)

    def describe(self) -> str:
        """Return one short line."""
        return (
            f"on-off bursts, {self.rate_per_s:g}/s: {self.rate_on:g}/s for {self.mean_on_s:g} s, "
            f"{self.rate_off:g}/s for {self.mean_off_s:g} s"
        )
