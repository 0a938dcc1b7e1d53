"""The arrays of one run, made from requests, policy, iteration time and settings."""

from __future__ import annotations

__all__ = ["State", "make_state", "request_records"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.clock import PS_PER_S, coefficients
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.prefix_region import prefix_region
from tileq_engine.records import REQUEST_FIELDS, SCALAR_FIELDS, SCALAR_FLOATS, SLOT_FIELDS, Records, make_records
from tileq_engine.requests import Requests
from tileq_engine.simulator_extras import extras
from tileq_theory.iteration_time import IterationTime

_FAR = 2**62
_EXACT_UP_TO = 100_000
_PAIR_ROOM = 1 << 16
_BLOCK = 4096  # records copied field by field at a time: they stay in the processor's cache
GAP_BINS = 7296  # 128 * (55 + 2): every gap below 2**63 ps
GAP_FIELDS, SAMPLE_FIELDS, TRACE_FIELDS = 6, 15, 6
MOST_SEGMENTS = 64  # of Nested WAIT, which counts them behind the slots in W
_TIMES = ("admit", "prefill_end", "first", "last", "finish")
_PREEMPTION = {"recompute": 0, "swap": 1, "none": 0}


@dataclass(slots=True)
class State:
    """Everything the loop works on; `scalars` is S[0]."""

    R: Records
    B: Records
    S: Records
    H: Any
    O: Any  # noqa: E741
    W: Any
    P: Any
    GS: Any
    GP: Any
    GH: Any
    GC: Any
    SA: Any
    TR: Any
    D: Any
    compiled: bool

    @property
    def decision(self) -> tuple[Any, ...]:
        """Arguments of a decision."""
        return self.R, self.B, self.S, self.H, self.O, self.W, self.P

    @property
    def loop(self) -> tuple[Any, ...]:
        """Arguments of the loop."""
        return (*self.decision, self.GS, self.GP, self.GH, self.GC, self.SA, self.TR, self.D)

    def scalar(self, name: str) -> int:
        """Return an integer field of S[0]."""
        return int(self.S[name][0]) if self.compiled else int(getattr(self.S[0], name))

    def set_scalars(self, values: Mapping[str, float]) -> None:
        """Set fields of S[0]."""
        for name, value in values.items():
            number = float(value) if name in SCALAR_FLOATS else int(value)
            if self.compiled:
                self.S[name][0] = number
            else:
                setattr(self.S[0], name, number)

    def set_request(self, i: int, values: Mapping[str, float]) -> None:
        """Set fields of request `i`."""
        for name, value in values.items():
            if self.compiled:
                self.R[name][i] = value
            else:
                setattr(self.R[i], name, value)

    def columns(self, *names: str) -> list[np.ndarray]:
        """Return fields of every request, int64."""
        if not self.compiled:
            return [np.array([getattr(r, name) for r in self.R], dtype=np.int64) for name in names]
        out = [np.empty(len(self.R), dtype=np.int64) for _ in names]
        for start in range(0, len(self.R), _BLOCK):
            part = slice(start, start + _BLOCK)
            for values, name in zip(out, names, strict=True):
                values[part] = self.R[name][part]
        return out

    def column(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return one field of every request (or of those from `start` to `stop`), int64."""
        if self.compiled:
            return np.ascontiguousarray(self.R[name][start:stop], dtype=np.int64)
        return np.array([getattr(r, name) for r in self.R[start:stop]], dtype=np.int64)

    def held_on_host(self, ids: Int[np.ndarray, "request"]) -> Bool[np.ndarray, "request"]:
        """Return which of these requests have their KV in host memory."""
        if self.compiled:
            return np.asarray(self.R["cached"][ids] > 0)
        return np.array([self.R[i].cached > 0 for i in ids.tolist()], dtype=bool)


def _integers(count: int, compiled: bool) -> Any:
    return np.zeros(count, dtype=np.int64) if compiled else [0] * count


def make_state(
    requests: Requests,
    policy: Policy,
    time: IterationTime,
    config: EngineConfig,
    *,
    compiled: bool,
    macro: bool,
    capacity: int | None = None,
    records: bool = True,
) -> State:
    """Return the arrays at time 0. `config` holds the policy's own budget and slots already.

    `capacity` is the number of request records when more than `requests` are to be added later; without `records`
    there are none.
    """
    prepared = policy.prepare(policy, requests, time, config) if policy.prepare else None
    if prepared is not None:
        requests = prepared.requests
    n = len(requests) if capacity is None else capacity
    groups = max(1, len(requests.group_names))
    exact = config.gap_mode == "exact" or (config.gap_mode == "auto" and len(requests) <= _EXACT_UP_TO)
    slots = min(config.max_num_seqs, max(n, 1))
    S = make_records(SCALAR_FIELDS, 1, compiled)
    own = list(prepared.integers) if prepared else []
    extra, integers = extras(
        requests, policy, time, config, dict(prepared.scalars) if prepared else {}, len(own), SAMPLE_FIELDS
    )
    integers = [*own, *integers]
    region, tree = _prefix_tree(requests, config, len(integers) + 1, n)
    state = State(
        R=request_records(requests, n, compiled) if records else make_records(REQUEST_FIELDS, 0, compiled),
        B=make_records(SLOT_FIELDS, slots, compiled),
        S=S,
        H=_integers(max(n, 1) if records else 1, compiled),
        O=np.arange(slots, dtype=np.int64) if compiled else list(range(slots)),
        W=_integers(2 * slots + MOST_SEGMENTS, compiled),
        P=_policy_integers(integers, region, compiled),
        GS=_integers(groups * GAP_FIELDS, compiled),
        GP=_integers(3 * (_PAIR_ROOM + 2 * slots if exact else 1), compiled),
        GH=_integers(1 if exact else groups * GAP_BINS, compiled),
        GC=_integers(groups, compiled),
        SA=_integers(int(extra["samples_cap"] * extra["row"]), compiled),
        TR=_integers(max(config.trace_limit, 1) * TRACE_FIELDS, compiled),
        D=_integers(4096, compiled),
        compiled=compiled,
    )
    for g in range(groups):
        state.GS[g * GAP_FIELDS + 5] = -1
    _set_scalars(state, requests, policy, time, config, slots=slots, exact=exact, macro=macro)
    if prepared is not None:
        state.set_scalars(prepared.scalars)
    state.set_scalars(extra)
    state.set_scalars(tree)
    if config.pins_steps:
        state.set_scalars({"macro": 0})
    return state


def _prefix_tree(
    requests: Requests, config: EngineConfig, start: int, capacity: int
) -> tuple[Int[np.ndarray, "integer"], Mapping[str, float]]:
    """Return the tree's part of P and its scalars; nothing where there is no prefix cache, or nothing to look up."""
    if not config.prefix_cache or requests.blocks is None:
        return np.zeros(0, dtype=np.int64), {}
    return prefix_region(requests.blocks, start, config.block_tokens, capacity)


def _policy_integers(integers: list[int], region: Int[np.ndarray, "integer"], compiled: bool) -> Any:
    """Return P: the policy's integers, one that separates, and the prefix tree's."""
    whole = np.concatenate([np.array([*integers, 0], dtype=np.int64), region])
    return whole if compiled else whole.tolist()


def _set_scalars(
    state: State,
    requests: Requests,
    policy: Policy,
    time: IterationTime,
    config: EngineConfig,
    *,
    slots: int,
    exact: bool,
    macro: bool,
) -> None:
    total = config.kv_blocks
    c, w, a, b, beta, e, k, s = coefficients(time)
    groups = max(1, len(requests.group_names))
    bound = config.stop_iterations
    values: dict[str, Any] = {
        "n": len(requests),
        "budget": config.token_budget,
        "max_seqs": config.max_num_seqs,  # the arrays are as long as the requests are many, the limit is not
        "block": config.block_tokens,
        "total_blocks": total,
        "free": total,
        "watermark": 0 if config.kv_tokens is None else int(config.watermark * total),
        "warm": int(bool(np.any(requests.prefilled_tokens > 0))),
        "seat": 1,
        "emit": int(config.convention == "engine"),
        "prompt_limit": _FAR if config.oversize == "wait" else config.token_budget,
        "model_limit": config.max_model_tokens or 0,
        "queue_limit": config.queue_limit or 0,
        "preempt_mode": _PREEMPTION[config.preemption],
        "kv_prefill": int(time.kv_counts_prefill),
        "swap_ps": round(config.swap_token_s * PS_PER_S),
        "stop_time": _FAR if config.stop_time_s is None else round(config.stop_time_s * PS_PER_S),
        "stop_backlog": config.stop_backlog or _FAR,
        "stop_iters": bound or _FAR,
        "chunk_stop": _FAR,
        "horizon": _FAR,
        "handed": -1,
        "macro": int(macro and config.trace_limit == 0),
        "check": int(config.check or bool(policy.own_rules)),
        "gap_mode": int(not exact),
        "gap_from": round(config.gap_from_s * PS_PER_S),
        "gap_to": _FAR if config.gap_to_s is None else round(config.gap_to_s * PS_PER_S),
        "ngroups": groups,
        "pairs_cap": len(state.GP) // 3,
        "stride": 1,
        "trace_cap": config.trace_limit,
        "decode_cap": _FAR,
        "kv_high": 2000,
        "ewma_weight": 0.1,
        "peak_blocks": 0,
        **dict(zip(("c", "w", "a", "b", "beta", "e", "k", "s"), (c, w, a, b, beta, e, k, s), strict=True)),
        **policy.scalars,
    }
    if config.preemption == "none":
        values["preemptive"] = 0
    state.set_scalars(values)


def request_records(requests: Requests, n: int, compiled: bool) -> Records:
    """Return `n` records of which the first are those of `requests`, as they are before they arrive."""
    R = make_records(REQUEST_FIELDS, n, compiled)
    columns: dict[str, np.ndarray] = {
        "arrival": requests.arrival_ps,
        "limit": requests.tbt_limit_ps,
        "prompt": requests.prompt_tokens,
        "output": requests.output_tokens,
        "predicted": requests.predicted_output_tokens,
        "group": requests.group,
        "cls": requests.class_index,
        "priority": requests.priority,
        "tenant": requests.tenant,
        "paying": requests.paying.astype(np.int64),
        "cached": requests.prefilled_tokens,
    }
    m = len(requests)
    if compiled:
        for start in range(0, n, _BLOCK):
            part = slice(start, start + _BLOCK)
            for name, column in columns.items():
                R[name][start : min(start + _BLOCK, m)] = column[part]
            for name in _TIMES:
                R[name][part] = -1
        return R
    for name, column in columns.items():
        for r, value in zip(R, column.tolist(), strict=False):
            setattr(r, name, value)
    for r in R:
        r.admit = r.prefill_end = r.first = r.last = r.finish = -1
    return R
