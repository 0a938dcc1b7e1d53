"""One request at a time, the smallest first, preemptively and without loss: PSJF and SRPT of queueing theory."""

from __future__ import annotations

__all__ = ["mix_smallest"]

from typing import Any

from tileq_engine.batch import admit_request, head, remove_waiting, secure_decode, take_chunk
from tileq_engine.records import Records

_PREFILL, _DECODE = 1, 2


def mix_smallest(
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
    """Serve the resident of the smallest original size (`want` 0) or smallest remaining size (`want` 1).

    Sizes are prompt plus predicted output. Everybody whom slots and memory take is resident; the one served gets a
    chunk of the budget, or a decode once its prompt is done. Ties: the earlier request.
    """
    s = S[0]
    s.room = s.budget
    while s.nres < s.max_seqs:
        place = head(R, S, H, P, order)
        if place < 0 or admit(R, B, S, P, H[place]) == 0:
            break
        admit_request(R, B, S, O, P, remove_waiting(R, S, H, place))
    best = -1
    smallest = 0
    for k in range(s.nres):
        b = B[O[k]]
        r = R[b.id]
        size = r.prompt + r.predicted
        if s.want == 1:
            size = max(r.predicted - b.gen, 1)
            if b.phase == _PREFILL:
                size += b.target - b.cached - s.emit  # the last chunk may bring a token
        if best < 0 or size < smallest or (size == smallest and b.id < B[best].id):
            best = O[k]
            smallest = size
    if best < 0:
        return
    b = B[best]
    if b.phase == _DECODE:
        secure_decode(R, B, S, H, O, P, best, order, victim)
    else:
        chunk = min(b.target - b.cached, s.budget)
        if not take_chunk(b, s, chunk):
            s.stuck = best
            s.stuck_tokens = chunk
    s.deaf = closed_queue(S)
    s.repeat = 1


def closed_queue(S: Records) -> Any:
    """Return 1 when an arrival would find no slot."""
    s = S[0]
    return 1 if s.nres == s.max_seqs else 0
