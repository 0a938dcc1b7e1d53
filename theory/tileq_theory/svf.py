r"""Smallest volume first (Kong, Qi, Ye, Zhou): order requests by the memory-time they will take.

A request with prompt s and output o holds s + t KV tokens after t of its o decode steps, so its volume is

    vol = s o + (o + o^2)/2 = sum_{t=1..o} (s + t).

All requests present at time 0, no preemption, memory M, peaks s + o <= alpha M with alpha < 1:

    total latency of any schedule  >= (1/M) sum_j sum_{i <= j} vol_(i)                              (Proposition 3.1)
    total latency of SVF           <= sum_j o_j + 2/((1 - alpha) M) sum_j sum_{i < j} vol_(i)       (Lemma A.2)
    SVF / best                     <= 1 + 2/(1 - alpha)                                             (Theorem 3.2)

(i) is ascending volume order and time is in decode steps. Source: arXiv 2606.22327.
"""

from __future__ import annotations

__all__ = ["SvfBounds", "competitive_ratio", "svf_bounds", "svf_order", "volume"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tileq_theory.errors import InputError, finite, positive


def volume(
    prompts_tokens: Int[np.ndarray, "request"], outputs_tokens: Int[np.ndarray, "request"]
) -> Int[np.ndarray, "request"]:
    r"""Return vol = s o + (o + o^2)/2 of each request, token steps, exact.

    Parameters
    ----------
    prompts_tokens, outputs_tokens
        s >= 0 and o >= 1, whole numbers.

    Raises
    ------
    InputError
        Arrays of different lengths, a negative prompt or an output below 1.

    Examples
    --------
    >>> volume(np.array([10, 100]), np.array([20, 1])).tolist()
    [410, 101]
    """
    s, o = np.asarray(prompts_tokens, dtype=np.int64), np.asarray(outputs_tokens, dtype=np.int64)
    if s.shape != o.shape:
        raise InputError(f"{s.size} prompts and {o.size} outputs given; expected as many")
    for index in np.flatnonzero((s < 0) | (o < 1)):
        raise InputError(
            f"request {index} has prompt {s[index]} and output {o[index]}; expected a prompt of 0 or more "
            "and an output of at least 1"
        )
    product: Int[np.ndarray, "request"] = s * o + (o + o * o) // 2
    return product


def svf_order(
    prompts_tokens: Int[np.ndarray, "request"], outputs_tokens: Int[np.ndarray, "request"]
) -> Int[np.ndarray, "request"]:
    """Return request indices in ascending volume, ties in the order given.

    Examples
    --------
    >>> svf_order(np.array([10, 100, 0]), np.array([20, 1, 30])).tolist()
    [1, 0, 2]
    """
    return np.argsort(volume(prompts_tokens, outputs_tokens), kind="stable").astype(np.int64)


def competitive_ratio(alpha: float) -> float:
    r"""Return 1 + 2/(1 - alpha), the competitive ratio of SVF when every peak s + o is at most alpha M.

    Parameters
    ----------
    alpha
        Largest peak over memory, in [0, 1).

    Raises
    ------
    InputError
        alpha outside [0, 1): the theorem does not apply.

    References
    ----------
    arXiv 2606.22327, Theorem 3.2 (requests all present at time 0).

    Examples
    --------
    >>> competitive_ratio(0.5), competitive_ratio(0.0)
    (5.0, 3.0)
    """
    share = finite("alpha", alpha)
    if not 0 <= share < 1:
        raise InputError(f"alpha is {alpha!r}; expected a share in [0, 1): the largest peak s + o must be below M")
    return 1 + 2 / (1 - share)


@dataclass(frozen=True, slots=True)
class SvfBounds:
    """Bounds of the total latency of a set of requests that are all present at time 0, in decode steps.

    Parameters
    ----------
    alpha
        Largest peak s + o over M.
    lower_steps
        No schedule has a smaller total latency: the larger of Proposition 3.1 and the decode steps themselves.
    svf_upper_steps
        Smallest volume first has at most this total latency (Lemma A.2).
    ratio
        1 + 2/(1 - alpha) (Theorem 3.2).
    """

    alpha: float
    lower_steps: float
    svf_upper_steps: float
    ratio: float


def svf_bounds(
    prompts_tokens: Int[np.ndarray, "request"],
    outputs_tokens: Int[np.ndarray, "request"],
    *,
    kv_capacity_tokens: float,
) -> SvfBounds:
    r"""Return the bounds of the total latency of a burst.

    Parameters
    ----------
    prompts_tokens, outputs_tokens
        s >= 0 and o >= 1, whole numbers, at least one request.
    kv_capacity_tokens
        M, above the largest peak s + o.

    Raises
    ------
    InputError
        No request, a number outside its domain, or a peak that is not below M.

    Examples
    --------
    >>> bounds = svf_bounds(np.array([10, 10]), np.array([20, 40]), kv_capacity_tokens=100)
    >>> bounds.alpha, bounds.lower_steps, bounds.ratio
    (0.5, 60.0, 5.0)
    """
    volumes = np.sort(volume(prompts_tokens, outputs_tokens))
    if volumes.size == 0:
        raise InputError("no request given; expected at least one")
    memory = positive("kv_capacity_tokens", kv_capacity_tokens)
    peak = int(np.max(np.asarray(prompts_tokens) + np.asarray(outputs_tokens)))
    if peak >= memory:
        raise InputError(f"the largest peak is {peak} tokens; expected it below kv_capacity_tokens = {memory:g}")
    alpha, steps = peak / memory, float(np.sum(outputs_tokens))
    prefix = np.cumsum(volumes.astype(float))
    waiting = 2 * math.fsum(prefix - volumes) / ((1 - alpha) * memory)
    return SvfBounds(alpha, max(math.fsum(prefix) / memory, steps), steps + waiting, competitive_ratio(alpha))
