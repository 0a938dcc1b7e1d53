"""Exclusive batching with a threshold: decode until k slots are free, then prefill k requests (THETA, EB+)."""

from __future__ import annotations

__all__ = ["mix_threshold"]

from typing import Any

from tileq_engine.batch import secure_decodes
from tileq_engine.records import Records
from tileq_engine.rules.mixing.chunked import closed, fill_ongoing, fill_waiting, mix_chunked

_PREFILL = 1


def mix_threshold(
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
    """Start a prefill phase when at least `want` slots are free and somebody waits; it takes `want` requests at most.

    The phase ends early when nobody waits any more or the next does not fit. Its prompts run in chunks of the
    budget, alone. Where the crossover test has chosen mixing (`level` 1), batches are mixed instead.
    """
    s = S[0]
    if s.level == 1:
        mix_chunked(R, B, S, H, O, W, P, decodes, order, admit, victim)
        return
    if s.refill == 0 and s.nwait > 0 and s.max_seqs - s.nres >= s.want:
        s.refill = s.want
    room = fill_ongoing(B, S, O, s.budget)
    limit = s.max_seqs
    while s.refill > 0 and room > 0 and s.nres < limit:
        residents = s.nres
        s.max_seqs = residents + 1
        room = fill_waiting(R, B, S, H, O, P, room, order, admit)
        s.max_seqs = limit
        if s.nres == residents:
            s.refill = 0
        else:
            s.refill -= 1
    if s.nres == limit or s.nwait == 0:
        s.refill = 0
    if s.npre > 0:
        return
    n = decodes(R, B, S, O, W, P)
    secure_decodes(R, B, S, H, O, W, P, n, order, victim)
    s.deaf = 1 if s.max_seqs - s.nres < s.want else closed(S, 1)
    s.repeat = 1 if s.ndec == n and s.refill == 0 and (s.deaf == 1 or s.nwait == 0) else 0
