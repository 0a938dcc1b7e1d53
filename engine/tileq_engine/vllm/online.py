"""Refitting while serving: the iteration time from what has just run, a budget and an offset from it, within limits.

Off unless the settings say `online.enabled`. At budget n a request of the plan's demand costs, in seconds,

    (P + D)/n tau(n) + e A + k K + s (P/n + D),

P prefill and D decode tokens, A query-key pairs, K KV tokens read. The budget taken is the smallest within 1 % of the
best one, among those whose iterations fit into the shortest TBT limit. The offset Theta (SLAI) is the largest for which
Theta mean iterations are half that limit: beyond it nearly every decode is critical, and SLAI is Sarathi-Serve.
"""

from __future__ import annotations

__all__ = ["Refit", "best_budget", "refit"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_engine.vllm.settings import Online
from tileq_theory.iteration_time import IterationTime

_TOLERANCE = 0.01
_SHARE = 0.5
_STALL = 20.0  # times its fit: an iteration that takes longer stood still for a reason outside the engine
_POINTS = 1024  # a fit takes milliseconds then


@dataclass(frozen=True, slots=True)
class Refit:
    """A fit with what it advises: token budget, offset, the rate it promises and the median relative error."""

    time: IterationTime
    token_budget: int
    theta: float
    rate_per_s: float
    median_error: float


def request_s(time: IterationTime, demand: Mapping[str, float], budgets: Sequence[int]) -> Float[np.ndarray, "budget"]:
    """Return the seconds of machine time that a request of `demand` takes at each budget."""
    n = np.asarray(budgets, dtype=float)
    prefill, decode = float(demand["prefill_tokens"]), float(demand["decode_tokens"])
    fixed = time.pair_s * float(demand.get("attention_pairs", 0.0))
    fixed += time.kv_token_s * float(demand.get("kv_read_tokens", 0.0))
    sequences = time.sequence_s * (prefill / n + decode)
    found: np.ndarray = (prefill + decode) / n * np.asarray(time.tau_s(n)) + fixed + sequences
    return found


def best_budget(
    time: IterationTime, demand: Mapping[str, float], limits: Online, shortest_limit_s: float
) -> tuple[int, float]:
    """Return the budget to take and its rate, requests/s.

    Examples
    --------
    >>> time = IterationTime(launch_s=0.01, token_s=1e-5)
    >>> best_budget(time, {"prefill_tokens": 900, "decode_tokens": 100}, Online(most_budget=512), 1.0)[0]
    512
    """
    low, high = limits.least_budget, limits.most_budget
    steps = np.unique(np.concatenate([np.arange(low, high, 8), [high]]))
    inside = steps[np.asarray(time.tau_s(steps.astype(float))) <= shortest_limit_s]
    if not inside.size:
        inside = steps[:1]
    rates = 1.0 / request_s(time, demand, inside.tolist())
    place = int(np.argmax(rates >= (1.0 - _TOLERANCE) * rates.max()))
    return int(inside[place]), float(rates[place])


def refit(
    recent: Sequence[tuple[int, int, int, int, int]],
    demand: Mapping[str, float],
    limits: Online,
    shortest_limit_s: float,
) -> Refit:
    """Fit the iterations (n, A, K, m, picoseconds) and return what to run with."""
    from tileq_engine.executor.light_fit import light_fit

    table = np.asarray(recent[-_POINTS:], dtype=float)
    seconds = table[:, 4] * 1e-12
    fit = light_fit(table[:, :4], seconds, floor=False, stall=_STALL)
    budget, rate = best_budget(fit.time, demand, limits, shortest_limit_s)
    theta = _SHARE * shortest_limit_s / float(np.mean(fit.time(*table[:, :4].T)))
    theta = min(max(theta, limits.least_theta), limits.most_theta)
    return Refit(fit.time, budget, theta, rate, fit.median_error)
