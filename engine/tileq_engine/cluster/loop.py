"""The loop of a cluster: arrivals, transfers, failures and the nodes' own events in order of time.

At one instant: iterations end, transfers arrive, planned events happen, requests arrive, nodes decide. Three ways to
keep the nodes together with that order:

* *lazy*, where the router looks at no load or at that of a few nodes drawn: a node is run up to the present only when
  it is looked at or given a request, so that a request's cost does not depend on the number of nodes;
* *by events*, where it looks at all of them: a winner tree holds each node's next event, and whoever has one before the
  next arrival is run up to that arrival;
* *fine*, with hand-overs or requests held at the router: one event at a time, since each may set off another elsewhere.
"""

from __future__ import annotations

__all__ = ["run_cluster"]

from typing import Any

from tileq_engine.cluster.failing import bring_up, take_down
from tileq_engine.cluster.handing import collect_handed, land, retry_waiting, start_waiting
from tileq_engine.cluster.placing import has_place, rebalance_one, relist, route_request
from tileq_engine.cluster.stranding import serves, set_reach
from tileq_engine.cluster.touch import refresh, touch
from tileq_engine.records import Records
from tileq_engine.simulator_record import advance

_DUE, _RESTING, _STOPPED = 0, 2, 3
_FINISHED, _TIME, _STALLED, _FLUSH = 1, 2, 5, 6
_HOLD = 2
_UP, _DOWN = 0, 1
_FAR = 1 << 62


def node_event(V: Any, K: Any, HK: Any, r: int, t: int) -> Any:
    """Run node `r`, whose event is the next, and see to what follows from it; return 0 or a code."""
    R, S = V[0], V[2]
    C, N, Q, X, TL, TE = K[0], K[1], K[2], K[3], K[4], K[5]
    c = C[0]
    until = t
    if c.fine == 1:
        c.now = N[r].at
        until = c.now + N[r].decides
    code = touch(V, K, HK, r, until)
    if code > 0:
        return code
    refresh(S, C, N, Q, TL, TE, r)
    if c.fine == 1:
        if S[r].handed >= 0:
            nobody = c.wait_count == 0  # else the first who waits still has no room, and goes first
            collect_handed(R, S, C, N, X, r, c.now)
            refresh(S, C, N, Q, TL, TE, r)
            if nobody:
                start_waiting(V, K, HK, c.now)
        if N[r].pool == 1:
            retry_waiting(V, K, r, c.now)
        elif c.full == _HOLD:
            c.ready = r
    return 0


def release_held(C: Records, X: Records) -> None:
    """Route those held while no node was up, behind those that are due."""
    c = C[0]
    if c.hold_count == 0:
        return
    if c.due_count == 0:
        c.due_first = c.hold_first
    else:
        X[c.due_last].follow = c.hold_first
    c.due_last = c.hold_last
    c.due_count += c.hold_count
    c.hold_count = 0


def planned(V: Any, K: Any, HK: Any, t: int) -> Any:
    """Let the next planned event happen; return 0 or a code."""
    C, N, EV = K[0], K[1], K[9]
    c = C[0]
    kind = EV[3 * c.plan + 1]
    r = EV[3 * c.plan + 2]
    if kind == _DOWN:
        if c.ntransfers + c.flying + 4 > c.transfers_cap:
            return _FLUSH
        if c.lazy == 1:
            code = touch(V, K, HK, r, t)
            if code > 0:
                return code
        if N[r].up == 1:
            take_down(V, K, HK, r, t)
    elif kind == _UP:
        if N[r].up == 0:
            bring_up(V, K, r, t)
            if N[r].pool == 1:
                start_waiting(V, K, HK, t)
            elif c.full == _HOLD:
                c.ready = r
            else:
                release_held(C, K[3])
    else:
        for k in range(c.nodes):
            if c.lazy == 1:
                code = touch(V, K, HK, k, t)
                if code > 0:
                    return code
        c.balancing = 1
    c.plan += 1
    return 0


def after_the_bound(V: Any, K: Any, HK: Any, t: int) -> Any:
    """See whether an arrival at `t`, after the bound of time, finds nobody who could take it; return a code, or 0."""
    S = V[2]
    C, N, Q, TL, TE = K[0], K[1], K[2], K[4], K[5]
    c = C[0]
    stopped = 0
    for r in range(c.nodes):
        code = touch(V, K, HK, r, t)
        if code > 0:
            return code
        refresh(S, C, N, Q, TL, TE, r)
        if S[r].state == _STOPPED:
            stopped += 1
    if c.nodes > 1 or stopped == c.nodes:
        c.stopped = 1
    return 0


def flush_out(V: Any, K: Any, HK: Any) -> Any:
    """Let rules that wait for company stop waiting, once nobody is to come; return (code, whether any did)."""
    S = V[2]
    C, N, Q, TL, TE = K[0], K[1], K[2], K[4], K[5]
    c = C[0]
    found = 0
    for r in range(c.nodes):
        if c.lazy == 1:
            code = touch(V, K, HK, r, _FAR)
            if code > 0:
                return code, found
        s = S[r]
        if s.state == _RESTING and s.nsys > 0 and s.drain == 0:
            s.drain = 1
            s.closing = 0
            s.state = _DUE
            found = 1
            if s.now < c.now:  # it rested: what it does now that nobody is to come it cannot do before it is so
                advance(S[r : r + 1], c.now)
                s.now = c.now
        refresh(S, C, N, Q, TL, TE, r)
    return 0, found


def next_outside(R: Records, C: Records, EV: Any, FT: Any) -> Any:
    """Return when the next transfer, planned event or arrival is."""
    c = C[0]
    t = _FAR
    if c.flying > 0:
        t = FT[0]
    if c.plan < c.nplan and EV[3 * c.plan] < t:
        t = EV[3 * c.plan]
    if c.next < c.n and c.stopped == 0 and R[c.next].arrival < t:
        t = R[c.next].arrival
    return t


def first_held(V: Any, K: Any, HK: Any) -> Any:
    """Route the first of those held for whom the node that has changed has a place; return 0 or a code."""
    R, S = V[0], V[2]
    C, N, X = K[0], K[1], K[3]
    c = C[0]
    before = -1
    i = c.hold_first
    for _k in range(c.hold_count):
        if N[c.ready].pool == 0 and has_place(R, S, C, N, c.ready, i) and serves(K, c.ready, i):
            follow = X[i].follow
            X[i].target = c.ready
            code = route_request(V, K, HK, i, c.now)
            if code == 0:
                c.hold_count -= 1
                if before < 0:
                    c.hold_first = follow
                else:
                    X[before].follow = follow
                if c.hold_last == i:
                    c.hold_last = before
            return code
        before = i
        i = X[i].follow
    c.ready = -1
    return 0


def queued(V: Any, K: Any, HK: Any) -> Any:
    """Route the first of those that are due, or of those held where somebody has room; return (code, whether any)."""
    C, X = K[0], K[3]
    c = C[0]
    if c.due_count > 0:
        i = c.due_first
        follow = X[i].follow
        code = route_request(V, K, HK, i, c.now)
        if code == 0:
            c.due_first = follow
            c.due_count -= 1
        return code, 1
    if c.ready >= 0 and c.full == _HOLD and c.hold_count > 0:
        return first_held(V, K, HK), 1
    c.ready = -1
    if c.balancing == 1:
        if not rebalance_one(V, K, c.now):
            c.balancing = 0
        return 0, 1
    return 0, 0


def outside(V: Any, K: Any, HK: Any, t: int) -> Any:
    """Let the transfer, planned event or arrival of the instant `t` happen; return 0 or a code."""
    C, EV, FT = K[0], K[9], K[10]
    c = C[0]
    c.now = t
    if c.flying > 0 and FT[0] == t:
        return land(V, K, t)
    if c.plan < c.nplan and EV[3 * c.plan] == t:
        return planned(V, K, HK, t)
    if t > c.stop_time:
        code = after_the_bound(V, K, HK, t)
        if code > 0 or c.stopped == 1:
            return code
    code = route_request(V, K, HK, c.next, t)
    if code == 0:
        c.next += 1
    return code


def begin(V: Any, K: Any) -> None:
    """List the nodes that are up, and put every node into the trees."""
    C, N, Q = K[0], K[1], K[2]
    for pool in range(2):
        relist(C, N, Q, K[6], K[7], pool)
    for r in range(C[0].nodes):
        refresh(V[2], C, N, Q, K[4], K[5], r)
    set_reach(V[2], C, N)
    C[0].begun = 1


def run_cluster(V: Any, K: Any, HK: Any) -> Any:
    """Run until the end, or until a buffer must be emptied or made larger; return the code."""
    S = V[2]
    C, N, TE = K[0], K[1], K[5]
    c = C[0]
    if c.begun == 0:
        begin(V, K)
    while True:
        c.events += 1
        if c.events >= c.slice or c.ntransfers + 4 > c.transfers_cap or c.nmoves + 4 > c.moves_cap:
            return _FLUSH
        code, busy = queued(V, K, HK)
        if code > 0:
            return code
        if busy > 0:
            continue
        t = next_outside(V[0], C, K[9], K[10])
        r = TE[1]
        if c.lazy == 0 and r >= 0 and N[r].at < _FAR and (N[r].at < t or (N[r].at == t and N[r].decides == 0)):
            code = node_event(V, K, HK, r, t)
        elif t < _FAR:
            code = outside(V, K, HK, t)
        else:
            code, found = flush_out(V, K, HK)
            if code == 0 and found == 0:
                break
        if code > 0:
            return code
    done = c.rejected
    c.on_nodes = 0
    c.to_come = c.n - c.next
    for k in range(c.nodes):
        done += S[k].finished + S[k].rejected
        c.on_nodes += S[k].nsys
    if done == c.n:
        return _FINISHED
    return _TIME if c.stopped == 1 or c.stop_time < _FAR else _STALLED
