"""Static batches, Orca, vLLM v0 and v1, Sarathi-Serve, and the orders SJF, priority and aging."""

from __future__ import annotations

from tileq_reference.core import Request, Simulator
from tileq_reference.rules import admit_chunks, admit_whole, lowest_priority, make_room, swap_in, tail, waiting_order


def static(s: Simulator) -> None:
    """FasterTransformer: form a batch, prefill it whole, decode it until its longest member ends; nobody joins."""
    if not s.running:
        left, promised = s.c.budget, 0
        for r in list(s.waiting):
            # the whole context is promised at the start: a static batch has nobody to preempt for
            if len(s.running) >= s.c.max_seqs or r.target > left or promised + s.peak_blocks(r) > s.free:
                break
            promised += s.peak_blocks(r)
            left -= r.target
            s.admit(r)
            s.prefill(r, r.target)
        for r in s.running:
            s.take(r, s.peak_tokens(r))
        return
    for r in s.running[: s.c.budget]:
        s.decode(r)


def orca(s: Simulator) -> None:
    """Ongoing prefills, then new ones, then decodes in order of admission, in one batch; FCFS."""
    whole = s.c.get("whole", True)
    left = s.c.budget
    for r in s.prefilling():
        chunk = min(r.target - r.kv, left)
        if chunk < 1:
            break
        s.prefill(r, chunk)
        left -= chunk
    old = s.decoding()
    admission = admit_whole if whole else admit_chunks
    left = admission(s, list(s.waiting), left)
    for r in old:
        if left < 1:
            break
        if r in s.running and make_room(s, r, 1, tail):
            s.decode(r)
            left -= 1
    swap_in(s, left)


def vllm_v0(s: Simulator) -> None:
    """If a waiting prompt fits, a prefill-only batch of whole prompts; else decode-only."""
    left = s.c.budget
    admit_whole(s, list(s.waiting), left)
    if s.batch.items:
        return
    for r in list(s.running):
        if left < 1:
            break
        if r in s.running and make_room(s, r, 1, tail):
            s.decode(r)
            left -= 1
    swap_in(s, left)


def vllm_v1(s: Simulator) -> None:
    """Running requests first, in order, then waiting ones, up to the token budget; preempts only for a block."""
    order = s.c.get("order", "fcfs")
    victim = lowest_priority if order == "priority" else tail
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
    left = swap_in(s, left)
    admit_chunks(s, waiting_order(s, order), left, whole_prompt_blocks=False)


def _schedule(s: Simulator, r: Request, tokens: int) -> None:
    if r.prefilling:
        s.prefill(r, tokens)
    else:
        s.decode(r)


def sarathi(s: Simulator) -> None:
    """All resident decodes, not capped by the chunk; then ongoing prefills in order; then waiting ones."""
    for r in s.decoding():
        if r in s.running and make_room(s, r, 1, tail):
            s.decode(r)
    left = s.c.budget - s.batch.tokens
    for r in s.prefilling():
        chunk = min(r.target - r.kv, left)
        if chunk < 1:
            break
        s.prefill(r, chunk)
        left -= chunk
    left = swap_in(s, left)
    admit_chunks(s, waiting_order(s, s.c.get("order", "fcfs")), left)
