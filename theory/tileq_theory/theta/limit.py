"""The threshold in the limit of many slots: the root equation, its throughput, its correction."""

from __future__ import annotations

__all__ = ["best_threshold", "increasing_hazard_correction", "theta_root", "threshold_throughput"]

import math

from tileq_theory.errors import finite, nonnegative, positive_int
from tileq_theory.theta.costs import BatchingCosts, fraction, probability


def theta_root(ratio: float) -> float:
    r"""Return theta0, the root in [0, 1) of theta/(1 - theta) + ln(1 - theta) = ratio.

    Solved by Newton's method in zeta = -ln(1 - theta), where the left side is e^zeta - 1 - zeta, convex and
    increasing; from a start to the right of the root the iterates fall to it.

    Parameters
    ----------
    ratio
        p0 alpha_p/alpha_d, a number of 0 or more.

    Raises
    ------
    InputError
        A negative or non-finite ratio. (Above about 1e16 the root is 1 to double precision.)

    References
    ----------
    arXiv 2606.00516, threshold under a constant hazard rate.

    Examples
    --------
    >>> round(theta_root(1 / 200), 7)
    0.0936781
    """
    target = nonnegative("ratio", ratio)
    if target == 0:
        return 0.0
    zeta = min(math.sqrt(2 * target), math.log1p(target) + math.log1p(math.log1p(target)) + 1)
    for _ in range(200):
        step = (_excess(zeta) - target) / math.expm1(zeta)
        zeta -= step
        if abs(step) <= 4e-16 * zeta:
            break
    return -math.expm1(-zeta)


def _excess(zeta: float) -> float:
    """Return e^zeta - 1 - zeta to full relative precision."""
    if zeta > 0.5:
        return math.expm1(zeta) - zeta
    term, total, order = zeta * zeta / 2, 0.0, 2
    while term > 1e-18 * total:
        total += term
        order += 1
        term *= zeta / order
    return total


def best_threshold(*, slots: int, completion_probability: float, costs: BatchingCosts) -> int:
    r"""Return k* = floor(theta0 N), at least 1: the asymptotically optimal number of free slots.

    Parameters
    ----------
    slots
        N, whole, at least 1.
    completion_probability
        p0 in (0, 1]: one over the mean output.
    costs
        Only alpha_p_s and alpha_d_s matter.

    Raises
    ------
    InputError
        A parameter outside its domain.

    Examples
    --------
    >>> best_threshold(slots=128, completion_probability=1 / 200, costs=BatchingCosts(1.0, 1.0))
    11
    """
    n = positive_int("slots", slots)
    root = theta_root(probability(completion_probability) * costs.alpha_p_s / costs.alpha_d_s)
    return max(1, math.floor(root * n))


def threshold_throughput(
    *, theta: float, slots: int, completion_probability: float, costs: BatchingCosts, prompt_tokens: float = 0.0
) -> float:
    r"""Return requests per second with threshold theta N in the large-N limit.

    TP = theta N / (alpha_p + beta_p theta N mu_L + (beta_d N theta - alpha_d ln(1 - theta))/p0).

    Parameters
    ----------
    theta
        Threshold over slots, in (0, 1).
    slots, completion_probability, costs
        N, p0, the times.
    prompt_tokens
        mu_L, mean prompt, tokens.

    Raises
    ------
    InputError
        A parameter outside its domain.

    Examples
    --------
    >>> args = dict(slots=128, completion_probability=1 / 200, costs=BatchingCosts(1.0, 1.0))
    >>> best = threshold_throughput(theta=theta_root(1 / 200), **args)
    >>> best > threshold_throughput(theta=0.08, **args) and best > threshold_throughput(theta=0.11, **args)
    True
    """
    share = fraction(theta)
    freed, p0 = share * positive_int("slots", slots), probability(completion_probability)
    prefill = costs.alpha_p_s + costs.beta_p_s * freed * nonnegative("prompt_tokens", prompt_tokens)
    decode = (costs.beta_d_s * freed - costs.alpha_d_s * math.log1p(-share)) / p0
    return freed / (prefill + decode)


def increasing_hazard_correction(
    *, theta: float, hazard_slope: float, completion_probability: float, slots: int, costs: BatchingCosts
) -> float:
    r"""Return the first-order change of theta0 when the hazard rate is p0 + eta t.

    Delta = eta (1 - theta)^2/(p0^2 theta) [zeta (theta/(1 - theta) - zeta/2) + (beta_d N/alpha_d)(zeta - theta)],
    zeta = -ln(1 - theta), evaluated at theta0.

    Parameters
    ----------
    theta
        theta0, in (0, 1).
    hazard_slope
        eta, per step; the error is of order eta^2.
    completion_probability, slots, costs
        p0, N, the times.

    Raises
    ------
    InputError
        A parameter outside its domain.

    References
    ----------
    arXiv 2606.00516, increasing failure rate.

    Examples
    --------
    >>> increasing_hazard_correction(theta=0.0936781, hazard_slope=0.0, completion_probability=1 / 200, slots=128,
    ...                              costs=BatchingCosts(1.0, 1.0))
    0.0
    """
    share, p0 = fraction(theta), probability(completion_probability)
    zeta = -math.log1p(-share)
    tokens = costs.beta_d_s * positive_int("slots", slots) / costs.alpha_d_s * (zeta - share)
    scale = finite("hazard_slope", hazard_slope) * (1 - share) ** 2 / (p0**2 * share)
    return scale * (zeta * (share / (1 - share) - zeta / 2) + tokens)
