"""Policies with a theorem behind them: RAD, SLAI, exclusive batching with a threshold."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from tileq_reference.classic import sarathi
from tileq_reference.core import Simulator
from tileq_reference.parts import Request
from tileq_reference.rules import (
    admit_chunks,
    decode_if_room,
    heads,
    make_room,
    may_admit,
    may_hold,
    modes,
    ongoing,
    promised,
    swap_in,
    tail,
)

# -------------------------------------------------------------------- RAD


def rad(s: Simulator) -> None:
    """Algorithm 1: decode mode when |D| = b_col or no prefill is active, else one b_lcm chunk of the oldest prefill."""
    b_col, b_lcm = s.c.get("b_col", 128), s.c.get("b_lcm", 128)
    while len(s.decoding()) < b_col and not s.prefilling() and rad_intake(s):
        pass  # who comes back with its KV joins D, and the next may follow
    prefills, decodes = s.prefilling(), s.decoding()
    oldest = prefills[0] if prefills else None
    if oldest and len(decodes) < b_col and s.take(oldest, min(oldest.kv + b_lcm, oldest.target)):
        s.prefill(oldest, min(b_lcm, oldest.target - oldest.kv))
        s.batch.padded_to = b_lcm if s.c.get("pad", True) else 0  # a short last chunk costs a full tile
        return
    for r in decodes:
        if r in s.running and make_room(s, r, 1, tail):
            s.decode(r)


def rad_intake(s: Simulator) -> bool:
    """Take in the next request, if the cycle (up to N of them) is open and its predicted end fits in the cache."""
    if not s.running:
        s.memo["taken"] = 0
    limit = s.c.get("cycle")  # None: one endless cycle
    if not s.waiting or (limit is not None and s.memo["taken"] >= limit) or not may_admit(s):
        return False
    by_chunk, conservative = modes(s, False, True)
    r = next(heads(s, "fcfs"), None)
    if r is None:
        return False
    chunk = s.had(r) + min(s.c.get("b_lcm", 128), s.todo(r))
    holds = promised(s, r) if conservative else r.target
    if r.status == "swapped":
        if not swap_in(s, r, decode=False, conservative=True):
            return False
    elif s.missing(r, chunk) <= s.free if by_chunk else may_hold(s, r, holds):
        s.take(r, s.had(r) if by_chunk else holds)
        s.admit(r)
    else:
        return False
    s.memo["taken"] += 1
    return True


# -------------------------------------------------------------------- SLAI


def slai(s: Simulator) -> None:
    """Critical decodes in order of their last schedulable time, then prefills, then other decodes."""
    deadlines(s)
    cap = s.c.get("decode_cap", 128)
    ordered = sorted(s.decoding(), key=lambda r: (r.lst, r.id))
    left = s.c.budget
    critical = [r for r in ordered if s.now >= r.lst][:cap]
    for r in critical:
        left -= slai_decode(s, r)  # its cap is the number of decodes; a budget below it does not hold a critical one up
    left = ongoing(s, left, last_prefill)
    left = admit_chunks(s, heads(s, s.c.get("order", "spf")), left)
    for r in ordered[len(critical) :]:
        if s.batch.decodes < cap and left > 0:
            # one that can still wait evicts nobody, unless nothing else runs: else two of them can restart for ever
            left -= slai_decode(s, r, may_evict=not s.batch.items)


def last_prefill(s: Simulator, candidates: Iterable[Request]) -> Request:
    """The prefill begun last."""
    return s.prefilling()[-1]


def slai_decode(s: Simulator, r: Request, may_evict: bool = True) -> int:
    """Schedule one decode if a block is left, preempting the last unscheduled prefill; tokens used."""
    if r not in s.running:
        return 0
    while not s.take(r, r.kv + 1):
        if not may_evict or not s.c.preempt:
            return 0
        ongoing = [x for x in s.prefilling() if not s.batch.holds(x)]
        loser = ongoing[-1] if ongoing else r
        s.preempt(loser)
        if loser is r:
            return 0
    s.decode(r)
    return 1


def tbt_limit(r: Request) -> int:
    """The request's own limit; else .1 s for the paying tier and .5 s for the others, in ps."""
    return r.tbt_limit or (100_000_000_000 if r.paying else 500_000_000_000)


def deadlines(s: Simulator) -> None:
    """LST = completion of the previous token + TBT limit - Theta * mean batch time, set once, at that completion."""
    if not s.batches:
        return
    last = s.batches[-1]
    if last.end in s.memo.setdefault("dated", set()):
        return
    s.memo["dated"] = {last.end}
    high = 100 * last.blocks_held >= 96 * s.c.kv_blocks  # as its tokens complete, before anyone leaves
    theta = s.c.get("theta_high", 10) if high or s.c.get("fixed", False) else s.c.get("theta", 5)
    for r, _, decode in last.items:
        if r.status == "running" and (decode or not r.prefilling):
            r.lst = last.end + tbt_limit(r) - theta * s.busy // len(s.batches)


# -------------------------------------------------------------------- exclusive with a threshold


def theta(s: Simulator) -> None:
    """Decode until `k` slots are free, then prefill up to `k` waiting requests, alone, in chunks of the budget."""
    k, left = s.c.get("k", 1), s.c.budget
    refill = s.memo.get("refill", 0)
    if refill == 0 and s.waiting and s.c.max_seqs - len(s.running) >= k:
        refill = k
    left = ongoing(s, left)
    while refill > 0 and left > 0 and len(s.running) < s.c.max_seqs:
        residents = len(s.running)
        left = admit_chunks(s, itertools.islice(heads(s, "fcfs"), 1), left)
        refill = refill - 1 if len(s.running) > residents else 0
    s.memo["refill"] = refill if s.waiting and len(s.running) < s.c.max_seqs else 0
    if s.batch.tokens > s.batch.decodes:
        return  # prefills run alone, but for a swapped request that has just come back
    for r in s.decoding():
        decode_if_room(s, r)


def eb_plus(s: Simulator) -> None:
    """Exclusive with a threshold, or mixed as Sarathi-Serve does, whichever the crossover test chose before the run."""
    if s.c.get("mixes"):
        sarathi(s)
    else:
        theta(s)
