"""Eviction rules: whose blocks are taken when a decode finds none free.

`rule(R, B, S, O, P, slot)` returns the victim's slot (it may be the asking `slot` itself), or -1: the asker waits.
"""

from __future__ import annotations

__all__ = [
    "evict_fewest_tokens",
    "evict_largest",
    "evict_last",
    "evict_last_in_order",
    "evict_lowest_priority",
    "evict_newest_token",
    "evict_none",
    "evict_prefill",
]

from typing import Any

from tileq_engine.records import Records

_PREFILL = 1


def evict_none(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from nobody: the decode is left out of this batch."""
    return -1


def evict_last(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from the resident admitted last."""
    return O[S[0].nres - 1]


def evict_lowest_priority(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from the resident with the largest (priority value, arrival), as vLLM v1 does under priorities."""
    worst = slot
    for k in range(S[0].nres):
        i = B[O[k]].id
        j = B[worst].id
        if R[i].priority > R[j].priority or (R[i].priority == R[j].priority and i > j):
            worst = O[k]
    return worst


def evict_prefill(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from the prefill begun last; where no prefill is going on, from the asking decode itself (SLAI)."""
    for k in range(S[0].nres - 1, -1, -1):
        if B[O[k]].phase == _PREFILL:
            return O[k]
    return slot


def evict_largest(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from the other resident of the largest prompt plus predicted output (ties: the later); else the asker."""
    worst = slot
    for k in range(S[0].nres):
        if O[k] == slot:
            continue
        r = R[B[O[k]].id]
        if worst == slot:
            worst = O[k]
            continue
        w = R[B[worst].id]
        size = r.prompt + r.predicted
        most = w.prompt + w.predicted
        if size > most or (size == most and B[O[k]].id > B[worst].id):
            worst = O[k]
    return worst


def evict_fewest_tokens(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from the resident with the fewest output tokens; of equals the longest prompt, then the later (SGLang)."""
    worst = slot
    for k in range(S[0].nres):
        b = B[O[k]]
        w = B[worst]
        if b.gen != w.gen:
            if b.gen < w.gen:
                worst = O[k]
        elif R[b.id].prompt != R[w.id].prompt:
            if R[b.id].prompt > R[w.id].prompt:
                worst = O[k]
        elif b.id > w.id:
            worst = O[k]
    return worst


def evict_newest_token(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from the resident whose last token is the newest (it can wait longest for the next); ties: admitted last."""
    best = slot
    for k in range(S[0].nres):
        if B[O[k]].last >= B[best].last:
            best = O[k]
    return best


def evict_last_in_order(R: Records, B: Records, S: Records, O: Any, P: Any, slot: int) -> Any:  # noqa: E741
    """Take from the resident that stood last in the waiting order: the largest (key, arrival)."""
    worst = slot
    for k in range(S[0].nres):
        i = B[O[k]].id
        j = B[worst].id
        if R[i].key > R[j].key or (R[i].key == R[j].key and i > j):
            worst = O[k]
    return worst
