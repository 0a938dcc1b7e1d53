"""Chunked mixing: must-serve decodes, ongoing prefills, waiting requests, then the other decodes, within the budget."""

from __future__ import annotations

__all__ = ["closed", "fill_ongoing", "fill_waiting", "mix_chunked"]

from typing import Any

from tileq_engine.batch import (
    admit_request,
    head,
    preempt,
    remove_waiting,
    secure_decode,
    secure_decodes,
    take_chunk,
    take_decode,
)
from tileq_engine.prefix_tree import find_prefix, found_tokens, lend_out
from tileq_engine.records import Records
from tileq_engine.rules.eviction import evict_lowest_priority

_PREFILL, _DECODE = 1, 2
_CHUNKWISE = 0


def fill_ongoing(B: Records, S: Records, O: Any, room: int) -> Any:  # noqa: E741
    """Give ongoing prefills, in order of admission, chunks of what the budget leaves; return what is left of it."""
    s = S[0]
    for k in range(s.nres):
        b = B[O[k]]
        if room > 0 and b.phase == _PREFILL and b.chunk == 0:
            chunk = b.target - b.cached
            if chunk > room:
                if s.whole == 1 and s.npre > 0:
                    continue
                chunk = room
            if take_chunk(b, s, chunk):
                room -= chunk
            elif s.stuck < 0:
                s.stuck = O[k]
                s.stuck_tokens = chunk
    return room


def make_way(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    i: int,
    order: Any,
    admit: Any,
) -> Any:
    """Preempt residents of lower priority than waiting request `i` until it fits; return whether it does.

    Nobody is preempted when even all of them would not be enough. Only under a preemptive priority policy.
    """
    s = S[0]
    if s.nres < s.max_seqs and admit(R, B, S, P, i) == 1:
        return True
    if s.preemptive == 0:
        return False
    free = s.free
    residents = s.nres
    for k in range(residents):
        if R[B[O[k]].id].priority > R[i].priority:
            s.free += lend_out(S, P, B[O[k]], -1) if s.tree > 0 else B[O[k]].blocks
            s.nres -= 1
    enough = s.nres < s.max_seqs and admit(R, B, S, P, i) == 1
    if s.tree > 0:
        for k in range(residents):
            if R[B[O[k]].id].priority > R[i].priority:
                lend_out(S, P, B[O[k]], 1)
    s.free = free
    s.nres = residents
    if not enough:
        return False
    while s.nres == s.max_seqs or admit(R, B, S, P, i) == 0:
        preempt(R, B, S, H, O, P, evict_lowest_priority(R, B, S, O, P, O[0]), order)
    return True


def place_of(S: Records, H: Any, i: int) -> Any:
    """Return the place of waiting request `i` in `H`."""
    for place in range(S[0].nwait):
        if H[place] == i:
            return place
    return -1


def closed(S: Records, room: int) -> Any:
    """Return 1 when no arrival could enter the next batch: no budget is left, or no slot that could be had."""
    s = S[0]
    return 1 if room <= 0 or (s.nres == s.max_seqs and s.preemptive == 0) else 0


def fill_waiting(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    room: int,
    order: Any,
    admit: Any,
) -> Any:
    """Admit waiting requests in order while slots, budget and the gate allow; return what is left of the budget.

    The first that does not fit stops the line. A request that comes back with its KV decodes at once.
    """
    s = S[0]
    while room > 0 and (s.nres < s.max_seqs or s.preemptive == 1):
        place = head(R, S, H, P, order)
        if place < 0:
            break
        i = H[place]
        r = R[i]
        chunk = r.prompt + r.gen - r.replay
        if s.tree > 0:
            chunk -= find_prefix(R, S, P, i) * s.node_tokens
        long = s.whole == 1 and r.cached == 0 and chunk > room
        if long and (r.prompt > s.budget or chunk <= s.budget or s.npre > 0):
            break  # only what a recompute has made longer than the budget may run alone
        s.room = chunk if s.whole == 1 and chunk > room else room
        before = s.ndec + s.npre
        if not make_way(R, B, S, H, O, P, i, order, admit):
            break
        room += before - s.ndec - s.npre
        if s.npreempt > 0:
            place = place_of(S, H, i)  # the preempted have joined the queue
            chunk = r.prompt + r.gen - r.replay - found_tokens(S, P, i)  # and their blocks may have joined the tree
        b = B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, place))]
        if b.phase == _DECODE:
            if take_decode(b, s):
                room -= 1
        else:
            most = room
            if s.alloc == _CHUNKWISE:
                most = s.room  # what the gate was asked for; tokens of those just preempted are for the next
            if chunk > most and s.whole == 0:
                chunk = most
            if take_chunk(b, s, chunk):
                room -= chunk
    return room


def mix_chunked(
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
    """Fill the batch: decodes that must be served (not capped by the budget), prefills, the other decodes.

    Sarathi-Serve is this rule with all decodes first, Orca with all decodes after, SLAI with the critical ones
    first. An iteration that preempted admits nobody. Decodes that come after the prefills preempt nobody, except
    while the batch is empty: a decode without a block is then passed over.
    """
    s = S[0]
    n = decodes(R, B, S, O, W, P)
    must = s.must
    prefilling = s.nres - n
    secure_decodes(R, B, S, H, O, W, P, must, order, victim)
    room = s.budget - s.ndec
    first_room = room
    if room > 0:
        if prefilling > 0:
            room = fill_ongoing(B, S, O, room)
        if s.npreempt == 0:
            room = fill_waiting(R, B, S, H, O, P, room, order, admit)
    for j in range(must, n):
        b = B[W[j]]
        if room <= 0 or s.ndec >= s.decode_cap or b.phase != _DECODE or b.dec == 1:
            continue
        alone = s.ndec + s.npre == 0  # evicting beside a prefill, two requests could restart each other for ever
        if secure_decode(R, B, S, H, O, P, W[j], order, victim) if alone else take_decode(b, s):
            room -= 1
    s.deaf = closed(S, room)
    everyone = s.ndec >= n
    s.repeat = 1 if everyone else 0
    if must < n or s.deadline == 1:  # who is served before prefills may change with the clock
        looked = s.nwait == 0 or first_room > 0
        s.repeat = 1 if everyone and looked and s.npre == 0 and n <= s.budget and n <= s.decode_cap else 0
        s.deaf = closed(S, 1)
    if (s.dynamic == 1 or s.reserve > 0) and s.nwait > 0 and s.deaf == 0:
        s.repeat = 0  # the order, or what the residents are expected to write, changes with time
