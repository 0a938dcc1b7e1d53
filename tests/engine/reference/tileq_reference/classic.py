"""Static batches, Orca, vLLM v0 and v1, Sarathi-Serve, and the orders SJF, priority and aging."""

from __future__ import annotations

from tileq_reference.core import Simulator
from tileq_reference.parts import Request
from tileq_reference.priorities import admit_by_priority
from tileq_reference.rules import (
    admit_chunks,
    admit_whole,
    decode_if_room,
    heads,
    make_room,
    ongoing,
    return_swapped,
    tail,
    victim_of,
)


def static(s: Simulator) -> None:
    """FasterTransformer: form a batch, prefill it whole, decode it until its longest member ends; nobody joins."""
    left = s.c.budget
    if not s.running:
        left = return_swapped(s, left, conservative=True)
        admit_whole(s, heads(s, "fcfs"), left, conservative=True)
        return
    for r in list(s.running):
        if left < 1:
            break
        if r in s.running and make_room(s, r, 1, tail):
            s.decode(r)
            left -= 1


def orca(s: Simulator) -> None:
    """Ongoing prefills, then new ones, then decodes in order of admission, in one batch; FCFS."""
    whole = s.c.get("whole", True)
    left = ongoing(s, s.c.budget)
    old = s.decoding()
    left = return_swapped(s, left)
    admission = admit_whole if whole else admit_chunks
    left = admission(s, heads(s, "fcfs"), left)
    for r in old:
        if left < 1:
            break
        # a decode without a block is passed over, unless nothing else runs: prefills come first here
        if r in s.running and (s.take(r, r.kv + 1) or (not s.batch.items and make_room(s, r, 1, tail))):
            s.decode(r)
            left -= 1


def vllm_v0(s: Simulator) -> None:
    """If a waiting prompt fits, a prefill-only batch of whole prompts; else decode-only."""
    left = s.c.budget
    admit_whole(s, heads(s, "fcfs"), left)
    if s.batch.items:
        return
    for r in list(s.running):
        if left < 1:
            break
        if r in s.running and make_room(s, r, 1, tail):
            s.decode(r)
            left -= 1
    return_swapped(s, left)


def vllm_v1(s: Simulator) -> None:
    """Running requests first, in order, then waiting ones, up to the token budget; preempts only for a block."""
    order = s.c.get("order", "fcfs")
    victim = victim_of(order)
    left = s.c.budget
    for r in list(s.running):
        if left < 1:
            break
        if r not in s.running:
            continue
        tokens = min(max(r.target - r.kv, 1), left)
        before = s.batch.tokens
        if make_room(s, r, tokens, victim):
            left += before - s.batch.tokens  # what withdrawn victims gave back
            _schedule(s, r, tokens)
            left -= tokens
        elif s.c.preempt:
            break  # vLLM schedules nobody behind a request that had to give way itself
    if s.c.get("preemptive", False):
        admit_by_priority(s, left, by_chunk=True)
    else:
        sequence = s.c.get("admission", "chunk") == "sequence"
        admit_chunks(s, heads(s, order), left, by_chunk=True, sequence=sequence)


def _schedule(s: Simulator, r: Request, tokens: int) -> None:
    if r.prefilling:
        s.prefill(r, tokens)
    else:
        s.decode(r)


def sarathi(s: Simulator) -> None:
    """All resident decodes, not capped by the chunk; then ongoing prefills in order; then waiting ones."""
    order = s.c.get("order", "fcfs")
    for r in s.decoding():
        decode_if_room(s, r, victim_of(order))
    left = ongoing(s, s.c.budget - s.batch.tokens, victim_of(order))
    # smallest volume first (svf) sets the predicted end aside
    if s.c.get("preemptive", False):
        admit_by_priority(s, left)
        return
    admit_chunks(s, heads(s, order), left, conservative=order == "svf")
