r"""M/G/1 with known sizes: mean response time by policy.

Poisson arrivals of rate lambda, one server, size law F, rho = lambda E[S] < 1. Write rho(x) = lambda E[S; S <= x],
rho(x-) the same over S < x, m(x) = lambda E[S^2; S <= x]. Jobs of equal size are served in order of arrival. The mean
response T(x) of a job of size x is

    FIFO  x + lambda E[S^2] / (2 (1 - rho))                                          (Pollaczek-Khinchine)
    SJF   x + lambda E[S^2] / (2 (1 - rho(x-)) (1 - rho(x)))                         (Cobham, a class per size)
    PSJF  x/(1 - rho(x-)) + m(x) / (2 (1 - rho(x-)) (1 - rho(x)))
    SRPT  R(x) + (m(x) + lambda x^2 P(S > x)) / (2 (1 - rho(x-)) (1 - rho(x))),   R(x) = int_0^x dt/(1 - rho(t))

FIFO and SJF need E[S^2]; PSJF and SRPT need only the mean. Sources: Harchol-Balter, Performance Modeling and Design of
Computer Systems (2013), chapters 23, 31 to 33; Schrage and Miller (1966) for SRPT.
"""

from __future__ import annotations

__all__ = ["POLICIES", "Mg1", "SizeResponse", "mg1", "mg1_by_size"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, near_matches
from tileq_theory.latency.points import SizePoints
from tileq_theory.latency.service import ServiceLaw, stable_load

SizePolicy = Literal["fifo", "sjf", "psjf", "srpt"]
Points = Float[np.ndarray, "point"]


@dataclass(frozen=True, slots=True)
class Mg1:
    """Means of a queue in steady state.

    Parameters
    ----------
    policy
        Its name.
    load
        rho.
    response_s, waiting_s
        Mean response T and T - E[S], seconds.
    in_system
        Mean number in system (Little's law).
    """

    policy: str
    load: float
    response_s: float
    waiting_s: float
    in_system: float


@dataclass(frozen=True, slots=True, eq=False)
class SizeResponse:
    """Mean response of a job of each size, ascending sizes (seconds)."""

    sizes_s: Points
    response_s: Points


def _fifo(rate: float, law: ServiceLaw, points: SizePoints) -> Points:
    second = law.finite_second_moment("FIFO (Pollaczek-Khinchine)")
    out: Points = points.sizes_s + rate * second / (2 * (1 - rate * law.mean_s))
    return out


def _two_sides(rate: float, points: SizePoints) -> Points:
    out: Points = 2 * (1 - rate * points.below[1]) * (1 - rate * points.upto[1])
    return out


def _sjf(rate: float, law: ServiceLaw, points: SizePoints) -> Points:
    second = law.finite_second_moment("SJF")
    out: Points = points.sizes_s + rate * second / _two_sides(rate, points)
    return out


def _psjf(rate: float, law: ServiceLaw, points: SizePoints) -> Points:
    busy = points.sizes_s / (1 - rate * points.below[1])
    out: Points = busy + rate * points.upto[2] / _two_sides(rate, points)
    return out


def _srpt(rate: float, law: ServiceLaw, points: SizePoints) -> Points:
    larger = np.maximum(1 - points.upto[0], 0.0)
    larger[larger < 1e-15] = 0.0  # rounding of 1 - F would be multiplied by x^2 far in the tail
    with np.errstate(over="ignore", invalid="ignore"):
        rest = np.where(larger > 0, points.sizes_s**2 * larger, 0.0)
    out: Points = points.residence(rate) + rate * (points.upto[2] + rest) / _two_sides(rate, points)
    return out


POLICIES: dict[str, Callable[[float, ServiceLaw, SizePoints], Points]] = {
    "fifo": _fifo,
    "sjf": _sjf,
    "psjf": _psjf,
    "srpt": _srpt,
}


def _rule(policy: str) -> Callable[[float, ServiceLaw, SizePoints], Points]:
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InputError(f"policy {policy!r} is not known; {near_matches('policies', str(policy), POLICIES)}")
    return POLICIES[policy]


def mg1(policy: str, *, rate_per_s: float, service: ServiceLaw) -> Mg1:
    """Return the mean response of an M/G/1 queue with known sizes.

    Parameters
    ----------
    policy
        "fifo", "sjf", "psjf" or "srpt" (formulas in the module's docstring).
    rate_per_s
        lambda >= 0, with lambda E[S] < 1.
    service
        Law of sizes, seconds.

    Raises
    ------
    InputError
        An unknown policy, a negative rate, a load of 1 or more, or (FIFO, SJF) a law without a second moment.

    Examples
    --------
    >>> [round(mg1(p, rate_per_s=0.5, service=ServiceLaw.exponential(1.0)).response_s, 4) for p in POLICIES]
    [2.0, 1.7127, 1.5314, 1.4254]
    """
    rule = _rule(policy)
    rate, load = stable_load(rate_per_s, service)
    points = service.points()
    response = points.mean(rule(rate, service, points))
    return Mg1(policy, load, response, max(response - service.mean_s, 0.0), rate * response)


def mg1_by_size(policy: str, *, rate_per_s: float, service: ServiceLaw) -> SizeResponse:
    """Return T(x) at every point of the law: who pays for a policy's better mean.

    Raises
    ------
    InputError
        As `mg1`.

    Examples
    --------
    >>> one = mg1_by_size("psjf", rate_per_s=0.25, service=ServiceLaw.discrete([1.0, 3.0], [0.5, 0.5]))
    >>> one.response_s.round(6).tolist()  # 1 + .125/(2*.875); 3/.875 + 1.25/(2*.875*.5)
    [1.071429, 4.857143]
    """
    rule = _rule(policy)
    rate, _ = stable_load(rate_per_s, service)
    points = service.points()
    order = np.argsort(points.sizes_s, kind="stable")
    return SizeResponse(points.sizes_s[order], rule(rate, service, points)[order])
