"""Kernels of what is planned: a node fails, a node comes up, queues are rebalanced.

The iteration that a failing node runs is lost; what it had delivered before stays delivered. All its requests go back
to the router, oldest first, and are prefilled again, prompt and delivered tokens, wherever they are sent.
"""

from __future__ import annotations

__all__ = ["bring_up", "take_down"]

from typing import Any

from tileq_engine.batch import admission_blocks
from tileq_engine.cluster.handing import log_transfer, put_waiting, start_waiting
from tileq_engine.cluster.placing import put_due, relist
from tileq_engine.cluster.stranding import lose_kv, set_reach, weed_held
from tileq_engine.cluster.touch import refresh
from tileq_engine.cluster.trees import push_flight, sort_requests
from tileq_engine.fairness import depart_tenant, unseat_tenant
from tileq_engine.prefix_tree import evict_idle, give_back
from tileq_engine.records import Records
from tileq_engine.simulator_record import advance

_OPEN, _RESTING = 1, 2
_FAILED = 0


def abort_iteration(S: Records, N: Records, r: int, now: int) -> None:
    """Take back what was counted of an iteration that will not end, and move the areas to `now`."""
    s = S[r]
    if s.state == _OPEN:
        s.prefill_tokens -= s.npre
        s.decode_tokens -= s.ndec
        s.sum_dur -= s.now - now
        N[r].aborted += s.npre + s.ndec
    advance(S[r : r + 1], now)


def gather(R: Records, B: Records, S: Records, H: Any, O: Any, P: Any, lost: int) -> Any:  # noqa: E741
    """List every request of a failing node in the first places of `H`; return (their number, tokens of KV lost)."""
    s = S[0]
    count = s.nwait
    for k in range(s.pending):
        H[count] = H[len(H) - 1 - k]
        count += 1
    for k in range(count):
        r = R[H[k]]
        lost += r.cached
        r.recomputed += r.cached
        if s.account > 0 and k < s.nwait:
            depart_tenant(R, S, P, H[k])
    for k in range(s.nres):
        b = B[O[k]]
        r = R[b.id]
        r.gen = b.gen
        r.last = b.last
        r.max_gap = b.max_gap
        r.over = b.over
        r.recomputed += b.cached
        lost += b.cached
        if s.account > 0:
            unseat_tenant(R, S, P, b.id, b.cached)
            depart_tenant(R, S, P, b.id)
        if s.tree > 0:
            give_back(S, P, b)
        b.phase = 0
        b.blocks = 0
        b.dec = 0
        b.chunk = 0
        H[count] = b.id
        count += 1
    for k in range(count):
        r = R[H[k]]
        r.cached = 0
        r.held = 0
        r.front = 0
        r.replay = 0
        r.status = 1
    if s.tree > 0:
        s.free = 0
        evict_idle(S, P)  # all that is cached
    sort_requests(H, count)
    return count, lost


def forget(S: Records, now: int) -> None:
    """Leave the node empty, as it is when it comes up again."""
    s = S[0]
    s.nres = 0
    s.nwait = 0
    s.pending = 0
    s.nsys = 0
    s.nwaiting = 0
    s.work = 0
    s.free = s.total_blocks
    s.held = 0
    s.promised = 0
    s.ndl = 0
    s.refill = 0
    s.intake = 0
    s.front = 0
    s.swap_turn = 0
    s.wake = 0
    s.empties = 0
    s.npreempt = 0
    s.state = _RESTING
    s.now = now


def break_flights(V: Any, K: Any, r: int) -> None:
    """Break the transfers from and to node `r`, and let go of those that wait for one from it.

    KV that was on its way from it is lost; what was on its way to it is still held where it came from, and waits again.
    """
    R, S = V[0], V[2]
    C, N, X, FT = K[0], K[1], K[3], K[10]
    c = C[0]
    count = c.flying
    c.flying = 0
    apart = -1
    for k in range(count):
        when = FT[2 * k]
        i = FT[2 * k + 1]
        if X[i].source == r or X[i].target == r:
            X[i].follow = apart
            apart = i
        else:
            push_flight(C, FT, when, i)  # never beyond place k, which has been read
    first = c.wait_first if c.wait_count > 0 else -1
    c.wait_count = 0
    apart = sorted_chain(C, X, FT, apart, count - c.flying)
    i = apart
    while i >= 0:
        d = X[i].target
        log_transfer(R, C, X, K[12], i, -1)
        N[d].coming -= 1
        need = admission_blocks(R, S[d : d + 1], i)
        if S[d].tree > 0:
            m = c.nodes + 1
            evict_idle(S[d : d + 1], V[6][V[14][3 * m + d] : V[14][3 * m + d + 1]])
        S[d].promised -= need
        S[d].free += need
        refresh(S, C, N, K[2], K[4], K[5], d)
        X[i].target = -1
        i = X[i].follow
    part_queue(R, C, N, X, apart, r)
    part_queue(R, C, N, X, first, r)


def sorted_chain(C: Records, X: Records, FT: Any, first: int, count: int) -> Any:
    """Return the first of the chain of `count` requests with the oldest first; behind the flights there is room."""
    at = 2 * C[0].flying
    i = first
    for k in range(count):
        FT[at + k] = i
        i = X[i].follow
    sort_requests(FT[at : at + count], count)
    last = -1
    for k in range(count):
        i = FT[at + count - 1 - k]
        X[i].follow = last
        last = i
    return last


def part_queue(R: Records, C: Records, N: Records, X: Records, first: int, r: int) -> None:
    """Route those of a chain anew whose KV node `r` held; let the others wait for a decode node."""
    i = first
    while i >= 0:
        follow = X[i].follow
        if X[i].source == r:
            lose_kv(R, N, X, i)
            X[i].node = r
            put_due(C, X, i, _FAILED)
        else:
            put_waiting(C, X, i)
        i = follow


def start_control(S: Records, budget: int) -> None:
    """Let the controller of the budget begin anew: it knew a machine that is no more."""
    s = S[0]
    s.fit_w = 0.0
    s.fit_n = 0.0
    s.fit_t = 0.0
    s.fit_nn = 0.0
    s.fit_nt = 0.0
    s.slope = 0.0
    s.aim = 0.9 * float(s.limit)
    s.full = budget
    s.budget = budget


def take_down(V: Any, K: Any, HK: Any, r: int, now: int) -> None:
    """Let node `r` fail at the instant `now`, to which it has been brought."""
    R, B, S, H, O, P, OFF = V[0], V[1], V[2], V[3], V[4], V[6], V[14]  # noqa: E741
    C, N, Q, X, TL, TE, UP, CW = K[0], K[1], K[2], K[3], K[4], K[5], K[6], K[7]
    m = C[0].nodes + 1
    n = N[r]
    n.up = 0
    n.failures += 1
    n.up_ps += now - n.since
    n.sender = 0
    n.receiver = 0
    abort_iteration(S, N, r, now)
    break_flights(V, K, r)
    s, b = S[r : r + 1], B[OFF[r] : OFF[r + 1]]
    h, o = H[OFF[m + r] : OFF[m + r + 1]], O[OFF[r] : OFF[r + 1]]
    p = P[OFF[3 * m + r] : OFF[3 * m + r + 1]]
    count, lost = gather(R, b, s, h, o, p, 0)
    n.lost += lost
    n.coming = 0
    forget(s, now)
    if s[0].control > 0:
        start_control(s, n.budget)
    for k in range(count):
        put_due(C, X, h[k], _FAILED)
    relist(C, N, Q, UP, CW, n.pool)
    refresh(S, C, N, Q, TL, TE, r)
    if n.revives < C[0].plan:  # gone for good
        set_reach(S, C, N)
        weed_held(R, S, K)
    start_waiting(V, K, HK, now)


def bring_up(V: Any, K: Any, r: int, now: int) -> None:
    """Let node `r` come up at the instant `now`, empty and, for a while, slow."""
    S = V[2]
    C, N, Q, TL, TE, UP, CW = K[0], K[1], K[2], K[4], K[5], K[6], K[7]
    s = S[r]
    n = N[r]
    n.up = 1
    n.since = now
    s.now = max(s.now, now)
    advance(S[r : r + 1], now)
    s.slow_until = now + n.warm
    relist(C, N, Q, UP, CW, n.pool)
    least = -1
    for k in range(Q[n.pool].up):  # in a round robin it does not catch up with what the others were given meanwhile
        other = UP[n.pool * C[0].nodes + k]
        if other != r and (least < 0 or N[other].passes / N[other].weight < N[least].passes / N[least].weight):
            least = other
    if least >= 0:
        n.passes = max(n.passes, int(N[least].passes / N[least].weight * n.weight))
    refresh(S, C, N, Q, TL, TE, r)
