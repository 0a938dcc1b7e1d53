"""Kernels that put a resident into the batch, admit a request and preempt one; every mixing rule is made of them.

All are compiled with the event loop and also run uncompiled. R: requests, B: slots, S: one record of scalars,
H: waiting requests (a heap of indices), O: slots in order of admission (the first `nres` are residents, the rest
are free), W: scratch list of slots, P: integers of the policy.
"""

from __future__ import annotations

__all__ = [
    "admission_need",
    "admit_request",
    "blocks_for",
    "drop",
    "head",
    "preempt",
    "push_waiting",
    "remove_waiting",
    "secure_decode",
    "secure_decodes",
    "take_chunk",
    "take_decode",
    "take_ready",
]

from typing import Any

from tileq_engine.fairness import at_quota, seat_tenant, unseat_tenant
from tileq_engine.prefix_tree import claim_prefix, evict_idle, find_prefix, give_back, spared_blocks
from tileq_engine.records import Records

_FREE, _PREFILL, _DECODE = 0, 1, 2
_CHUNKWISE, _WHOLE, _RESERVE = 0, 1, 2
_RECOMPUTE, _SWAP, _RESTART = 0, 1, 2


def blocks_for(tokens: int, block: int) -> Any:
    """Return ceil(tokens / block)."""
    return (tokens + block - 1) // block


def take_decode(b: Any, s: Any) -> Any:
    """Put one decode token of slot `b` into the batch; False when no block is free for it."""
    context = b.cached + 1
    if context > b.blocks * s.block:
        if s.free < 1:
            return False
        s.free -= 1
        b.blocks += 1
    b.dec = 1
    s.ndec += 1
    s.kv += context
    return True


def take_ready(b: Any, s: Any) -> Any:
    """Put slot `b`'s decode into the batch if it has one that is not there and its block is free; return whether.

    Tried before `secure_decode`, whose seven arrays are some fifty words to pass.
    """
    return b.phase == _DECODE and b.dec == 0 and take_decode(b, s)


def take_chunk(b: Any, s: Any, tokens: int) -> Any:
    """Put `tokens` prefill tokens of slot `b` into the batch; False when the blocks are not free."""
    after = b.cached + tokens
    need = blocks_for(after, s.block) - b.blocks
    if need > 0:
        if need > s.free:
            return False
        s.free -= need
        b.blocks += need
    b.chunk = tokens
    s.npre += tokens
    s.pairs2 += tokens * (2 * b.cached + tokens + 1)
    if s.kv_prefill == 1:
        s.kv += after
    return True


def drop(b: Any, s: Any) -> None:
    """Take slot `b` out of the batch again."""
    if b.dec == 1:
        b.dec = 0
        s.ndec -= 1
        s.kv -= b.cached + 1
    elif b.chunk > 0:
        s.npre -= b.chunk
        s.pairs2 -= b.chunk * (2 * b.cached + b.chunk + 1)
        if s.kv_prefill == 1:
            s.kv -= b.cached + b.chunk
        b.chunk = 0


def _before(R: Records, i: int, j: int) -> Any:
    if R[i].front != R[j].front:
        return R[i].front < R[j].front
    if R[i].key != R[j].key:
        return R[i].key < R[j].key
    return i < j


def push_waiting(R: Records, S: Records, H: Any, i: int) -> None:
    """Add request `i` to the waiting heap."""
    s = S[0]
    at = s.nwait
    s.nwait += 1
    if s.dynamic == 0:
        while at > 0:
            up = (at - 1) >> 1
            if not _before(R, i, H[up]):
                break
            H[at] = H[up]
            at = up
    H[at] = i


def head(R: Records, S: Records, H: Any, P: Any, order: Any) -> Any:
    """Return the place in `H` of the request that is next in order (0 <= place < nwait); -1 when none waits.

    Orders that change with time, and tenant quotas, look at everyone; the others keep a heap.
    """
    s = S[0]
    if s.nwait == 0:
        return -1
    if s.dynamic == 0:
        return 0
    best = -1
    for place in range(s.nwait):
        i = H[place]
        if s.quota > 0 and at_quota(R, S, P, i):
            continue
        R[i].key = order(R, S, P, i)
        if best < 0 or _before(R, i, H[best]):
            best = place
    return best


def remove_waiting(R: Records, S: Records, H: Any, place: int) -> Any:
    """Remove the request at `place` of the waiting queue and return its index."""
    s = S[0]
    i = H[place]
    s.nwait -= 1
    last = H[s.nwait]
    if s.dynamic == 1:
        H[place] = last
        return i
    at = place
    while at > 0 and _before(R, last, H[(at - 1) >> 1]):
        H[at] = H[(at - 1) >> 1]
        at = (at - 1) >> 1
    while True:
        down = 2 * at + 1
        if down >= s.nwait:
            break
        if down + 1 < s.nwait and _before(R, H[down + 1], H[down]):
            down += 1
        if not _before(R, H[down], last):
            break
        H[at] = H[down]
        at = down
    H[at] = last
    return i


def admission_blocks(R: Records, S: Records, i: int) -> Any:
    """Return the blocks request `i` takes when it becomes a resident."""
    s = S[0]
    r = R[i]
    if r.cached > 0:
        tokens = r.cached + 1  # it decodes at once
    elif s.alloc == _CHUNKWISE:
        return 0
    else:
        tokens = r.prompt + r.gen - r.replay
    if s.alloc == _RESERVE and s.hand == 0:
        left = r.predicted - r.gen
        tokens += (left if left > 1 else 1) - (s.emit if r.cached == 0 else 1)
    need = blocks_for(tokens, s.block)
    return need if need < s.total_blocks else s.total_blocks


def admission_need(R: Records, S: Records, P: Any, i: int) -> Any:
    """Return the free blocks that request `i` takes when it becomes a resident, its cached prefix looked up."""
    s = S[0]
    need = admission_blocks(R, S, i)
    if s.tree > 0:
        need = max(need, find_prefix(R, S, P, i) * s.node_blocks) - spared_blocks(S, P, i)
    return need


def admit_request(R: Records, B: Records, S: Records, O: Any, P: Any, i: int) -> Any:  # noqa: E741
    """Make request `i` a resident at the end of the admission order; return its slot."""
    s = S[0]
    r = R[i]
    if s.nres >= s.max_seqs:
        s.error = 6
        s.error_id = i
        s.error_value = s.nres + 1
        return O[0]
    slot = O[s.nres]
    s.nres += 1
    s.nwaiting -= 1
    if s.nres > s.peak_running:
        s.peak_running = s.nres
    b = B[slot]
    b.id = i
    b.output = r.output
    b.gen = r.gen
    b.replay = r.replay
    b.group = r.group
    b.limit = r.limit
    b.last = r.last
    b.max_gap = r.max_gap
    b.over = r.over
    b.dec = 0
    b.chunk = 0
    b.sorted = 0
    b.stage = 0
    b.lst = s.now  # a resident that has no deadline yet is due at once
    b.target = r.prompt + r.gen - r.replay
    b.blocks = admission_blocks(R, S, i)
    b.cached = r.cached
    if s.tree > 0:
        s.free += claim_prefix(R, S, P, b, i)
    s.free -= b.blocks
    if r.cached > 0:
        b.phase = _DECODE
        s.returned += 1
        if r.held != 0:
            r.held = 0  # carried here by the cluster's link
        elif r.preempted > 0:
            s.swap_tokens += r.cached
            s.swapped += r.cached
            r.swapped += r.cached
        elif r.prefill_end < 0:
            r.prefill_end = s.now
        r.cached = 0
    else:
        b.phase = _PREFILL
    if s.account > 0:
        seat_tenant(R, S, P, i)
    r.status = 2
    r.front = 0
    if r.admit < 0:
        r.admit = s.now
    return slot


def preempt(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    slot: int,
    order: Any,
) -> Any:
    """Take slot `slot` back: its request returns to the waiting queue. Return its place in `O`, -1 if not resident."""
    s = S[0]
    at = -1
    for k in range(s.nres):
        if O[k] == slot:
            at = k
    if at < 0:
        s.error = 9
        s.error_value = slot
        return -1
    b = B[slot]
    drop(b, s)
    i = b.id
    r = R[i]
    if s.tree > 0:
        evict_idle(S, P)
        freed = give_back(S, P, b)  # which may itself free blocks: not to be added in one breath
        s.free += freed
    else:
        s.free += b.blocks
    r.gen = b.gen
    r.replay = b.replay
    r.last = b.last
    r.max_gap = b.max_gap
    r.over = b.over
    r.preempted += 1
    r.status = 1
    s.preempted += 1
    s.npreempt += 1
    r.victim = s.victims
    s.victims = i
    if s.preempt_mode == _SWAP and b.phase == _DECODE:
        r.cached = b.cached
        r.swapped += b.cached
        s.swapped += b.cached
        s.swap_tokens += b.cached
        s.swap_turn += 1
        r.front = s.swap_turn - (1 << 40)  # swapped requests return first, in the order in which they left
    else:
        r.cached = 0
        r.front = 0
        r.recomputed += b.cached
        s.recomputed += b.cached
        before = b.output - b.gen + b.replay
        if b.phase == _PREFILL:
            before += b.target - b.cached - s.emit
        s.work += r.prompt + r.output - s.emit - before  # it has all to do again but deliver
        if s.preempt_mode == _RESTART:
            r.replay = r.gen
    b.phase = _FREE
    b.blocks = 0
    if s.account > 0:
        unseat_tenant(R, S, P, i, b.cached)
    for k in range(at, s.nres - 1):
        O[k] = O[k + 1]
    s.nres -= 1
    O[s.nres] = slot
    if s.to_front == 1 and r.cached == 0:
        s.front -= 1
        r.front = s.front
    r.key = order(R, S, P, i)
    s.nwaiting += 1
    if s.nwaiting > s.peak_waiting:
        s.peak_waiting = s.nwaiting
    push_waiting(R, S, H, i)
    return at


def secure_decode(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    slot: int,
    order: Any,
    victim: Any,
) -> Any:
    """Put the decode of `slot` into the batch, preempting the eviction rule's victims while no block is free.

    False when the slot does not decode: it is no decoding resident, it was the victim, or the rule says it waits.
    """
    s = S[0]
    b = B[slot]
    if b.phase != _DECODE or b.dec == 1:
        return False
    while not take_decode(b, s):
        out = victim(R, B, S, O, P, slot)
        if out < 0 or preempt(R, B, S, H, O, P, out, order) < 0:
            return False
        if out == slot:
            return False
    return True


def secure_decodes(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    count: int,
    order: Any,
    victim: Any,
) -> None:
    """Put the decodes of the first `count` slots in `W` into the batch, preempting where that takes it."""
    s = S[0]
    for j in range(count):
        if not take_ready(B[W[j]], s):
            secure_decode(R, B, S, H, O, P, W[j], order, victim)
