r"""Kernels between the pools: hand-over at a prefill's end, the link, and decode nodes that are full.

A transfer starts when a decode node has a seat and blocks for the request; they are set aside. The KV then passes
three FIFO servers in a row, the sender's port, the shared fabric and the receiver's port, each of which may start as
soon as the one before has (cut-through), and arrives `latency` later:

    s1 = max(now, sender free),  s2 = max(s1, fabric free),  s3 = max(s2, receiver free)
    end = max(s1 + x/B, s2 + x/F, s3 + x/B) + latency
"""

from __future__ import annotations

__all__ = ["collect_handed", "fits", "land", "retry_waiting", "start_waiting"]

from typing import Any

from tileq_engine.batch import admission_blocks
from tileq_engine.cluster.node import enter_node
from tileq_engine.cluster.placing import put_due, tell
from tileq_engine.cluster.routing import choose_node
from tileq_engine.cluster.stranding import finds_node, give_blocks_back, lose_kv, strand, too_long
from tileq_engine.cluster.touch import refresh
from tileq_engine.cluster.trees import pop_flight, push_flight
from tileq_engine.records import Records

_GROW = 8
_NODE_FAILED = 0


def put_waiting(C: Records, X: Records, i: int) -> None:
    """Put request `i` behind those that wait for a decode node."""
    c = C[0]
    X[i].follow = -1
    if c.wait_count == 0:
        c.wait_first = i
    else:
        X[c.wait_last].follow = i
    c.wait_last = i
    c.wait_count += 1
    if c.wait_count > c.peak_wait:
        c.peak_wait = c.wait_count


def collect_handed(R: Records, S: Records, C: Records, N: Records, X: Records, r: int, now: int) -> None:
    """Put the requests that node `r` has just handed over, in its order of admission, behind those that wait."""
    s = S[r]
    forward = -1
    i = s.handed
    while i >= 0:  # the chain begins with the last of them
        X[i].follow = forward
        forward = i
        i = R[i].victim
    s.handed = -1
    while forward >= 0:
        i = forward
        forward = X[i].follow
        X[i].ready = now
        X[i].source = r
        X[i].target = -1
        N[r].handed += 1
        put_waiting(C, X, i)


def fits(V: Any, K: Any, d: int, i: int) -> Any:
    """Return whether decode node `d` has a seat and blocks for request `i`, whose KV is elsewhere.

    What is set aside may depend on what that node's policy expects of the request.
    """
    R, S = V[0], V[2]
    C, N = K[0], K[1]
    s = S[d]
    n = N[d]
    if n.up == 0 or s.nsys + n.coming >= s.max_seqs:
        return False
    if R[i].prompt + R[i].output - s.emit > s.total_blocks * s.block:
        return False
    if n.limit > 0 and s.nsys + n.coming >= n.limit:
        return False
    spare = s.watermark if s.nsys + n.coming > 0 else 0
    tell(R, C, N, K[8], d, i)
    return admission_blocks(R, S[d : d + 1], i) + spare <= s.free


def start_transfer(V: Any, K: Any, i: int, d: int, now: int) -> None:
    """Set room aside on node `d` and send request `i` there."""
    R, S = V[0], V[2]
    C, N, Q, X, TL, TE = K[0], K[1], K[2], K[3], K[4], K[5]
    c = C[0]
    tell(R, C, N, K[8], d, i)
    need = admission_blocks(R, S[d : d + 1], i)
    S[d].free -= need
    S[d].promised += need
    N[d].coming += 1
    c.turn += 1
    N[d].stamp = c.turn
    N[d].passes += 1
    source = N[X[i].source]
    port = int(R[i].cached * c.port_ps + 0.5)
    fabric = int(R[i].cached * c.fabric_ps + 0.5)
    first = max(now, source.sender)
    source.sender = first + port
    second = max(first, c.fabric_free)
    c.fabric_free = second + fabric
    third = max(second, N[d].receiver)
    N[d].receiver = third + port
    X[i].begin = first
    X[i].target = d
    push_flight(C, K[10], max(first + port, second + fabric, third + port) + c.latency, i)
    refresh(S, C, N, Q, TL, TE, d)


def decode_node(V: Any, K: Any, HK: Any, i: int, now: int) -> Any:
    """Return the decode node for request `i`: the router's if it has room, else the first that has, else -1."""
    C, N = K[0], K[1]
    d = choose_node(V, K, HK, 1, i, now)
    C[0].ncand = 0
    if d >= 0 and fits(V, K, d, i):
        return d
    for other in range(C[0].nodes):
        if N[other].pool == 1 and fits(V, K, other, i):
            return other
    return -1


def take_waiting(C: Records, X: Records) -> None:
    """Take the first of those that wait for a decode node."""
    c = C[0]
    c.wait_first = X[c.wait_first].follow
    c.wait_count -= 1


def give_up(V: Any, K: Any, now: int) -> None:
    """Take back the first of those that wait, whom no decode node will ever have room for; a node that does both may.

    Its KV is lost: it is prefilled again, or set aside.
    """
    R, C, N, X = V[0], K[0], K[1], K[3]
    i = C[0].wait_first
    take_waiting(C, X)
    give_blocks_back(V, K, i, now)
    lose_kv(R, N, X, i)
    X[i].node = X[i].source
    if finds_node(R, V[2], K, i):
        put_due(C, X, i, _NODE_FAILED)
    else:
        strand(R, C, X, i)


def start_waiting(V: Any, K: Any, HK: Any, now: int) -> None:
    """Start the transfers of those that wait, in their order, until the first for whom no decode node has room.

    Those whom no decode node will ever have room for are set aside.
    """
    C, X = K[0], K[3]
    c = C[0]
    while c.wait_count > 0:
        i = c.wait_first
        if too_long(V[0], C, i, c.reach):
            give_up(V, K, now)
            continue
        d = decode_node(V, K, HK, i, now)
        if d < 0:
            return
        take_waiting(C, X)
        start_transfer(V, K, i, d, now)


def retry_waiting(V: Any, K: Any, d: int, now: int) -> None:
    """Do what `start_waiting` does when node `d` alone has changed."""
    R, C, X = V[0], K[0], K[3]
    c = C[0]
    while c.wait_count > 0:
        i = c.wait_first
        if too_long(R, C, i, c.reach):
            give_up(V, K, now)
        elif fits(V, K, d, i):
            take_waiting(C, X)
            start_transfer(V, K, i, d, now)
        else:
            return


def log_transfer(R: Records, C: Records, X: Records, TF: Any, i: int, end: int) -> None:
    """Write down a transfer that has ended, or (end -1) that a failure has broken."""
    c = C[0]
    x = X[i]
    at = 8 * c.ntransfers
    c.ntransfers += 1
    TF[at] = i
    TF[at + 1] = x.source
    TF[at + 2] = x.target
    TF[at + 3] = x.ready
    TF[at + 4] = x.begin
    TF[at + 5] = end
    TF[at + 6] = R[i].cached
    TF[at + 7] = R[i].held - 1


def land(V: Any, K: Any, now: int) -> Any:
    """Let the transfer that ends now arrive at its decode node; return 0, or a code with nothing changed."""
    R, S, H, OFF = V[0], V[2], V[3], V[14]
    C, N, Q, X, TL, TE, FT = K[0], K[1], K[2], K[3], K[4], K[5], K[10]
    c = C[0]
    i = FT[1]
    d = X[i].target
    if 2 * (S[d].nsys + 1) > N[d].room:
        c.at_node = d
        return _GROW
    pop_flight(C, FT)
    give_blocks_back(V, K, i, now)
    log_transfer(R, C, X, K[12], i, now)
    m = c.nodes + 1
    N[d].coming -= 1
    N[d].received += 1
    X[i].node = d
    X[i].target = -1
    tell(R, C, N, K[8], d, i)
    enter_node(R, S[d : d + 1], H[OFF[m + d] : OFF[m + d + 1]], i, now)
    refresh(S, C, N, Q, TL, TE, d)
    return 0
