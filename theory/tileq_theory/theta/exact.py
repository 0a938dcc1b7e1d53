"""The renewal cycle of finitely many slots, exactly (this library's own; the source takes the limit)."""

from __future__ import annotations

__all__ = ["ExactCycle", "exact_best_threshold", "exact_cycles"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative, positive_int
from tileq_theory.theta.costs import BatchingCosts, probability


@dataclass(frozen=True, slots=True)
class ExactCycle:
    """The renewal cycle of N slots for every threshold k = 1..N (this library's own, not of the source).

    A cycle starts with N active requests; decode steps run until at least k slots are free; all free slots are then
    refilled, the overshoot of the last step included.

    Parameters
    ----------
    steps
        Mean decode steps of a cycle, index k - 1.
    completed
        Mean requests completed in a cycle.
    decoded_tokens
        Mean tokens decoded in a cycle (the sum of active requests over its steps).
    """

    steps: Float[np.ndarray, "threshold"]
    completed: Float[np.ndarray, "threshold"]
    decoded_tokens: Float[np.ndarray, "threshold"]

    def throughput_per_s(self, costs: BatchingCosts, prompt_tokens: float = 0.0) -> Float[np.ndarray, "threshold"]:
        """Return requests per second for k = 1..N, by renewal reward."""
        prefill = costs.alpha_p_s + costs.beta_p_s * nonnegative("prompt_tokens", prompt_tokens) * self.completed
        decode = costs.alpha_d_s * self.steps + costs.beta_d_s * self.decoded_tokens
        rate: Float[np.ndarray, "threshold"] = self.completed / (prefill + decode)
        return rate


def exact_cycles(*, slots: int, completion_probability: float) -> ExactCycle:
    r"""Return the exact renewal cycle for every threshold of a system of N slots.

    With i active requests a step completes Binomial(i, p0) of them. Let v_i be the mean number of steps spent with i
    active, starting from N: v_i (1 - (1 - p0)^i) = [i = N] + sum_{j > i} v_j P(Bin(j, p0) = j - i). A cycle with
    threshold k uses the states i > N - k, so steps_k = sum v_i, tokens_k = sum i v_i and completed_k = p0 tokens_k.

    Parameters
    ----------
    slots
        N, whole, 1 to 8192 (the work is of order N^2).
    completion_probability
        p0 in (0, 1].

    Raises
    ------
    InputError
        A parameter outside its domain.

    Examples
    --------
    >>> exact_cycles(slots=2, completion_probability=0.5).steps.round(6).tolist()  # 1/(1 - 1/4); max of two geometrics
    [1.333333, 2.666667]
    """
    from scipy.special import gammaln

    n, p0 = positive_int("slots", slots), probability(completion_probability)
    if n > 8192:
        raise InputError(f"slots is {n}; expected at most 8192 (use theta_root, exact in the limit of many slots)")
    if p0 == 1:
        ones = np.ones(n)
        return ExactCycle(ones, n * ones, n * ones)
    log_p, log_q, factorials = math.log(p0), math.log1p(-p0), gammaln(np.arange(n + 1) + 1.0)
    visits, arriving = np.zeros(n + 1), np.zeros(n + 1)
    arriving[n] = 1.0
    for active in range(n, 0, -1):
        visits[active] = arriving[active] / -math.expm1(active * log_q)
        left = np.arange(active)
        log_pmf = factorials[active] - factorials[left] - factorials[active - left]
        arriving[:active] += visits[active] * np.exp(log_pmf + (active - left) * log_p + left * log_q)
    descending = visits[:0:-1]
    tokens = np.cumsum(descending * np.arange(n, 0, -1))
    return ExactCycle(np.cumsum(descending), p0 * tokens, tokens)


def exact_best_threshold(
    *, slots: int, completion_probability: float, costs: BatchingCosts, prompt_tokens: float = 0.0
) -> int:
    r"""Return the threshold with the most requests per second in the exact renewal cycle of N slots.

    Differs from floor(theta0 N) by the rounding and by the overshoot, which the limit ignores.

    Examples
    --------
    >>> exact_best_threshold(slots=128, completion_probability=1 / 200, costs=BatchingCosts(1.0, 1.0))
    12
    """
    cycles = exact_cycles(slots=slots, completion_probability=completion_probability)
    return int(np.argmax(cycles.throughput_per_s(costs, prompt_tokens))) + 1
