"""Orders by a moment that a request carries: priority with aging, and earliest deadline first."""

from __future__ import annotations

__all__ = ["edf", "overtaking_s", "priority_aging"]

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tileq_engine.clock import PS_PER_S
from tileq_engine.config import EngineConfig
from tileq_engine.policies.base import base_policy
from tileq_engine.policies.common import both, prepared_order
from tileq_engine.policy import Policy, Prepared
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, nonnegative, positive
from tileq_theory.iteration_time import IterationTime

_LATEST_PS = 4 * 10**18


def priority_aging(
    *,
    step_s: float = 10.0,
    base: str = "vllm_v1",
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    r"""Priority with linear aging: a step of priority is worth `step_s` seconds of waiting.

    The next to be admitted has the least arrival + step_s * priority; whoever must give blocks back is the resident
    with the largest. It is the order by priority - wait/step_s, in which waiting lowers the priority value linearly;
    since all who wait age alike, the order never changes and one number a request will do.

    *Nobody starves.* Let i arrive at a_i with priority p_i, and p the least value there is. Request j stands before i
    only if a_j + step_s p_j <= a_i + step_s p_i, so that a_j <= a_i + step_s (p_i - p_j) <= T_i with

        T_i = a_i + step_s (p_i - p).

    Nobody who arrives after T_i is admitted before i, at any load and for ever, unless i's tenant is at its quota: who
    may not be admitted is passed over. Without quotas, while i waits beyond T_i all residents are of those who were
    there at T_i and either resident or before i in order; if w_i tokens of them are left at T_i, nobody is preempted
    and no iteration is longer than t, then each further iteration serves at least one of these tokens, and after the
    last of them i stands first before an empty system:

        admission - a_i <= step_s (p_i - p) + (w_i + 1) t.

    It optimises the urgent class's latency with a bound on what that costs the others. With step_s = 0 it is first
    come, first served; as step_s grows it becomes strict priority, and the bound goes.
    """
    step = nonnegative("step_s", step_s)
    if step > _LATEST_PS / PS_PER_S:
        raise InputError(f"step_s is {step_s!r}; expected seconds up to {_LATEST_PS / PS_PER_S:g} (the clock's end)")
    under = base_policy(base, token_budget=token_budget, max_num_seqs=max_num_seqs)
    return replace(
        under,
        name="priority_aging",
        order=prepared_order("aged"),
        eviction="evict_last_in_order",
        params={"step_s": step, "base": base},
        scalars={**under.scalars, "to_front": 0, "age": round(step * PS_PER_S)},
        prepare=both(under.prepare, _age_fits),
    )


def overtaking_s(requests: Requests, step_s: float) -> np.ndarray:
    """Return how long after its arrival each request can still be overtaken under `priority_aging`, seconds.

    step_s (priority - least priority); whoever arrives later stands behind it.

    Examples
    --------
    >>> asked = Requests.from_arrays(arrival_s=[0, 1], prompt_tokens=5, output_tokens=5, priority=[2, 0])
    >>> overtaking_s(asked, 10.0).tolist()
    [20.0, 0.0]
    """
    behind: np.ndarray = (requests.priority - requests.priority.min()) * nonnegative("step_s", step_s)
    return behind


def _age_fits(policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig) -> Prepared:
    most = int(np.abs(requests.priority).max()) * int(policy.scalars["age"]) if len(requests) else 0
    if most > _LATEST_PS:
        raise InputError(
            f"priority {int(np.abs(requests.priority).max())} times step_s {policy.params['step_s']:g} is beyond the "
            f"clock's end, {_LATEST_PS / PS_PER_S:g} s; lower step_s"
        )
    return Prepared(requests)


def edf(
    *,
    ttft_s: float | Sequence[float] = 1.0,
    base: str = "vllm_v1",
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """Earliest deadline first: waiting requests stand by arrival + what they are allowed until the first token.

    `ttft_s` is one number, or one for each class; deadlines of `Tenants` in the settings come before it. Whoever must
    give blocks back is the resident whose deadline is the latest. It optimises the number of first tokens in time while
    all can be (on one preemptive server no order meets deadlines that this one misses: Dertouzos, 1974). It fails
    beyond that: under overload it serves whoever is late already, and soon everybody is late, the long-waiting and
    the urgent alike. Nobody starves: who arrives later than the largest allowance stands behind (a tenant at its quota
    is passed over).
    """
    given = list(ttft_s) if isinstance(ttft_s, list | tuple | np.ndarray) else [ttft_s]
    allowed = [_allowance(value) for value in given]
    if not allowed:
        raise InputError("ttft_s is empty; expected one number of seconds, or one for each class")
    under = base_policy(base, token_budget=token_budget, max_num_seqs=max_num_seqs)
    return replace(
        under,
        name="edf",
        order=prepared_order("deadline"),
        eviction="evict_last_in_order",
        params={"ttft_s": allowed[0] if len(allowed) == 1 else allowed, "base": base},
        scalars={**under.scalars, "to_front": 0},
        prepare=both(under.prepare, functools.partial(_deadlines, allowed)),
    )


def _allowance(value: Any) -> float:
    if positive("ttft_s", value) > _LATEST_PS / PS_PER_S:
        raise InputError(f"ttft_s is {value!r}; expected seconds up to {_LATEST_PS / PS_PER_S:g} (the clock's end)")
    return float(value)


def _deadlines(
    allowed: list[float], policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig
) -> Prepared:
    classes = int(requests.class_index.max()) + 1 if len(requests) else 1
    seconds = allowed * classes if len(allowed) == 1 else allowed
    if config.tenants is not None and config.tenants.deadlines_s:
        seconds = _by_class(requests, config.tenants.deadlines_s, classes)
    if len(seconds) < classes:
        raise InputError(f"ttft_s has {len(seconds)} values; expected one, or one for each of {classes} classes")
    return Prepared(requests, {"due": 0}, tuple(round(value * PS_PER_S) for value in seconds))


def _by_class(requests: Requests, deadlines_s: Sequence[float], classes: int) -> list[float]:
    """Return the tenants' deadlines by class; a class is of one tenant."""
    found = [max(deadlines_s)] * classes
    for kind in range(classes):
        tenants = np.unique(requests.tenant[requests.class_index == kind])
        if len(tenants) > 1:
            raise InputError(
                f"class {kind} has requests of tenants {tenants.tolist()}; deadlines go by class: give each tenant a "
                "class of its own"
            )
        if len(tenants):
            found[kind] = deadlines_s[int(tenants[0])]
    return found
