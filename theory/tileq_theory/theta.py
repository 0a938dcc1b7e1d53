r"""Threshold-exclusive batching (THETA; EB and EB+): when should decoding give way to prefill?

N slots, always a queue. Decode until k slots are free, then prefill as many requests, and again. A decode iteration
of b sequences takes alpha_d + beta_d b seconds, a prefill phase of n tokens alpha_p + beta_p n. A decode step ends
each request with probability p0 (geometric outputs; constant hazard rate). Waiting for more free slots shares
alpha_p among more requests but runs decode iterations emptier, which pays alpha_d for fewer tokens.

For N large, theta = k/N fixed, the active requests decay exponentially and

    E[T_d] = (beta_d N theta - alpha_d ln(1 - theta))/p0
    theta0 solves theta/(1 - theta) + ln(1 - theta) = p0 alpha_p/alpha_d,      k* = floor(theta0 N)

With zeta = -ln(1 - theta) the equation is e^zeta - 1 - zeta = p0 alpha_p/alpha_d; per-token times do not matter, as
every token is paid once whatever the threshold. `exact_cycle` drops the limit: it computes the renewal cycle of
finitely many slots from the binomial number of completions of each step.

Source: Zhang, Nie, Pang, Ma, Wu, ICML 2026, arXiv 2606.00516. The finite-N cycle (all freed slots are refilled, the
overshoot of the last step included) is this library's own and is marked so.
"""

from __future__ import annotations

__all__ = [
    "BatchingCosts",
    "Crossover",
    "ExactCycle",
    "best_threshold",
    "crossover",
    "exact_best_threshold",
    "exact_cycles",
    "increasing_hazard_correction",
    "theta_root",
    "threshold_throughput",
]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, finite, nonnegative, positive, positive_int


@dataclass(frozen=True, slots=True)
class BatchingCosts:
    """Linear times of the two kinds of iteration, and of a mixed one.

    Parameters
    ----------
    alpha_p_s, beta_p_s
        Prefill phase: fixed seconds, seconds a token.
    alpha_d_s, beta_d_s
        Decode iteration: fixed seconds (above 0), seconds a sequence.
    """

    alpha_p_s: float
    alpha_d_s: float
    beta_p_s: float = 0.0
    beta_d_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha_d_s", positive("alpha_d_s", self.alpha_d_s))
        for name in ("alpha_p_s", "beta_p_s", "beta_d_s"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))


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
        A negative or non-finite ratio.

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
    root = theta_root(_probability(completion_probability) * costs.alpha_p_s / costs.alpha_d_s)
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
    share = finite("theta", theta)
    if not 0 < share < 1:
        raise InputError(f"theta is {theta!r}; expected a fraction in (0, 1)")
    freed, p0 = share * positive_int("slots", slots), _probability(completion_probability)
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
    share, p0 = finite("theta", theta), _probability(completion_probability)
    if not 0 < share < 1:
        raise InputError(f"theta is {theta!r}; expected a fraction in (0, 1)")
    zeta = -math.log1p(-share)
    tokens = costs.beta_d_s * positive_int("slots", slots) / costs.alpha_d_s * (zeta - share)
    scale = finite("hazard_slope", hazard_slope) * (1 - share) ** 2 / (p0**2 * share)
    return scale * (zeta * (share / (1 - share) - zeta / 2) + tokens)


@dataclass(frozen=True, slots=True)
class Crossover:
    """Seconds of machine time that a request takes under exclusive and under mixed batching.

    Parameters
    ----------
    exclusive_s, mixed_s
        Seconds a request; the throughput is one over it.
    """

    exclusive_s: float
    mixed_s: float

    @property
    def mixed_wins(self) -> bool:
        """True when mixing serves more requests per second."""
        return self.mixed_s < self.exclusive_s

    @property
    def gain_of_exclusive(self) -> float:
        """Relative throughput gain of exclusive batching (negative where mixing wins)."""
        return self.mixed_s / self.exclusive_s - 1


def crossover(
    *,
    slots: int,
    threshold: float,
    theta: float,
    prompt_tokens: float,
    output_tokens: float,
    costs: BatchingCosts,
    alpha_mixed_s: float,
    beta_mixed_s: float,
) -> Crossover:
    r"""Compare exclusive batching at threshold k with mixed batching of N slots (the test of EB+).

    Per request, exclusive: (alpha_p + alpha_d zeta mu_O)/k + beta_p mu_L + beta_d mu_O, zeta = -ln(1 - theta);
    mixed: alpha_MB (1 + mu_O)/N + beta_MB (mu_L + mu_O). Mixing wins exactly when

        beta_MB - beta_EB < [(alpha_p + alpha_d zeta mu_O)/k - alpha_MB (1 + mu_O)/N]/(mu_L + mu_O),

    beta_EB = (beta_p mu_L + beta_d mu_O)/(mu_L + mu_O).

    Parameters
    ----------
    slots
        N (EB+ puts the observed occupancy here).
    threshold, theta
        k and theta; in the source theta0 and k = theta0 N.
    prompt_tokens, output_tokens
        mu_L >= 0, mu_O > 0, tokens.
    costs
        Times of the exclusive iterations.
    alpha_mixed_s, beta_mixed_s
        Fixed and per-token time of a mixed iteration; beta depends on its share of decode tokens.

    Raises
    ------
    InputError
        A parameter outside its domain.

    References
    ----------
    arXiv 2606.00516, crossover condition.

    Examples
    --------
    >>> costs = BatchingCosts(alpha_p_s=0.01, alpha_d_s=0.01, beta_p_s=2e-5, beta_d_s=3e-5)
    >>> test = dict(slots=128, threshold=12, theta=12 / 128, prompt_tokens=500, output_tokens=200, costs=costs)
    >>> crossover(**test, alpha_mixed_s=0.01, beta_mixed_s=2e-5).mixed_wins
    True
    >>> crossover(**test, alpha_mixed_s=0.01, beta_mixed_s=4e-5).mixed_wins
    False
    """
    n, k, share = positive("slots", slots), positive("threshold", threshold), finite("theta", theta)
    if not 0 < share < 1:
        raise InputError(f"theta is {theta!r}; expected a fraction in (0, 1)")
    prompt, output = nonnegative("prompt_tokens", prompt_tokens), positive("output_tokens", output_tokens)
    phases = costs.alpha_p_s - costs.alpha_d_s * math.log1p(-share) * output
    exclusive = phases / k + costs.beta_p_s * prompt + costs.beta_d_s * output
    mixed = nonnegative("alpha_mixed_s", alpha_mixed_s) * (1 + output) / n
    return Crossover(exclusive, mixed + nonnegative("beta_mixed_s", beta_mixed_s) * (prompt + output))


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

    n, p0 = positive_int("slots", slots), _probability(completion_probability)
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


def _probability(value: float) -> float:
    p0 = finite("completion_probability", value)
    if not 0 < p0 <= 1:
        raise InputError(f"completion_probability is {value!r}; expected a probability in (0, 1]")
    return p0
