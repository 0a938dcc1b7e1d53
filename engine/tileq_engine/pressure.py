"""Kernels of admission under pressure: what stands in the way of who waits, and what is done about it.

Bottlenecks are named at every iteration (S[0].watch) in rows of five integers in P, from S[0].causes on: cause, begin,
end, iterations, most waiting. Backpressure acts on arrivals (reject, reroute) or on the budget (shrink) while the queue
or the KV cache is fuller than agreed. The controller moves the budget so that an iteration takes what is aimed at.
"""

from __future__ import annotations

__all__ = [
    "CAUSES",
    "CAUSE_FIELDS",
    "bottleneck",
    "note_bottleneck",
    "pressed",
    "relieve",
    "set_budget",
    "steer",
]

from typing import Any

from tileq_engine.batch import head, preempt, take_chunk
from tileq_engine.records import Records

CAUSES = ("none", "slots", "kv blocks", "prefill burst", "decode pool", "transfer", "quota", "policy")
CAUSE_FIELDS = 5

_FOR_SLOTS, _FOR_BLOCKS, _FOR_BURST, _FOR_POOL, _FOR_TRANSFER, _FOR_QUOTA, _FOR_POLICY = 1, 2, 3, 4, 5, 6, 7
_CAUSE_FIELDS = 5
_PREFILL = 1


def bottleneck(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    P: Any,
    duration: int,
    order: Any,
    admit: Any,
) -> Any:
    """Return why nobody more than is in the batch could be let in (a place in `CAUSES`); 0 when nobody waits.

    The first that holds: moving KV takes half of the iteration or more; somebody gave way for a block; no slot is
    free; the budget is spent, by prefills for at least the half or by decodes; every tenant that waits has its quota;
    the gate does not find the blocks of whoever is next; a prompt that does not fit beside those that run; and what
    is left is the policy's own will.
    """
    s = S[0]
    s.cause = 0
    if s.nwait > 0:
        if s.swap_ps * s.swap_tokens > 0 and 2 * s.swap_ps * s.swap_tokens >= duration:
            s.cause = _FOR_TRANSFER
        elif s.npreempt > 0:
            s.cause = _FOR_BLOCKS
        elif s.nres >= s.max_seqs:
            s.cause = _FOR_SLOTS
        elif s.npre + s.ndec >= s.budget:
            s.cause = _FOR_BURST if 2 * s.npre >= s.budget else _FOR_POOL
        else:
            s.cause = refusal(R, B, S, P, H, head(R, S, H, P, order), admit)
    return s.cause


def refusal(R: Records, B: Records, S: Records, P: Any, H: Any, place: int, admit: Any) -> Any:
    """Return why the request at `place` of the queue was not let in although slot and budget were left."""
    s = S[0]
    if place < 0:
        return _FOR_QUOTA
    s.room = s.budget - s.npre - s.ndec
    if admit(R, B, S, P, H[place]) == 0:
        return _FOR_BLOCKS
    s.repeat = 0  # the cache may fill up meanwhile
    return _FOR_BURST if s.npre > 0 else _FOR_POLICY


def note_bottleneck(S: Records, P: Any, cause: int, begin: int, end: int, iterations: int) -> None:
    """Write down that from `begin` to `end` requests waited because of `cause`, in one row with what was so before."""
    s = S[0]
    if cause == 0:
        return
    at = s.causes + _CAUSE_FIELDS * (s.ncauses - 1)
    if s.ncauses == 0 or P[at] != cause or P[at + 2] != begin:
        at += _CAUSE_FIELDS
        s.ncauses += 1
        P[at] = cause
        P[at + 1] = begin
        P[at + 3] = 0
        P[at + 4] = 0
    P[at + 2] = end
    P[at + 3] += iterations
    if s.nwait > P[at + 4]:
        P[at + 4] = s.nwait


def pressed(S: Records) -> Any:
    """Return whether the queue or the KV cache is as full as backpressure begins at."""
    s = S[0]
    return s.nwaiting >= s.press_waiting or s.total_blocks - s.free >= s.press_blocks


def set_budget(S: Records) -> None:
    """Set the iteration's budget: less under pressure, so that chunks are smaller and decodes sooner."""
    s = S[0]
    s.budget = s.full
    if s.low < s.full and pressed(S):
        s.budget = s.low


def steer(S: Records, duration: int) -> None:
    """Set the budget with which a full iteration takes `aim` picoseconds, and move the aim.

    A line through the last batches' (tokens, time), the older the lighter, gives the time of a token. After an
    iteration that was full, or over the limit, the budget goes from its tokens by (aim - time)/slope, to no less than
    half of them and no more than 5/4 of the last budget. The aim falls by gain (1 - exceed) with each iteration over
    the limit and rises by gain * exceed with each within it, so that `exceed` of them are over it in the long run.
    """
    s = S[0]
    n = float(s.npre + s.ndec)
    t = float(duration)
    s.fit_w = s.forget * s.fit_w + 1.0
    s.fit_n = s.forget * s.fit_n + n
    s.fit_t = s.forget * s.fit_t + t
    s.fit_nn = s.forget * s.fit_nn + n * n
    s.fit_nt = s.forget * s.fit_nt + n * t
    spread = s.fit_w * s.fit_nn - s.fit_n * s.fit_n
    if spread > 0.001 * s.fit_n * s.fit_n:  # else the batches are too much alike to tell
        s.slope = (s.fit_w * s.fit_nt - s.fit_n * s.fit_t) / spread
    if s.ndec == 0:
        return  # nobody's gap
    over = 0.0
    if t > s.limit:
        over = 1.0
    s.aim = min(s.aim * (1.0 + s.gain * (s.exceed - over)), s.limit)
    if over == 0.0 and n < float(s.budget):
        return  # the budget did not bind
    slope = s.slope
    if slope <= 0.0 or slope * n > t:
        slope = t / n  # in proportion: the smallest step down, since an iteration has a fixed part too
    want = n
    if slope > 0.0:
        want = n + (s.aim - t) / slope
    want = max(min(want, 1.25 * float(s.full)), 0.5 * n)
    s.full = int(max(min(want, float(s.most)), float(s.least)))
    s.budget = s.full


def relieve(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    order: Any,
    victim: Any,
) -> None:
    """Let the prefill that is stuck run, preempting the eviction rule's victims until its next chunk has its blocks.

    Where blocks are taken chunk by chunk the residents can all be in prefill and none have room to go on.
    """
    s = S[0]
    slot = s.stuck
    while B[slot].phase == _PREFILL and not take_chunk(B[slot], s, s.stuck_tokens):
        out = victim(R, B, S, O, P, slot)
        if out < 0 or preempt(R, B, S, H, O, P, out, order) < 0:
            return
