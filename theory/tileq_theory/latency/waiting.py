r"""Law of the waiting time of M/G/1, first come first served, between two bounds that hold.

Pollaczek-Khinchine: W is a sum of a geometric number of residual services,

    P(W > t) = (1 - rho) sum_{k >= 1} rho^k P(R_1 + ... + R_k > t),   P(R > t) = (1/E[S]) int_t^inf P(S > u) du.

Rounding every R down (up) to a grid gives a law below (above) the true one; both compound sums follow from one linear
recursion on the grid (Panjer). The bracket narrows in proportion to the grid step; the middle of the two is much nearer
than either.
"""

from __future__ import annotations

__all__ = ["WaitingLaw", "waiting_law"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.latency.service import ServiceLaw, stable_load

Times = Float[np.ndarray, "time"]


@dataclass(frozen=True, slots=True, eq=False)
class WaitingLaw:
    """P(W > t) on a grid, with the bounds that hold.

    Parameters
    ----------
    times_s
        Grid, seconds, from 0.
    tail, lower, upper
        Best value and bounds of P(W > t) at each time.
    load
        rho = P(W > 0).
    """

    times_s: Times
    tail: Times
    lower: Times
    upper: Times
    load: float

    def quantile(self, probability: float) -> float:
        """Return the time t with P(W <= t) = probability, interpolated on the grid.

        Raises
        ------
        InputError
            A probability outside [0, 1), or one that the grid does not reach (give a longer horizon).
        """
        if not 0 <= probability < 1:
            raise InputError(f"probability is {probability!r}; expected a number in [0, 1)")
        if probability <= 1 - self.load:
            return 0.0
        if self.tail[-1] > 1 - probability:
            raise InputError(
                f"probability {probability!r} lies beyond the horizon {self.times_s[-1]:g} s, where P(W > t) is "
                f"still {self.tail[-1]:.3g}; give a longer horizon_s"
            )
        return float(np.interp(probability, 1 - self.tail, self.times_s))


def waiting_law(*, rate_per_s: float, service: ServiceLaw, horizon_s: float, steps: int = 4096) -> WaitingLaw:
    """Return the law of waiting on 0..horizon_s.

    Parameters
    ----------
    rate_per_s, service
        lambda E[S] < 1; the law needs a mean only.
    horizon_s
        Last time of the grid, seconds.
    steps
        Grid steps, 2 to 65536; the work is of order steps squared.

    Raises
    ------
    InputError
        A load of 1 or more or a parameter outside its domain.

    Examples
    --------
    >>> law = waiting_law(rate_per_s=0.5, service=ServiceLaw.exponential(1.0), horizon_s=20.0)
    >>> round(law.quantile(0.99), 3), bool((law.lower <= law.upper).all())  # M/M/1: 2 ln(.5/.01) = 7.824
    (7.824, True)
    """
    from scipy.signal import lfilter

    rate, load = stable_load(rate_per_s, service)
    end, count = positive("horizon_s", horizon_s), positive_int("steps", steps)
    if not 2 <= count <= 65536:
        raise InputError(f"steps is {steps}; expected 2 to 65536")
    grid = np.linspace(0.0, end, count + 1)
    if rate == 0:
        none = np.zeros(count + 1)
        return WaitingLaw(grid, none, none, none, 0.0)
    residual = residual_cdf(service, grid)
    step = np.diff(residual)  # mass of (i h, (i + 1) h], put at i h or at (i + 1) h
    impulse = np.zeros(count + 1)
    impulse[0] = 1.0
    sides = []
    for masses in (np.append(step, 0.0), np.concatenate([[0.0], step])):
        base = -load * masses
        base[0] += 1.0
        law = lfilter([1 - load], base, impulse)
        sides.append(np.clip(1 - np.cumsum(law), 0.0, 1.0))
    # waiting above 0 has a density, so P(W > t) = P(W >= t) is at least P(rounded down >= t)
    lower, upper = np.concatenate([[load], sides[0][:-1]]), sides[1]
    return WaitingLaw(grid, (lower + upper) / 2, lower, upper, load)


def residual_cdf(service: ServiceLaw, times_s: Times) -> Times:
    """Return P(R <= t) = E[min(S, t)]/E[S] of the residual service at each t, exact at atoms."""
    short = service.truncated(times_s, 1) + times_s * service.survival(times_s)
    out: Times = np.minimum(short / service.mean_s, 1.0)
    return out
