"""Kernels of who can still be served: which nodes a request may go to, and what becomes of it when none will come.

A node is *gone for good* when it is down and no planned event brings it up again. A request that only such nodes could
take is stranded: it keeps the tokens it has been given, holds no KV, and stands in no queue, so that whoever can be
served is not kept waiting behind it. It is counted, and the run says that it stalled.
"""

from __future__ import annotations

__all__ = [
    "finds_node",
    "give_blocks_back",
    "is_large_enough",
    "lose_kv",
    "serves",
    "set_reach",
    "strand",
    "too_long",
    "weed_held",
]

from typing import Any

from tileq_engine.cluster.touch import refresh
from tileq_engine.prefix_tree import evict_idle
from tileq_engine.records import Records
from tileq_engine.simulator_record import advance

_BY_TENANT = 4  # kind of router
_WAITS, _RESTS = 0, 2  # states of a node: due, resting


def serves(K: Any, r: int, i: int) -> Any:
    """Return whether node `r` may be given request `i`: behind router "tenant" only its tenant's nodes may."""
    C, Q, X, Z = K[0], K[2], K[3], K[8]
    c = C[0]
    if Q[0].kind != _BY_TENANT:
        return True
    low = Z[c.groups + X[i].key]
    end = Z[c.groups + X[i].key + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if Z[middle] < r:
            low = middle + 1
        else:
            high = middle
    return low < end and Z[low] == r


def too_long(R: Records, C: Records, i: int, reach: int) -> Any:
    """Return whether request `i`, were it handed over, would need more of a decode node than `reach` tokens of KV."""
    c = C[0]
    r = R[i]
    if c.split == 0 or r.prompt + r.output - c.emit <= reach:
        return False
    return r.cached > 0 or r.output - r.gen > c.emit  # else its last token comes with its prefill's end


def is_large_enough(R: Records, S: Records, C: Records, r: int, i: int) -> Any:
    """Return whether node `r`, when empty, has the KV for request `i`, and whoever it hands it over to has too."""
    s = S[r]
    if s.hand == 1:
        return R[i].prompt + R[i].gen <= s.total_blocks * s.block and not too_long(R, C, i, C[0].reach)
    return R[i].prompt + R[i].output - s.emit <= s.total_blocks * s.block


def finds_node(R: Records, S: Records, K: Any, i: int) -> Any:
    """Return whether an entry node that is up, or will be, can ever take request `i`."""
    C, N = K[0], K[1]
    for r in range(C[0].nodes):
        there = N[r].pool == 0 and (N[r].up == 1 or N[r].revives >= C[0].plan)
        if there and is_large_enough(R, S, C, r, i) and serves(K, r, i):
            return True
    return False


def set_reach(S: Records, C: Records, N: Records) -> None:
    """Set the most tokens that a decode node which is up, or will be, can hold for one request."""
    c = C[0]
    c.reach = 0
    for r in range(c.nodes):
        if N[r].pool == 1 and (N[r].up == 1 or N[r].revives >= c.plan):
            c.reach = max(c.reach, S[r].total_blocks * S[r].block)


def lose_kv(R: Records, N: Records, X: Records, i: int) -> None:
    """Make request `i`, whose KV is held on the prefill node it was handed over by, one to be prefilled again."""
    r = R[i]
    N[X[i].source].lost += r.cached
    r.recomputed += r.cached
    r.cached = 0
    r.held = 0
    r.front = 0
    r.status = 1


def give_blocks_back(V: Any, K: Any, i: int, now: int) -> None:
    """Free the blocks that the prefill node holds for request `i`; a node at rest may go on."""
    R, S = V[0], V[2]
    C, N, Q, X, TL, TE = K[0], K[1], K[2], K[3], K[4], K[5]
    r = X[i].source
    s = S[r]
    if s.tree > 0:
        m = C[0].nodes + 1
        evict_idle(S[r : r + 1], V[6][V[14][3 * m + r] : V[14][3 * m + r + 1]])
    s.held -= R[i].held - 1
    s.free += R[i].held - 1
    if s.state == _RESTS and s.nsys > 0:
        advance(S[r : r + 1], now)
        s.now = now
        s.state = _WAITS
    C[0].ready = r  # where blocks count as pressure, it may have room for those held at the router now
    refresh(S, C, N, Q, TL, TE, r)


def strand(R: Records, C: Records, X: Records, i: int) -> None:
    """Set request `i`, which no node holds anything of, aside for good."""
    R[i].status = 1
    X[i].target = -1
    C[0].stranded += 1


def weed_held(R: Records, S: Records, K: Any) -> None:
    """Strand those that the router holds and nobody can ever take, once another node is gone for good."""
    C, X = K[0], K[3]
    c = C[0]
    i = c.hold_first
    count = c.hold_count
    last = -1
    for _k in range(count):
        follow = X[i].follow
        if finds_node(R, S, K, i):
            last = i
        else:
            if last < 0:
                c.hold_first = follow
            else:
                X[last].follow = follow
            c.hold_count -= 1
            strand(R, C, X, i)
        i = follow
    c.hold_last = last
