"""Admission under preemptive priorities: a waiting request may take slot and memory from residents below it."""

from __future__ import annotations

from tileq_reference.core import Simulator
from tileq_reference.parts import Request
from tileq_reference.rules import heads, may_hold, modes, promised, swap_in


def admit_by_priority(s: Simulator, left: int, by_chunk: bool = False) -> None:
    """Admit by (priority, arrival); who finds no room takes it from below, if all below would be enough.

    Nobody is admitted in an iteration whose residents preempted for a block; preemption by priority is the exception.
    """
    if s.batch.preempted:
        return
    by_chunk, conservative = modes(s, by_chunk, False)
    while left > 0 and s.waiting:
        r = next(heads(s, "priority"), None)
        if r is None:
            return
        room = left
        if not fits(s, r, room, by_chunk):
            below = sorted((x for x in s.running if x.priority > r.priority), key=lambda x: (x.priority, x.id))
            if not s.c.preempt or not enough(s, r, below, room, by_chunk):
                return
            while not fits(s, r, room, by_chunk):
                loser = below.pop()
                left += s.batch.withdraw(loser)
                s.preempt(loser)
        if r.status == "swapped":
            swap_in(s, r, watermark=not by_chunk)
            left -= 1
            continue
        chunk = min(s.todo(r), room if by_chunk else left)  # by chunk: what the gate was asked for
        s.take(r, s.had(r) + chunk if by_chunk else promised(s, r) if conservative else r.target)
        s.admit(r)
        s.prefill(r, chunk)
        left -= chunk


def fits(s: Simulator, r: Request, left: int, by_chunk: bool) -> bool:
    """A slot is free and the memory gate lets `r` in."""
    conservative = modes(s, by_chunk, False)[1]
    chunk = s.had(r) + min(s.todo(r), left)
    holds = r.kv + 1 if r.status == "swapped" else chunk if by_chunk else r.target
    if conservative:
        holds = promised(s, r)
    gate = s.missing(r, holds) <= s.free if by_chunk else may_hold(s, r, holds)
    return len(s.running) < s.c.max_seqs and gate


def enough(s: Simulator, r: Request, below: list[Request], left: int, by_chunk: bool) -> bool:
    """`r` would fit if everybody of `below` left."""
    free, running = s.free, s.running

    def fits_then(freed: int) -> bool:
        s.free = free + freed
        s.running = [x for x in running if x not in below]
        return fits(s, r, left, by_chunk)

    answer = s.tree.without(below, fits_then)
    s.free, s.running = free, running
    return answer
