"""vLLM v1's mixing: residents in order of admission, decodes and chunks alike, then waiting requests."""

from __future__ import annotations

__all__ = ["mix_in_order"]

from typing import Any

from tileq_engine.batch import preempt, take_chunk, take_decode
from tileq_engine.records import Records
from tileq_engine.rules.mixing.chunked import closed, fill_waiting

_DECODE = 2


def mix_in_order(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    decodes: Any,
    order: Any,
    admit: Any,
    victim: Any,
) -> None:
    """Give every resident in order its token or its next chunk until the budget is spent, then admit.

    A resident for which no block is free preempts the eviction rule's victim (whose tokens return to the budget if
    it was in the batch already) until there is one or it is the victim itself, which ends the pass. An iteration
    that preempted admits nobody. The decodes rule is not asked.
    """
    s = S[0]
    room = s.budget
    k = 0
    while k < s.nres and room > 0:
        slot = O[k]
        b = B[slot]
        decode = b.phase == _DECODE
        want = 1
        if not decode:
            want = b.target - b.cached
            if want > room:
                want = room
        taken = take_decode(b, s) if decode else take_chunk(b, s, want)
        stop = False
        while not taken:
            out = victim(R, B, S, O, P, slot)
            if out < 0:
                break
            before = s.ndec + s.npre
            at = preempt(R, B, S, H, O, P, out, order)
            room += before - s.ndec - s.npre
            if at < 0 or out == slot:
                stop = True
                break
            if at < k:
                k -= 1
            taken = take_decode(b, s) if decode else take_chunk(b, s, want)
        if stop:
            break
        if taken:
            room -= want
        k += 1
    if s.npreempt == 0 and room > 0:
        room = fill_waiting(R, B, S, H, O, P, room, order, admit)
    s.deaf = closed(S, room)
    s.repeat = 1
    for k in range(s.nres):
        if B[O[k]].dec == 0 and B[O[k]].chunk == 0:
            s.repeat = 0
    if s.dynamic == 1 and s.nwait > 0 and s.deaf == 0:
        s.repeat = 0
