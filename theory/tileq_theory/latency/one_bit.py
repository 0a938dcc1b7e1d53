r"""One bit of advice: a job is called short or long, and short ones go first.

With P(short | x) given, the two classes are priority classes whose service laws are those of S given the bit:

    non-preemptive   W_short = lambda E[S^2]/(2 (1 - rho_s)),   W_long = lambda E[S^2]/(2 (1 - rho_s)(1 - rho))
    preemptive       T_short = lambda_s E[S_s^2]/(2 (1 - rho_s)) + E[S_s]        within the class in order of arrival
                     T_short = E[S_s]/(1 - rho_s)                                 each short job to the front, at once
                     T_long  = lambda E[S^2]/(2 (1 - rho_s)(1 - rho)) + E[S_l]/(1 - rho_s)

Non-preemptively the mean is the same whether short jobs join the front or the back of the short ones, because the order
does not look at sizes. Source: Mitzenmacher, Queues with Small Advice, arXiv 2006.15463; survey arXiv 2503.07545.
"""

from __future__ import annotations

__all__ = ["OneBit", "best_threshold", "one_bit"]

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, positive
from tileq_theory.latency.predictors import Predictor
from tileq_theory.latency.priorities import priority_classes
from tileq_theory.latency.service import ServiceLaw, stable_load

Within = Literal["arrival", "front"]
Sizes = Float[np.ndarray, "..."]


@dataclass(frozen=True, slots=True)
class OneBit:
    """Means under one bit of advice.

    Parameters
    ----------
    threshold_s
        Size (or prediction) up to which a job is called short, seconds.
    short_share
        Share of jobs called short.
    short_response_s, long_response_s, response_s
        Mean response by call and of all jobs, seconds (nan for a call that nobody gets).
    """

    threshold_s: float
    short_share: float
    short_response_s: float
    long_response_s: float
    response_s: float


def one_bit(
    *,
    rate_per_s: float,
    service: ServiceLaw,
    threshold_s: float,
    predictor: Predictor | None = None,
    preemptive: bool = False,
    within: Within = "arrival",
) -> OneBit:
    """Return mean response when jobs called short, size or prediction at most the threshold, go first.

    Parameters
    ----------
    rate_per_s, service
        lambda >= 0 and the law of true sizes with a second moment, lambda E[S] < 1.
    threshold_s
        Above 0, seconds.
    predictor
        None: the bit is right. Else it is short when the prediction is at most the threshold.
    preemptive
        Whether a short job interrupts a long one.
    within
        "arrival": short jobs in order of arrival. "front": a short job interrupts whatever runs (preemptive only).

    Raises
    ------
    InputError
        A load of 1 or more, a law without a second moment, or a parameter outside its domain.

    Examples
    --------
    >>> law = ServiceLaw.exponential(1.0)
    >>> answer = one_bit(rate_per_s=0.8, service=law, threshold_s=2.0)
    >>> round(answer.response_s, 4) < 5.0  # first come first served: 5
    True
    """
    rate, _ = stable_load(rate_per_s, service)
    limit = positive("threshold_s", threshold_s)
    if within not in ("arrival", "front"):
        raise InputError(f"within is {within!r}; expected 'arrival' or 'front'")

    def short(x: Sizes) -> Sizes:
        if predictor is None:
            return (x <= limit).astype(float)
        return predictor.cdf(np.array(limit), np.maximum(x, 1e-300))

    law = service.split_at(limit) if predictor is None else service
    share = law.expectation(short)
    if share <= 0 or share >= 1:
        alone = "short_response_s" if share >= 1 else "long_response_s"
        return _one_class(rate, service, limit, share, alone, preemptive and within == "front")
    shorter, longer = law.tilted(short), law.tilted(lambda x: 1 - short(x))
    rates = [rate * share, rate * (1 - share)]
    both = priority_classes(rates, [shorter, longer], preemptive=preemptive)
    first, second = (float(t) for t in both.response_s)
    if preemptive and within == "front":
        first = shorter.mean_s / (1 - rates[0] * shorter.mean_s)
    return OneBit(limit, share, first, second, share * first + (1 - share) * second)


def _one_class(rate: float, law: ServiceLaw, limit: float, share: float, name: str, lifo: bool) -> OneBit:
    if lifo and share >= 1:
        response = law.mean_s / (1 - rate * law.mean_s)
    else:
        response = float(priority_classes([rate], [law]).response_s[0])
    named = {"short_response_s": math.nan, "long_response_s": math.nan, name: response}
    return OneBit(limit, min(max(share, 0.0), 1.0), **named, response_s=response)


def best_threshold(
    *,
    rate_per_s: float,
    service: ServiceLaw,
    predictor: Predictor | None = None,
    preemptive: bool = False,
    within: Within = "arrival",
) -> OneBit:
    """Return the threshold with the least mean response, from 80 thresholds and a refinement around the best.

    Raises
    ------
    InputError
        As `one_bit`.

    Examples
    --------
    >>> best = best_threshold(rate_per_s=0.8, service=ServiceLaw.exponential(1.0))
    >>> round(best.threshold_s, 3), round(best.response_s, 4)
    (1.718, 3.3285)
    """
    from scipy.optimize import minimize_scalar

    def at(threshold: float) -> OneBit:
        return one_bit(
            rate_per_s=rate_per_s,
            service=service,
            threshold_s=threshold,
            predictor=predictor,
            preemptive=preemptive,
            within=within,
        )

    mean = service.mean_s
    grid = np.geomspace(0.01 * mean, 100 * mean, 80)
    if service.atoms_s.size and predictor is None:
        grid = np.unique(np.concatenate([grid, service.atoms_s[service.atoms_s > 0][:200]]))
    answers = [at(float(t)) for t in grid]
    best = min(answers, key=lambda a: a.response_s)
    index = answers.index(best)
    low, high = grid[max(index - 1, 0)], grid[min(index + 1, grid.size - 1)]
    found = minimize_scalar(lambda t: at(float(t)).response_s, bounds=(low, high), method="bounded")
    return best if best.response_s <= found.fun else at(float(found.x))
