"""Chunked mixing: must-serve decodes, ongoing prefills, waiting requests, then the other decodes, within the budget."""

from __future__ import annotations

__all__ = ["mix_chunked"]

from typing import Any

from tileq_engine.batch import admit_request, head, remove_waiting, secure_decode, take_chunk, take_decode
from tileq_engine.records import Records

_PREFILL, _DECODE = 1, 2


def fill_ongoing(B: Records, S: Records, O: Any, room: int) -> Any:  # noqa: E741
    """Give ongoing prefills, in order of admission, chunks of what the budget leaves; return what is left of it."""
    s = S[0]
    for k in range(s.nres):
        b = B[O[k]]
        if room > 0 and b.phase == _PREFILL and b.chunk == 0:
            chunk = b.target - b.cached
            if chunk > room:
                if s.whole == 1 and s.npre > 0:
                    continue
                chunk = room
            if take_chunk(b, s, chunk):
                room -= chunk
    return room


def fill_waiting(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    room: int,
    order: Any,
    admit: Any,
) -> Any:
    """Admit waiting requests in order while slots, budget and the gate allow; return what is left of the budget.

    The first that does not fit stops the line. A request that comes back with its KV decodes at once.
    """
    s = S[0]
    while room > 0 and s.nres < s.max_seqs:
        place = head(R, S, H, P, order)
        if place < 0:
            break
        i = H[place]
        r = R[i]
        chunk = r.prompt + r.gen - r.replay
        if s.whole == 1 and r.cached == 0 and chunk > room and (chunk <= s.budget or s.npre > 0):
            break
        s.room = room
        if admit(R, B, S, P, i) == 0:
            break
        b = B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, place))]
        if b.phase == _DECODE:
            if take_decode(b, s):
                room -= 1
        else:
            if chunk > room and s.whole == 0:
                chunk = room
            if take_chunk(b, s, chunk):
                room -= chunk
    return room


def mix_chunked(
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
    """Fill the batch: decodes that must be served (not capped by the budget), prefills, the other decodes.

    Sarathi-Serve is this rule with all decodes first, Orca with all decodes after, SLAI with the critical ones
    first. An iteration that preempted admits nobody.
    """
    s = S[0]
    n = decodes(R, B, S, O, W, P)
    must = s.must
    for j in range(must):
        secure_decode(R, B, S, H, O, P, W[j], order, victim)
    room = s.budget - s.ndec
    if room > 0:
        room = fill_ongoing(B, S, O, room)
        if s.npreempt == 0:
            room = fill_waiting(R, B, S, H, O, P, room, order, admit)
    for j in range(must, n):
        if room > 0 and s.ndec < s.decode_cap and secure_decode(R, B, S, H, O, P, W[j], order, victim):
            room -= 1
    full = s.nres == s.max_seqs
    everyone = s.ndec >= n
    if must == n:
        s.repeat = 1 if everyone else 0
        s.deaf = 1 if full or room <= 0 else 0
    else:
        s.repeat = 1 if everyone and s.npre == 0 else 0
        s.deaf = 1 if full else 0
    if s.dynamic == 1 and s.nwait > 0 and s.deaf == 0:
        s.repeat = 0
