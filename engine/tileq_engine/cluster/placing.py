"""Kernels that give a request to a node: routing, full nodes, the router's own queue, rebalancing.

A request stands in at most one of three queues, linked through its place record: those to be routed at once (a node
failed, a request was rebalanced), those the router holds until a node has room, and those that have been handed over
and wait for a decode node (`handing`).
"""

from __future__ import annotations

__all__ = ["has_place", "log_move", "put_due", "put_held", "rebalance_one", "relist", "route_request", "tell"]

from typing import Any

from tileq_engine.batch import remove_waiting
from tileq_engine.cluster.node import enter_node, tokens_to_do
from tileq_engine.cluster.routing import choose_node
from tileq_engine.cluster.stranding import finds_node, is_large_enough, serves, strand, too_long
from tileq_engine.cluster.touch import refresh, touch
from tileq_engine.fairness import depart_tenant
from tileq_engine.pressure import pressed
from tileq_engine.records import Records
from tileq_engine.simulator_record import advance

_FLUSH, _GROW, _AGAIN = 6, 8, 9
_REJECT, _HOLD, _ELSEWHERE = 0, 2, 3
_FAILED, _FULL, _REBALANCED = 0, 1, 2
_TOO_LARGE, _SYSTEM_FULL = 2, 4


def put_due(C: Records, X: Records, i: int, reason: int) -> None:
    """Put request `i` behind those that are to be routed at once."""
    c = C[0]
    X[i].follow = -1
    X[i].reason = reason
    if c.due_count == 0:
        c.due_first = i
    else:
        X[c.due_last].follow = i
    c.due_last = i
    c.due_count += 1


def put_held(C: Records, X: Records, i: int) -> None:
    """Put request `i` behind those that the router holds."""
    c = C[0]
    X[i].follow = -1
    if c.hold_count == 0:
        c.hold_first = i
    else:
        X[c.hold_last].follow = i
    c.hold_last = i
    c.hold_count += 1
    if c.hold_count > c.peak_hold:
        c.peak_hold = c.hold_count


def log_move(C: Records, MV: Any, i: int, now: int, source: int, target: int, reason: int, gen: int, lost: int) -> None:
    """Write down that request `i` went from one node to another."""
    c = C[0]
    at = 7 * c.nmoves
    c.nmoves += 1
    MV[at] = i
    MV[at + 1] = now
    MV[at + 2] = source
    MV[at + 3] = target
    MV[at + 4] = reason
    MV[at + 5] = gen
    MV[at + 6] = lost


def relist(C: Records, N: Records, Q: Records, UP: Any, CW: Any, pool: int) -> None:
    """List the nodes of a pool that are up, with their running sums of weights."""
    c = C[0]
    at = pool * c.nodes
    count = 0
    total = 0.0
    for r in range(c.nodes):
        if N[r].up == 1 and N[r].pool == pool:
            total += N[r].weight
            UP[at + count] = r
            CW[at + count] = total
            count += 1
    Q[pool].up = count


def has_place(R: Records, S: Records, C: Records, N: Records, r: int, i: int) -> Any:
    """Return whether node `r` is up, its queue limit is not reached, and its cache is large enough for request `i`."""
    n = N[r]
    s = S[r]
    if n.up == 0 or (n.limit > 0 and s.nsys + n.coming >= n.limit):
        return False
    if s.pressure > 1 and pressed(S[r : r + 1]):
        return False
    return is_large_enough(R, S, C, r, i)


def roomiest(R: Records, S: Records, K: Any, pool: int, i: int) -> Any:
    """Return the node of the fewest requests, by weight, among those of a pool with a place for `i`; -1 for none."""
    C, N = K[0], K[1]
    best = -1
    for r in range(C[0].nodes):
        C[0].comparisons += 1
        if N[r].pool != pool or not has_place(R, S, C, N, r, i) or not serves(K, r, i):
            continue
        if best < 0 or S[r].nsys * N[best].weight < S[best].nsys * N[r].weight:
            best = r
    return best


def turn_away(R: Records, C: Records, i: int, reason: int) -> None:
    """Reject request `i` at the router, for a reason of `records.REASONS`."""
    R[i].status = 4
    R[i].reason = reason
    C[0].rejected += 1


def route_request(V: Any, K: Any, HK: Any, i: int, now: int) -> Any:
    """Give request `i` to a node, hold it, or reject it; return 0, or the code of what must be done first.

    Nothing has been changed when a code is returned, so that the call may be repeated.
    """
    R, S, H, OFF = V[0], V[2], V[3], V[14]
    C, N, Q, X, TL, TE = K[0], K[1], K[2], K[3], K[4], K[5]
    c = C[0]
    x = X[i]
    pool = 1 if c.split == 1 and R[i].cached > 0 else 0
    apart = too_long(R, C, i, c.reach)  # only a node that does both can take it
    if apart and not finds_node(R, S, K, i):
        if too_long(R, C, i, c.largest):
            turn_away(R, C, i, _TOO_LARGE)
        else:
            strand(R, C, X, i)
        return 0
    r = x.target
    if r < 0 or N[r].up == 0:
        r = choose_node(V, K, HK, pool, i, now)
    source = -1
    if r == -2:
        return _AGAIN
    if r >= 0 and (c.full > _REJECT or S[r].pressure == _ELSEWHERE or apart) and not has_place(R, S, C, N, r, i):
        source = r
        r = roomiest(R, S, K, pool, i)
        if r < 0 and c.full != _HOLD and apart:
            c.ncand = 0
            turn_away(R, C, i, _SYSTEM_FULL)
            return 0
        if r < 0 and (c.full != _HOLD or not finds_node(R, S, K, i)):
            r = source  # which rejects it
            source = -1
    if r < 0:
        c.ncand = 0
        if finds_node(R, S, K, i):
            put_held(C, X, i)
        else:
            strand(R, C, X, i)
        return 0
    if c.lazy == 1 and touch(V, K, HK, r, now) > 0:
        return _AGAIN
    if 2 * (S[r].nsys + 1) > N[r].room:  # while they join the queue, those who have and those who have not yet
        c.at_node = r
        return _GROW
    c.ncand = 0
    c.turn += 1
    n = N[r]
    n.stamp = c.turn
    n.passes += 1
    n.routed += 1
    if source >= 0:
        log_move(C, K[11], i, now, source, r, _FULL, R[i].gen, 0)
    elif x.reason >= 0:
        log_move(C, K[11], i, now, x.node, r, x.reason, R[i].gen, 0)
    x.node = r
    x.target = -1
    x.reason = -1
    x.routed += 1
    m = c.nodes + 1
    part = H[OFF[m + r] : OFF[m + r + 1]]
    tell(R, C, N, K[8], r, i)
    enter_node(R, S[r : r + 1], part, i, now)
    refresh(S, C, N, Q, TL, TE, r)
    return 0


def tell(R: Records, C: Records, N: Records, Z: Any, r: int, i: int) -> None:
    """Tell node `r` of request `i` what its own policy has made of it: a predicted length, a TBT limit."""
    at = N[r].told
    if at >= 0:
        R[i].predicted = Z[C[0].told + at + i]
        R[i].limit = Z[C[0].told + at + C[0].n + i]


def last_waiting(R: Records, S: Records, H: Any) -> Any:
    """Return the place in `H` of the latest request that has never run here; -1 for none. Pending ones count."""
    s = S[0]
    best = -1
    for k in range(s.nwait + s.pending):
        place = k if k < s.nwait else len(H) - 1 - (k - s.nwait)
        i = H[place]
        if R[i].cached == 0 and R[i].front == 0 and (best < 0 or i > H[best]):
            best = place
    return best


def leave_queue(R: Records, S: Records, H: Any, P: Any, place: int, now: int) -> Any:
    """Take the request at `place` of `H` out of the node; return its index."""
    s = S[0]
    advance(S, now)
    i = H[place]
    if place < s.nwait:
        remove_waiting(R, S, H, place)
        if s.account > 0:
            depart_tenant(R, S, P, i)
    else:
        last = len(H) - 1
        for k in range(last - place, s.pending - 1):
            H[last - k] = H[last - k - 1]
        s.pending -= 1
    s.work -= tokens_to_do(R, S, i)
    s.nsys -= 1
    s.nwaiting -= 1
    return i


def rebalance_one(V: Any, K: Any, now: int) -> Any:
    """Move one waiting request from the longest to the shortest queue of the entry pool; return whether one moved."""
    R, S, H, OFF = V[0], V[2], V[3], V[14]
    C, N, Q, X, TL, TE = K[0], K[1], K[2], K[3], K[4], K[5]
    c = C[0]
    m = c.nodes + 1
    longest = -1
    shortest = -1
    for r in range(c.nodes):
        if N[r].up == 1 and N[r].pool == 0:
            if shortest < 0 or S[r].nsys * N[shortest].weight < S[shortest].nsys * N[r].weight:
                shortest = r
            if S[r].nwaiting > 0 and (longest < 0 or S[r].nsys * N[longest].weight > S[longest].nsys * N[r].weight):
                longest = r
    if longest < 0 or longest == shortest:
        return False
    load = S[longest].nsys / N[longest].weight
    if load - S[shortest].nsys / N[shortest].weight < c.gap or (S[shortest].nsys + 1) / N[shortest].weight >= load:
        return False  # it would only change places
    part = H[OFF[m + longest] : OFF[m + longest + 1]]
    place = last_waiting(R, S[longest : longest + 1], part)
    if place < 0 or not has_place(R, S, C, N, shortest, part[place]) or not serves(K, shortest, part[place]):
        return False
    own = V[6][OFF[3 * m + longest] : OFF[3 * m + longest + 1]]
    i = leave_queue(R, S[longest : longest + 1], part, own, place, now)
    refresh(S, C, N, Q, TL, TE, longest)
    put_due(C, X, i, _REBALANCED)
    X[i].target = shortest
    return True
