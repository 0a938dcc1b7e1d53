"""Exclusive mixing: an iteration is all prefill or all decode (vLLM v0)."""

from __future__ import annotations

__all__ = ["mix_exclusive"]

from typing import Any

from tileq_engine.batch import admit_request, head, remove_waiting, secure_decodes, take_decode
from tileq_engine.records import Records
from tileq_engine.rules.mixing.chunked import closed, fill_ongoing, fill_waiting


def mix_exclusive(
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
    """Prefill whole prompts while any waiting one fits (none when a swapped request heads the queue); else decode.

    Swapped requests return in a decode iteration that preempted nobody. A prompt that outgrew the budget by a
    recompute runs alone, a budget at a time.
    """
    s = S[0]
    room = fill_ongoing(B, S, O, s.budget)
    place = head(R, S, H, P, order)
    if place >= 0 and R[H[place]].cached == 0:
        fill_prompts(R, B, S, H, O, P, room, order, admit)
    if s.npre > 0:
        return
    n = decodes(R, B, S, O, W, P)
    secure_decodes(R, B, S, H, O, W, P, n, order, victim)
    while s.npreempt == 0 and s.nres < s.max_seqs and s.ndec < s.budget:
        place = head(R, S, H, P, order)
        if place < 0 or R[H[place]].cached == 0 or admit(R, B, S, P, H[place]) == 0:
            break
        take_decode(B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, place))], s)
    s.deaf = closed(S, 1)
    lasting = s.dynamic == 0 and s.reserve == 0  # who is next, and whether there is room for him
    s.repeat = 1 if s.ndec == s.nres and (lasting or s.nwait == 0 or s.deaf == 1) else 0


def fill_prompts(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    room: int,
    order: Any,
    admit: Any,
) -> None:
    """Admit whole prompts up to the budget, stopping at a swapped request."""
    s = S[0]
    while room > 0 and s.nres < s.max_seqs:
        place = head(R, S, H, P, order)
        if place < 0 or R[H[place]].cached > 0:
            break
        before = s.npre
        limit = s.max_seqs
        s.max_seqs = s.nres + 1  # one at a time: the next head may be a swapped one
        room = fill_waiting(R, B, S, H, O, P, room, order, admit)
        s.max_seqs = limit
        if s.npre == before:
            break
