"""Kernels of the routers: which node is given a request.

Rules that look at no load, or at that of a few nodes drawn, touch only those; the cost of a request does not depend
on the number of nodes. The others read the root of a winner tree that every event of a node mends.
"""

from __future__ import annotations

__all__ = ["choose_node", "draw_nodes", "least_loaded"]

from typing import Any

from tileq_engine.cluster.touch import load_of, touch
from tileq_engine.cluster.trees import draw
from tileq_engine.records import Records

_RANDOM, _TREE, _FEW, _RING, _TENANT, _PREFIX = 0, 1, 2, 3, 4, 5
_M1 = 4294967087
_NO_NODE, _CODE = -1, -2


def draw_nodes(C: Records, Z: Any, count: int, among: int) -> None:
    """Draw `count` different places of `among` (all of them where there are no more) into Z, in order of drawing.

    Behind them in Z the same are kept sorted, from which the next draw is made to differ.
    """
    c = C[0]
    at = c.cand
    most = min(count, among)
    for k in range(most):
        v = draw(C) * (among - k) // _M1
        place = k
        for j in range(k):
            if v >= Z[at + count + j]:
                v += 1
            else:
                place = j
                break
        for j in range(k - place):
            Z[at + count + k - j] = Z[at + count + k - j - 1]
        Z[at + count + place] = v
        Z[at + k] = v
    c.ncand = most


def weighted(C: Records, UP: Any, CW: Any, first: int, count: int) -> Any:
    """Return one of `count` nodes listed in UP from `first`, with probability in proportion to its weight."""
    total = CW[first + count - 1]
    u = (draw(C) + 0.5) / _M1 * total
    low = 0
    high = count - 1
    while low < high:
        middle = (low + high) >> 1
        C[0].comparisons += 1
        if CW[first + middle] > u:
            high = middle
        else:
            low = middle + 1
    return UP[first + low]


def least_loaded(V: Any, K: Any, HK: Any, by: int, count: int, now: int) -> Any:
    """Return the least loaded of the nodes that stand in Z as candidates, brought up to `now`; ties: the first."""
    S = V[2]
    C, N, Z = K[0], K[1], K[8]
    c = C[0]
    best = -1
    least = 0.0
    for k in range(count):
        r = Z[c.cand + k]
        if c.lazy == 1 and touch(V, K, HK, r, now) > 0:
            return _CODE
        load = load_of(S, N, r, by)
        c.comparisons += 1
        if best < 0 or load < least:
            best = r
            least = load
    return best


def few(V: Any, K: Any, HK: Any, first: int, listed: Any, among: int, count: int, by: int, now: int) -> Any:
    """Return the least loaded of `count` nodes drawn from the `among` in `listed` from `first`."""
    C, Z = K[0], K[8]
    c = C[0]
    if c.ncand == 0:
        draw_nodes(C, Z, count, among)
        for k in range(c.ncand):
            Z[c.cand + k] = listed[first + Z[c.cand + k]]
    return least_loaded(V, K, HK, by, c.ncand, now)


def tenant_node(V: Any, K: Any, HK: Any, choices: int, key: int, now: int) -> Any:
    """Return the less loaded of some nodes that serve tenant `key`, drawn; the next that is up for one that is down."""
    C, N, Z = K[0], K[1], K[8]
    c = C[0]
    first = Z[c.groups + key]
    among = Z[c.groups + key + 1] - first
    if c.ncand == 0:
        draw_nodes(C, Z, choices, among)
        kept = 0
        for k in range(c.ncand):
            place = Z[c.cand + k]
            tried = 0
            while tried < among and N[Z[first + place]].up == 0:
                place = (place + 1) % among
                tried += 1
            if tried < among:
                Z[c.cand + kept] = Z[first + place]
                kept += 1
        if kept == 0:
            c.ncand = 0
            return _NO_NODE
        c.ncand = kept
    return least_loaded(V, K, HK, 0, c.ncand, now)


def ring_node(C: Records, N: Records, Z: Any, key: int) -> Any:
    """Return the first node that is up from place `key` of the ring on."""
    c = C[0]
    for k in range(c.points):
        r = Z[c.ring + (key + k) % c.points]
        if N[r].up == 1:
            return r
    return _NO_NODE


def prefix_node(V: Any, K: Any, HK: Any, pool: int, key: int, now: int) -> Any:
    """Return the node that had prefix `key` last, or the less loaded of two drawn if it is `slack` above that."""
    S = V[2]
    C, N, Q, UP, Z = K[0], K[1], K[2], K[6], K[8]
    c = C[0]
    q = Q[pool]
    best = few(V, K, HK, pool * c.nodes, UP, q.up, 2, 0, now)
    if best < 0:
        return best
    home = Z[c.home + key]
    if home >= 0 and N[home].up == 1:
        if c.lazy == 1 and touch(V, K, HK, home, now) > 0:
            return _CODE
        if S[home].nsys + N[home].coming <= S[best].nsys + N[best].coming + q.slack:
            return home
    Z[c.home + key] = best
    return best


def choose_node(V: Any, K: Any, HK: Any, pool: int, i: int, now: int) -> Any:
    """Return the node that the router of `pool` chooses for request `i`; -1: none is up, -2: a node must be seen to."""
    C, N, Q, X, TL, UP, CW, Z = K[0], K[1], K[2], K[3], K[4], K[6], K[7], K[8]
    c = C[0]
    q = Q[pool]
    if q.up == 0:
        return _NO_NODE
    if q.kind == _TREE:
        return TL[pool * 2 * c.size + 1]
    if q.kind == _RANDOM:
        if c.ncand == 0:
            Z[c.cand] = weighted(C, UP, CW, pool * c.nodes, q.up)
            c.ncand = 1
        return Z[c.cand]
    if q.kind == _FEW:
        return few(V, K, HK, pool * c.nodes, UP, q.up, q.choices, q.by, now)
    if q.kind == _RING:
        return ring_node(C, N, Z, X[i].key)
    if q.kind == _TENANT:
        return tenant_node(V, K, HK, q.choices, X[i].key, now)
    return prefix_node(V, K, HK, pool, X[i].key, now)
