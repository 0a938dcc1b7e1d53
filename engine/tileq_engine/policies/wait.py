"""WAIT and Nested WAIT."""

from __future__ import annotations

__all__ = ["nested_wait", "wait"]

import functools
import math
from collections.abc import Sequence

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.policies.common import checked_common, whole_numbers
from tileq_engine.policy import Policy, Prepared
from tileq_engine.requests import Requests
from tileq_engine.simulator_state import MOST_SEGMENTS
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

_RESTART = 2


def wait(
    *, thresholds: int | Sequence[int] | None = None, token_budget: int | None = None, max_num_seqs: int | None = None
) -> Policy:
    """WAIT: waiting for accumulated inference threshold (Ao, Luo, Simchi-Levi, Wang, arXiv 2504.11320).

    Class j moves when n_j of its prompts have gathered: that iteration runs n_j prompts, whole, and one token of
    every resident of the class; a class that does not move stands still, its KV held. `thresholds` are the n_j by
    class; left out, they are the fluid's n_j = lambda_j DeltaT*, DeltaT* = d0/(1 - d1 S), from the requests' rates
    and mean lengths. Overflow evicts the last admitted, which starts from scratch (tokens it had delivered are
    computed again, not delivered again). It optimises throughput under a memory limit, by keeping every batch at
    the fluid's composition. It fails at light load and in the tail of a finite run, where requests stand and wait
    for company: TTFT and TBT are unbounded. When no arrival is to come, every class moves with what it has; the
    token budget does not apply.
    """
    given = whole_numbers("threshold", thresholds)

    return Policy(
        name="wait",
        mixing="mix_wait",
        admission="admit_always",
        params={"thresholds": None if given is None else tuple(given)},
        scalars={"alloc": 1, "to_front": 1, "preempt_mode": _RESTART, "dynamic": 1},
        prepare=functools.partial(_by_class, given),
        macro=False,
        **checked_common(token_budget, max_num_seqs),
    )


def nested_wait(
    *,
    boundaries: int | Sequence[int] | None = None,
    thresholds: int | Sequence[int] | None = None,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """Nested WAIT: WAIT without knowing output lengths (Ao, Luo, Simchi-Levi, Wang, arXiv 2504.11320).

    Output stages are cut at `boundaries` l_1 < l_2 < ... into segments; a request gathers before segment i when it
    has decoded l_(i-1) tokens. An iteration moves segments 1..k, k the largest for which every segment up to it has
    gathered its threshold: n_i of those gathered before segment i, and everybody inside. Left out, boundaries are
    the quartiles of the outputs, and thresholds the fluid's lambda P(O > l_(i-1)) DeltaT*. Eviction, the end of
    arrivals and the budget are as in `wait`. It optimises throughput under a memory limit, robustly to unknown
    lengths. It fails as WAIT does, and long requests wait again before every segment.
    """
    marks = whole_numbers("boundary", boundaries)
    given = whole_numbers("threshold", thresholds)
    if marks is not None and (sorted(set(marks)) != marks or len(marks) >= MOST_SEGMENTS):
        raise InputError(f"boundaries are {marks}; expected at most {MOST_SEGMENTS - 1} increasing token counts")
    if given is not None and marks is not None and len(given) != len(marks) + 1:
        raise InputError(f"{len(given)} thresholds and {len(marks)} boundaries; expected one threshold more")
    if given is not None and marks is None:
        raise InputError("thresholds are given without boundaries; give both, or neither")

    return Policy(
        name="nested_wait",
        mixing="mix_nested_wait",
        admission="admit_always",
        params={"boundaries": marks, "thresholds": given},
        scalars={"alloc": 1, "to_front": 1, "preempt_mode": _RESTART, "dynamic": 1},
        prepare=functools.partial(_by_segment, marks, given),
        macro=False,
        **checked_common(token_budget, max_num_seqs),
    )


def _by_class(
    given: list[int] | None, policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig
) -> Prepared:
    kinds = int(requests.class_index.max()) + 1 if len(requests) else 1
    if given is not None and len(given) < kinds:
        raise InputError(f"{len(given)} thresholds are given; expected one for each of the {kinds} classes")
    numbers = given if given is not None else _fluid(requests, time, kinds)
    return Prepared(requests, {"kinds": len(numbers)}, tuple(numbers))


def _by_segment(
    marks: list[int] | None,
    given: list[int] | None,
    policy: Policy,
    requests: Requests,
    time: IterationTime,
    config: EngineConfig,
) -> Prepared:
    cuts = marks if marks is not None else _quartiles(requests)
    starts = [0, *cuts]
    numbers = given if given is not None else _nested_fluid(requests, time, starts)
    return Prepared(requests, {"kinds": len(starts)}, (*starts, *numbers))


def _iteration_s(requests: Requests, time: IterationTime) -> float:
    """Return DeltaT* = d0/(1 - d1 S), S = sum over requests per second of (O + 1)(P + O/2)."""
    span = float(requests.arrival_ps[-1] - requests.arrival_ps[0]) * 1e-12 if len(requests) > 1 else 0.0
    d0 = time.launch_s + time.weight_floor_s + time.tile_s
    if span <= 0:
        return d0
    P, D = requests.prompt_tokens.astype(float), requests.output_tokens.astype(float)
    load = time.kv_token_s * float(((D + 1) * (P + D / 2)).sum()) / span
    if load >= 1:
        raise InputError(f"the fluid load d1 S is {load:.3g}, 1 or more: no threshold is stable; give thresholds")
    return d0 / (1 - load)


def _fluid(requests: Requests, time: IterationTime, kinds: int) -> list[int]:
    counts = np.bincount(requests.class_index, minlength=kinds) if len(requests) else np.zeros(kinds)
    return [_number(float(c), requests, time) for c in counts]


def _number(count: float, requests: Requests, time: IterationTime) -> int:
    span = float(requests.arrival_ps[-1] - requests.arrival_ps[0]) * 1e-12 if len(requests) > 1 else 0.0
    return max(1, math.ceil(count / span * _iteration_s(requests, time))) if span > 0 else 1


def _quartiles(requests: Requests) -> list[int]:
    quartiles = np.quantile(requests.output_tokens, [0.25, 0.5, 0.75], method="inverted_cdf") if len(requests) else []
    return sorted({int(q) for q in quartiles})


def _nested_fluid(requests: Requests, time: IterationTime, starts: list[int]) -> list[int]:
    return [_number(float((requests.output_tokens > start).sum()), requests, time) for start in starts]
