"""The three records every rule reads and writes: one a request, one a resident, one of scalars.

Compiled, they are rows of numpy structured arrays; uncompiled, plain objects with the same field names, so that
`R[i].prompt` and `S[0].budget` mean the same to both. Times are picoseconds.
"""

from __future__ import annotations

__all__ = [
    "DECODE",
    "FREE",
    "NEVER",
    "PREFILL",
    "REASONS",
    "REQUEST_FIELDS",
    "SCALAR_FIELDS",
    "SCALAR_FLOATS",
    "SLOT_FIELDS",
    "STATUS",
    "STOPS",
    "Records",
    "make_records",
    "record_dtype",
]

import functools
from typing import Any, TypeAlias

import numpy as np

Records: TypeAlias = Any  # a structured array, or a list of plain objects with its field names

NEVER = -1
FREE, PREFILL, DECODE = 0, 1, 2  # phase of a slot
STATUS = ("future", "waiting", "running", "finished", "rejected")
REASONS = (
    "none",
    "longer than max_model_tokens",
    "larger than the KV cache",
    "longer than the token budget",
    "system full",
    "cancelled",
    "backpressure",
    "rerouted",
)
STOPS = ("running", "finished", "time", "backlog", "iterations", "stalled", "flush", "error")

REQUEST_FIELDS: tuple[tuple[str, str], ...] = (
    ("arrival", "i8"),
    ("limit", "i8"),  # TBT limit, 0 = none
    ("prompt", "i4"),
    ("output", "i4"),
    ("predicted", "i4"),  # the only output length a rule may read
    ("group", "i4"),  # class and tier, for the gap distributions
    ("cls", "i4"),
    ("priority", "i4"),  # lower is more urgent
    ("tenant", "i4"),
    ("paying", "i4"),
    ("key", "f8"),  # waiting order, smaller first
    ("front", "i8"),  # < 0: preempted, ahead of every key
    ("status", "i4"),
    ("reason", "i4"),
    ("gen", "i4"),  # output tokens delivered
    ("cached", "i4"),  # tokens whose KV waits in host memory (swapped, or arrived with the request)
    ("replay", "i4"),  # delivered tokens to compute again after a restart from scratch
    ("preempted", "i4"),
    ("over", "i4"),  # gaps above the limit
    ("victim", "i4"),  # whoever was preempted before it in this decision, -1 for nobody
    ("held", "i4"),  # 1 + the blocks a prefill node holds for it until its KV is carried away; not 0 until admitted
    ("seen", "i4"),  # most tokens cached in an earlier life: what is computed again is no service (tenants only)
    ("admit", "i8"),
    ("prefill_end", "i8"),
    ("first", "i8"),
    ("last", "i8"),  # completion of the previous token
    ("finish", "i8"),
    ("max_gap", "i8"),
    ("recomputed", "i8"),
    ("swapped", "i8"),
)

SLOT_FIELDS: tuple[tuple[str, str], ...] = (
    ("last", "i8"),
    ("limit", "i8"),
    ("lst", "i8"),  # last schedulable time of the next token
    ("max_gap", "i8"),
    ("id", "i4"),  # request index
    ("phase", "i4"),
    ("target", "i4"),  # tokens to prefill in this life
    ("cached", "i4"),  # tokens with KV on the device
    ("output", "i4"),
    ("gen", "i4"),
    ("replay", "i4"),
    ("blocks", "i4"),  # blocks held (reserved ones included)
    ("dec", "i4"),  # 1: decodes in this batch
    ("chunk", "i4"),  # prefill tokens in this batch
    ("over", "i4"),
    ("group", "i4"),
    ("sorted", "i4"),  # its place in the deadline list: 0 none yet, 1 has one, 2 keeps it, 3 to be found anew
    ("stage", "i4"),  # scratch of a rule
)

_INTEGERS = (
    # requests: all, announced, brought to the policy; residents, queue at the policy; in system, waiting; the clock
    *("n", "next", "joined", "nres", "nwait", "nsys", "nwaiting", "now"),
    "extras",  # 1 when any of tenants, watch, control and backpressure is on
    # settings
    *("budget", "max_seqs", "block", "total_blocks", "free", "watermark", "emit", "alloc", "whole", "warm"),
    *("preemptive", "seat", "swap_turn"),
    *("prompt_limit", "model_limit", "queue_limit", "preempt_mode", "to_front", "front", "dynamic", "drain"),
    *("kv_prefill", "swap_ps", "stop_time", "stop_backlog", "stop_iters", "chunk_stop", "macro", "check"),
    # the batch
    *(
        "ndec",
        "npre",
        "seqs",
        "pairs2",
        "kv",
        "pad",
        "swap_tokens",
        "npreempt",
        "victims",
        "returned",
        "must",
        "room",
        "repeat",
        "deaf",
    ),
    *("wake", "empties", "error", "error_id", "error_value"),
    # totals
    *("iters", "jumped", "prefill_tokens", "decode_tokens", "recomputed", "swapped", "preempted", "finished"),
    *("rejected", "sum_dur", "work", "peak_running", "peak_waiting", "peak_blocks"),
    *("area_t", "area_n_hi", "area_n_lo", "area_w_hi", "area_w_lo"),
    *("area_k_2", "area_k_1", "area_k_0"),
    # records
    *("gap_mode", "gap_from", "gap_to", "ngroups", "npairs", "pairs_cap", "stride", "nsamples", "samples_cap"),
    *("ntrace", "trace_cap"),
    # policies
    *(
        "ndl",
        "deadline",
        "decode_cap",
        "theta_lo",
        "theta_hi",
        "kv_high",
        "mean_kind",
        "rad",
        "tile_p",
        "tile_d",
        "cycle",
    ),
    *("intake", "pad_on", "refill", "want", "levels", "level", "tenants", "quota", "kinds", "reserve"),
    # the tree of cached prefixes (`prefix_tree`): where it stands in P, its nodes' size, the idle ones, totals
    *("tree", "nodes", "node_count", "node_blocks", "node_tokens", "idle_first", "idle_last", "idle_nodes"),
    *("held_nodes", "turn", "evicted_nodes", "merged_nodes", "searches", "searched_tokens", "hit_tokens"),
    # tenants: kept at all, their number, counters that order, whose request left the queue last; width of a sample
    *("account", "ntenants", "fair", "last_tenant", "row", "age", "due"),
    # bottlenecks: where their rows begin in P, how many there are and fit, the present one
    *("watch", "causes", "ncauses", "causes_cap", "cause"),
    # backpressure and control of the budget
    *("pressure", "press_waiting", "press_blocks", "full", "low", "control", "least", "most"),
    # the first prefill that found no block for its next chunk, and that chunk
    *("stuck", "stuck_tokens"),
    # a node of a cluster: given to it and not at the policy yet, where it stands, its batch's time, how far it may
    # jump, when arrivals end, a node that hands over its prefills, blocks held and promised, slow after a start, since
    # when it rests and why
    *("pending", "state", "took", "horizon", "closing", "hand", "handed", "held", "promised", "slow_until", "slow"),
    *("rested", "rest_cause"),
)

SCALAR_FLOATS = (
    *("c", "w", "a", "b", "beta", "e", "k", "s", "ewma", "ewma_weight"),
    *(
        "limit",
        "aim",
        "gain",
        "exceed",
        "forget",
        "slope",
        "fit_w",
        "fit_n",
        "fit_t",
        "fit_nn",
        "fit_nt",
    ),  # control of the budget
)
SCALAR_FIELDS: tuple[tuple[str, str], ...] = tuple((name, "i8") for name in _INTEGERS) + tuple(
    (name, "f8") for name in SCALAR_FLOATS
)


@functools.cache  # one object for all: numba knows a type it has met by its identity, another's fields it compares
def record_dtype(fields: tuple[tuple[str, str], ...]) -> np.dtype[Any]:
    """Return the aligned structured dtype of `fields`."""
    return np.dtype(list(fields), align=True)


def _plain_class(name: str, fields: tuple[tuple[str, str], ...]) -> type:
    names = tuple(f for f, _ in fields)

    def start(self: Any) -> None:
        for field, kind in fields:
            setattr(self, field, 0.0 if kind == "f8" else 0)

    return type(name, (), {"__slots__": names, "__init__": start, "__doc__": f"Plain {name} of an uncompiled run."})


_PLAIN = {
    fields: _plain_class(name, fields)
    for name, fields in (
        ("RequestRecord", REQUEST_FIELDS),
        ("SlotRecord", SLOT_FIELDS),
        ("ScalarRecord", SCALAR_FIELDS),
    )
}


@functools.cache
def _plain_kind(fields: tuple[tuple[str, str], ...]) -> type:
    return _PLAIN.get(fields) or _plain_class("Record", fields)


def make_records(fields: tuple[tuple[str, str], ...], count: int, compiled: bool) -> Records:
    """Return `count` zeroed records: a structured array when compiled, a list of plain objects when not."""
    if compiled:
        return np.zeros(count, dtype=record_dtype(fields))
    kind = _plain_kind(fields)
    return [kind() for _ in range(count)]
