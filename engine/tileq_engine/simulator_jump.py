"""Macro-steps: the same batch again and again while no decision can change, with the results of stepping, to the bit.

A mixing rule that knows its next batch would be the same says so by `repeat`, and by `deaf` that not even an
arrival would change it. The jump ends before a member ends its decode or its prefill would need a smaller chunk,
before the free blocks run out, at an arrival (unless deaf) and at every bound of the run. Each iteration's time
is rounded as in stepping: where it depends on the KV read or on attention pairs, the clock goes through it in a
loop of constant work an iteration; where it does not, the whole jump is one multiplication.
"""

from __future__ import annotations

__all__ = ["jump"]

from typing import Any

from tileq_engine.batch import blocks_for
from tileq_engine.clock import token_ps, with_context_ps
from tileq_engine.prefix_tree import spoken_for
from tileq_engine.records import Records
from tileq_engine.simulator_record import add_gap, advance, advance_many, sample
from tileq_engine.simulator_step import announce, deadline_lead, set_deadline, stop_reason

_FAR = 1 << 62
_ROOM = 4096  # durations kept of one jump


def affordable(B: Records, S: Records, O: Any, steps: int) -> Any:  # noqa: E741
    """Return a number of iterations, at most `steps`, for whose blocks the cache has room (not always the largest)."""
    s = S[0]
    free = s.free - spoken_for(S)
    if s.ndec * blocks_for(steps, s.block) + (steps * s.npre) // s.block + s.seqs <= free:
        return steps  # even if every member's share were rounded up
    while steps > 0:
        need = 0
        for k in range(s.nres):
            b = B[O[k]]
            more = blocks_for(b.cached + steps * (b.dec + b.chunk), s.block) - b.blocks
            if more > 0:
                need += more
        if need <= free:
            return steps
        steps >>= 1
    return 0


def settle(B: Records, S: Records, O: Any, D: Any, steps: int, constant: int) -> None:  # noqa: E741
    """Move every member of the batch over `steps` iterations, the last of which has ended now."""
    s = S[0]
    longest = D[0] if constant == 1 else D[steps - 1]  # times never fall while contexts grow
    for k in range(s.nres):
        b = B[O[k]]
        if b.dec == 1:
            b.cached += steps
            b.gen += steps
            b.last = s.now
            if longest > b.max_gap:
                b.max_gap = longest
            if 0 < b.limit < longest:
                below = 0
                if constant == 0:
                    above = steps
                    while below < above:
                        middle = (below + above) >> 1
                        if D[middle] > b.limit:
                            above = middle
                        else:
                            below = middle + 1
                b.over += steps - below
        else:
            b.cached += steps * b.chunk
        if b.cached > b.blocks * s.block:
            need = blocks_for(b.cached, s.block) - b.blocks
            b.blocks += need
            s.free -= need


def stretch(R: Records, S: Records, steps: int, duration: int) -> Any:
    """Return how many iterations of one `duration` can be taken at once: at least 1, at most `steps`.

    They end before the next arrival, at the next sample, at the bounds of the run, and before a sum could overflow.
    """
    s = S[0]
    most = s.stride - (s.iters & (s.stride - 1))
    most = min(most, steps, s.stop_iters - s.iters, (1 << 30) // (s.ndec + 1))
    if duration > 0:
        most = min(most, (s.stop_time - s.now + duration - 1) // duration)
        if s.next < s.n:
            most = min(most, (R[s.next].arrival - s.now) // duration)
        most = min(most, (s.horizon - s.now) // duration)
    return max(most, 1)


def blocks_then(B: Records, S: Records, O: Any, steps: int) -> Any:  # noqa: E741
    """Return the blocks used when the batch is formed for the `steps`-th repeat."""
    s = S[0]
    used = s.total_blocks - s.free
    for k in range(s.nres):
        b = B[O[k]]
        more = blocks_for(b.cached + steps * (b.dec + b.chunk), s.block) - b.blocks
        if more > 0:
            used += more
    return used


def interrupted(S: Records) -> Any:
    """Return whether stepping would decide anew here, or stop."""
    s = S[0]
    return ((s.deaf == 0 or s.warm == 1) and (s.joined < s.next or s.pending > 0)) or stop_reason(S) > 0


def jump(
    R: Records,
    B: Records,
    S: Records,
    O: Any,  # noqa: E741
    GS: Any,
    GP: Any,
    GH: Any,
    GC: Any,
    SA: Any,
    D: Any,
    left: int,
) -> None:
    """Repeat the batch that has just run up to `left` - 1 times; the last one is left to a decision."""
    s = S[0]
    announce(R, S, s.now)
    if interrupted(S):
        return
    if s.extras > 0 and s.account > 0:  # a sample holds what each tenant has got: its iteration is stepped
        ahead = s.iters & (s.stride - 1)
        left = min(left, s.stride - ahead + 1) if ahead > 0 else 0
    steps = affordable(B, S, O, left - 1)
    if steps <= 0:
        return
    more_pairs2 = 0
    more_kv = 0
    group = 0
    same = 0
    for k in range(s.nres):
        b = B[O[k]]
        if b.dec == 1:
            if b.group != group:
                GC[group] += same
                group = b.group
                same = 0
            same += 1
        elif b.chunk > 0:
            more_pairs2 += 2 * b.chunk * b.chunk
            if s.kv_prefill == 1:
                more_kv += b.chunk
    GC[group] += same
    more_kv += s.ndec
    constant = 0
    if (s.k == 0.0 or more_kv == 0) and (s.e == 0.0 or more_pairs2 == 0):
        constant = 1
    elif steps > _ROOM:
        steps = _ROOM
    done = walk(R, B, S, O, GS, GP, GH, GC, SA, D, steps, more_pairs2, more_kv, constant)
    for g in range(s.ngroups):
        GC[g] = 0
    if done > 0:
        settle(B, S, O, D, done, constant)
        s.jumped += done
        used = s.total_blocks - s.free
        if used > s.peak_blocks:
            s.peak_blocks = used
        if s.deadline > 0:
            lead = deadline_lead(S)
            for k in range(s.nres):
                if B[O[k]].dec == 1:
                    set_deadline(S, B[O[k]], lead)


def walk(
    R: Records,
    B: Records,
    S: Records,
    O: Any,  # noqa: E741
    GS: Any,
    GP: Any,
    GH: Any,
    GC: Any,
    SA: Any,
    D: Any,
    steps: int,
    more_pairs2: int,
    more_kv: int,
    constant: int,
) -> Any:
    """Move clock, totals, areas, gaps and samples over at most `steps` repeats; return how many were made."""
    s = S[0]
    tokens = s.npre + s.ndec
    at_once = constant == 1 and s.mean_kind == 0 and s.gap_from == 0 and s.gap_to == _FAR
    alike = token_ps(s.c, s.w, s.a, s.b, s.beta, tokens + s.pad)
    sequences = s.s * s.seqs
    pairs2 = s.pairs2
    kv = s.kv
    done = 0
    while done < steps:
        if s.gap_mode == 0 and s.npairs + s.ngroups > s.pairs_cap:
            break
        pairs2 += more_pairs2
        kv += more_kv
        duration = with_context_ps(alike, s.e, s.k, sequences, pairs2, kv)
        if s.now + duration > s.horizon:
            break  # of the time behind it nothing is known yet
        if s.iters & (s.stride - 1) == 0:
            sample(S, SA, s.now, duration, blocks_then(B, S, O, done + 1))
        count = stretch(R, S, steps - done, duration) if at_once else 1
        D[0 if constant == 1 else done] = duration
        if count > 1:
            advance_many(S, count, duration, tokens)
        s.now += count * duration
        s.iters += count
        s.sum_dur += count * duration
        if s.mean_kind == 1:
            s.ewma += (duration - s.ewma) * s.ewma_weight
        s.prefill_tokens += count * s.npre
        s.decode_tokens += count * s.ndec
        if count == 1:
            announce(R, S, s.now - 1)
            advance(S, s.now)
            s.work -= tokens
        for g in range(s.ngroups):
            if GC[g] > 0:
                add_gap(S, GS, GP, GH, duration, g, GC[g] * count)
        done += count
        announce(R, S, s.now)
        if interrupted(S):
            break
    return done
