r"""M/G/1 with fixed priority classes (Cobham).

Classes 1, ..., I in order of priority, class i with rate lambda_i, mean m_i and second moment s_i; sigma_i is the load
of the classes 1..i. First come first served within a class. Mean waiting (non-preemptive) and response (preemptive
resume):

    W_i = sum_{all j} lambda_j s_j / (2 (1 - sigma_{i-1}) (1 - sigma_i))                       (Cobham 1954)
    T_i = m_i/(1 - sigma_{i-1}) + sum_{j <= i} lambda_j s_j / (2 (1 - sigma_{i-1}) (1 - sigma_i))

A class with sigma_i >= 1 waits for ever; non-preemptively, an overloaded lower class keeps the server busy always, and
then the residual work that a class meets is that of the classes that are served.
"""

from __future__ import annotations

__all__ = ["ClassLatency", "priority_classes"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative
from tileq_theory.latency.service import ServiceLaw

PerClass = Float[np.ndarray, "class"]


@dataclass(frozen=True, slots=True, eq=False)
class ClassLatency:
    """Means of each class, in priority order.

    Parameters
    ----------
    load
        sum lambda_i m_i.
    waiting_s, response_s
        Mean time not in service, and mean response, seconds; inf for a class that is not stable.
    """

    load: float
    waiting_s: PerClass
    response_s: PerClass


def priority_classes(
    rates_per_s: Sequence[float], services: Sequence[ServiceLaw], *, preemptive: bool = False
) -> ClassLatency:
    """Return mean waiting and response of every priority class, the first class served first.

    Parameters
    ----------
    rates_per_s
        lambda_i >= 0.
    services
        Law of service of each class; each with a second moment.
    preemptive
        False: a job in service finishes first. True: preemptive resume.

    Raises
    ------
    InputError
        Lists of different lengths, a negative rate, a law without second moment, or a load of 1 or more in the first
        class (no class is stable then).

    Examples
    --------
    >>> law = ServiceLaw.exponential(1.0)
    >>> priority_classes([0.25, 0.25], [law, law]).waiting_s.round(6).tolist()
    [0.666667, 1.333333]
    >>> priority_classes([0.25, 0.25], [law, law], preemptive=True).response_s.round(6).tolist()
    [1.333333, 2.666667]
    """
    if len(rates_per_s) != len(services) or not len(services):
        raise InputError(f"{len(rates_per_s)} rates and {len(services)} laws given; expected as many, at least one")
    rates = np.array([nonnegative(f"rates_per_s[{i}]", r) for i, r in enumerate(rates_per_s)])
    means = np.array([law.mean_s for law in services])
    seconds = np.array([law.finite_second_moment("a priority queue") for law in services])
    upto = np.cumsum(rates * means)
    if upto[0] >= 1:
        raise InputError(f"load of the first class is {upto[0]:.6g}; expected it below 1: no class is stable otherwise")
    before = np.concatenate([[0.0], upto[:-1]])
    residual = np.cumsum(rates * seconds) / 2
    if not preemptive:
        residual = np.full_like(residual, _met(rates, means, seconds, upto))
    gap = (1 - before) * (1 - upto)
    with np.errstate(divide="ignore", invalid="ignore"):
        delay = np.where(upto < 1, residual / gap, math.inf)
        busy = np.where(before < 1, means / (1 - before), math.inf) if preemptive else means
    return ClassLatency(float(upto[-1]), delay + busy - means, delay + busy)


def _met(rates: np.ndarray, means: np.ndarray, seconds: np.ndarray, upto: np.ndarray) -> float:
    """Return the mean residual service that an arrival meets; an overloaded class is served in the time left to it."""
    share = rates.copy()
    over = int(np.searchsorted(upto, 1.0))
    if over < rates.size:
        room = 1 - (upto[over - 1] if over else 0.0)
        share[over] = room / means[over]
        share[over + 1 :] = 0.0
    return float(share @ seconds) / 2
