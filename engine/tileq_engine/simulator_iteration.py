"""One iteration from its batch to its end: time, clock, records, tokens counted, requests that leave, repeats.

The arrays are those of `simulator_loop`.
"""

from __future__ import annotations

__all__ = ["begin_iteration", "complete", "end_iteration", "observe_end"]

from typing import Any

from tileq_engine.clock import duration_ps
from tileq_engine.fairness import credit_tenants, leave_tenant, sample_tenants
from tileq_engine.prefix_tree import evict_idle, give_back, keep_blocks, rounds_to_node
from tileq_engine.pressure import bottleneck, note_bottleneck, steer
from tileq_engine.records import Records
from tileq_engine.simulator_jump import jump
from tileq_engine.simulator_record import add_gap, advance, sample, trace_batch
from tileq_engine.simulator_step import account, announce, deadline_lead, set_deadline

_PREFILL, _DECODE = 1, 2
_FAR = 1 << 62


def _deliver(S: Records, GS: Any, GP: Any, GH: Any, r: Any, b: Any, duration: int) -> Any:
    """Give slot `b` its token; True when its gap is the iteration's time, and so left to the caller to count."""
    s = S[0]
    if b.replay > 0:  # computed again after a restart from scratch; the reader has had it already
        b.replay -= 1
        return False
    b.gen += 1
    if b.last >= 0:
        gap = s.now - b.last
        if gap > b.max_gap:
            b.max_gap = gap
        if b.limit > 0 and gap > b.limit:
            b.over += 1
        b.last = s.now
        if gap == duration:
            return True
        add_gap(S, GS, GP, GH, gap, b.group, 1)
    else:
        r.first = s.now
        b.last = s.now
    return False


def complete(
    R: Records,
    B: Records,
    S: Records,
    O: Any,  # noqa: E741
    P: Any,
    GS: Any,
    GP: Any,
    GH: Any,
    GC: Any,
    duration: int,
) -> Any:
    """Count the tokens of the batch that has run until `now`; let finished requests leave.

    Returns how many more iterations of the same batch could run before a member ends or leaves its prefill.
    """
    s = S[0]
    left = _FAR
    released = 0
    handed = 0
    kept = 0
    lead = deadline_lead(S)
    if s.tree > 0:
        evict_idle(S, P)  # before any block comes back
    group = 0
    same = 0  # gaps of one iteration, of `group`, not yet in GC: neighbours are often of one group
    for k in range(s.nres):
        slot = O[k]
        b = B[slot]
        done = False
        if b.dec == 1:
            b.cached += 1
            if _deliver(S, GS, GP, GH, R[b.id], b, duration):
                if b.group != group:
                    GC[group] += same
                    group = b.group
                    same = 0
                same += 1
            more = b.output - b.gen
            done = more == 0
            if b.replay > 0:
                more = 0
            if more < left:
                left = more
            if s.deadline > 0:
                set_deadline(S, b, lead)
        elif b.chunk > 0:
            b.cached += b.chunk
            if s.tree > 0:
                kept_blocks = keep_blocks(S, P, b)  # which a waiting request may find
                left = 0 if kept_blocks > 0 else min(left, rounds_to_node(S, P, b))
            more = b.target - b.cached
            if more == 0:
                b.phase = _DECODE
                left = 0
                r = R[b.id]
                if r.prefill_end < 0:
                    r.prefill_end = s.now
                if s.emit == 1 and _deliver(S, GS, GP, GH, r, b, duration):
                    GC[b.group] += 1
                done = b.gen == b.output or s.hand == 1
                if s.deadline > 0:
                    set_deadline(S, b, lead)
            elif more // b.chunk < left:
                left = more // b.chunk
        if done:
            r = R[b.id]
            r.gen = b.gen
            r.last = b.last
            r.max_gap = b.max_gap
            r.over = b.over
            if b.gen == b.output:
                r.finish = s.now
                r.status = 3
                released += give_back(S, P, b) if s.tree > 0 else b.blocks
            else:  # a prefill node's: its blocks are held until its KV has been carried to another node
                r.cached = b.cached
                r.held = give_back(S, P, b) if s.tree > 0 else b.blocks
                s.held += r.held
                r.held += 1
                r.victim = s.handed
                s.handed = b.id
                handed += 1
            b.blocks = 0
            b.phase = 0
            if s.account > 0:
                leave_tenant(R, S, P, b.id)
        else:
            if kept < k:
                O[k] = O[kept]
                O[kept] = slot
            kept += 1
    gone = s.nres - kept
    if gone > 0:
        s.nres = kept
        s.nsys -= gone
        s.finished += gone - handed
        s.free += released
        left = 0
    GC[group] += same
    for g in range(s.ngroups):
        if GC[g] > 0:
            add_gap(S, GS, GP, GH, duration, g, GC[g])
            GC[g] = 0
    return left


def observe(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    P: Any,
    SA: Any,
    duration: int,
    order: Any,
    admit: Any,
) -> None:
    """Write down what is asked of the iteration that is about to run: what tenants have got, why requests wait."""
    s = S[0]
    if s.account > 0:
        sample_tenants(S, P, SA)
    if s.watch == 1:
        note_bottleneck(S, P, bottleneck(R, B, S, H, P, duration, order, admit), s.now, s.now + duration, 1)


def observe_end(R: Records, B: Records, S: Records, O: Any, P: Any, duration: int) -> None:  # noqa: E741
    """Do what is asked with the iteration that has just run: credit the tenants, set the next budget."""
    s = S[0]
    if s.account > 0:
        credit_tenants(R, B, S, O, P, s.now - duration, 1, 1)
    if s.control == 1:
        steer(S, duration)


def observe_jump(R: Records, B: Records, S: Records, O: Any, P: Any, begin: int, steps: int) -> None:  # noqa: E741
    """Write down what is asked of the `steps` repeats of a batch that have run since `begin`."""
    s = S[0]
    if s.account > 0:
        credit_tenants(R, B, S, O, P, -1, steps, 0)
    if s.watch == 1:
        note_bottleneck(S, P, s.cause, begin, s.now, steps)


def begin_iteration(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    SA: Any,
    TR: Any,
    order: Any,
    admit: Any,
) -> Any:
    """Start the batch that has been formed: its time, the clock at its end, what is written down of it.

    Return the time, -1 where the clock cannot count it.
    """
    s = S[0]
    start = s.now
    duration = (
        duration_ps(s.c, s.w, s.a, s.b, s.beta, s.e, s.k, s.s, s.npre + s.ndec + s.pad, s.pairs2, s.kv, s.seqs)
        + s.swap_ps * s.swap_tokens
    )
    if start < s.slow_until:  # a node that has just come up
        duration += duration // 1000 * s.slow + duration % 1000 * s.slow // 1000
    if duration < 0 or duration > _FAR or 1.0 * s.swap_ps * s.swap_tokens > 4e18:
        s.error = 14  # 2**62 ps are all that the clock counts; 2**63 would wrap around
        s.error_id = -1
        return -1
    sample(S, SA, start, duration, s.total_blocks - s.free)
    if s.trace_cap > 0:
        trace_batch(B, S, O, TR, start, duration)
    if s.extras > 0:
        observe(R, B, S, H, P, SA, duration, order, admit)
    s.took = duration
    account(S, duration)
    return duration


def end_iteration(
    R: Records,
    B: Records,
    S: Records,
    O: Any,  # noqa: E741
    P: Any,
    GS: Any,
    GP: Any,
    GH: Any,
    GC: Any,
    SA: Any,
    D: Any,
) -> None:
    """End the batch that has run until `now`, then repeat it as often as nothing can change."""
    s = S[0]
    announce(R, S, s.now - 1)
    advance(S, s.now)
    s.work -= s.npre + s.ndec
    if s.extras > 0:
        observe_end(R, B, S, O, P, s.took)
    left = complete(R, B, S, O, P, GS, GP, GH, GC, s.took)
    if s.macro == 1 and s.repeat == 1 and s.npreempt + s.returned == 0 and left > 1 and s.now >= s.slow_until:
        before = s.now
        jumped = s.jumped
        jump(R, B, S, O, GS, GP, GH, GC, SA, D, left)
        if s.extras > 0 and s.jumped > jumped:
            observe_jump(R, B, S, O, P, before, s.jumped - jumped)
