"""Kernels that bring one node of many up to an instant, and keep what the router knows of it.

V: the engine's arrays of all nodes one behind the other, and OFF, where each node's part begins; K: the cluster's
arrays (`layout`); HK: the hooks of each set of rules, five a set.
"""

from __future__ import annotations

__all__ = ["load_of", "refresh", "touch"]

from typing import Any

from tileq_engine.cluster.node import advance_node
from tileq_engine.cluster.trees import set_event, set_load
from tileq_engine.records import Records

_DUE, _OPEN, _RESTING, _STOPPED = 0, 1, 2, 3
_BY_QUEUE, _BY_WORK, _BY_PASSES, _BY_BLOCKS = 0, 1, 2, 3
_FAR = 1 << 62


def touch(V: Any, K: Any, HK: Any, r: int, until: int) -> Any:
    """Run node `r` to `until`; return 0 or a code (`node.advance_node`), and remember whose it is."""
    R, B, S, H, O, W, P, GS, GP, GH, GC, SA, TR, D, OFF = V  # noqa: E741
    C, N = K[0], K[1]
    c = C[0]
    c.touches += 1
    m = c.nodes + 1
    b, n = B[OFF[r] : OFF[r + 1]], S[r : r + 1]
    h, o = H[OFF[m + r] : OFF[m + r + 1]], O[OFF[r] : OFF[r + 1]]
    w, p = W[OFF[2 * m + r] : OFF[2 * m + r + 1]], P[OFF[3 * m + r] : OFF[3 * m + r + 1]]
    gs, gp = GS[OFF[4 * m + r] : OFF[4 * m + r + 1]], GP[OFF[5 * m + r] : OFF[5 * m + r + 1]]
    gh, gc = GH[OFF[6 * m + r] : OFF[6 * m + r + 1]], GC[OFF[7 * m + r] : OFF[7 * m + r + 1]]
    sa, tr = SA[OFF[8 * m + r] : OFF[8 * m + r + 1]], TR[OFF[9 * m + r] : OFF[9 * m + r + 1]]
    k = N[r].rules
    if k == 0:
        d, q, x, a, e = HK[0], HK[1], HK[2], HK[3], HK[4]
    elif k == 1:
        d, q, x, a, e = HK[5], HK[6], HK[7], HK[8], HK[9]
    elif k == 2:
        d, q, x, a, e = HK[10], HK[11], HK[12], HK[13], HK[14]
    elif k == 3:
        d, q, x, a, e = HK[15], HK[16], HK[17], HK[18], HK[19]
    elif k == 4:
        d, q, x, a, e = HK[20], HK[21], HK[22], HK[23], HK[24]
    elif k == 5:
        d, q, x, a, e = HK[25], HK[26], HK[27], HK[28], HK[29]
    elif k == 6:
        d, q, x, a, e = HK[30], HK[31], HK[32], HK[33], HK[34]
    else:
        d, q, x, a, e = HK[35], HK[36], HK[37], HK[38], HK[39]
    code = advance_node(R, b, n, h, o, w, p, gs, gp, gh, gc, sa, tr, D, d, q, x, a, e, until)
    if code > 0:
        c.at_node = r
    return code


def load_of(S: Records, N: Records, r: int, by: int) -> Any:
    """Return the load of node `r` by requests, by tokens left, by times given a request, or by its blocks used."""
    n = N[r]
    s = S[r]
    if by == _BY_QUEUE:
        load = float(s.nsys + n.coming)
    elif by == _BY_WORK:
        load = float(s.work)
    elif by == _BY_PASSES:
        load = float(n.passes)
    else:
        load = (s.total_blocks - s.free) / float(s.total_blocks)
    return load / n.weight


def refresh(S: Records, C: Records, N: Records, Q: Records, TL: Any, TE: Any, r: int) -> None:
    """Put what has changed of node `r` into the trees, where they are kept."""
    n = N[r]
    s = S[r]
    q = Q[n.pool]
    if C[0].lazy == 0:
        n.decides = 1
        n.at = _FAR
        if s.state == _OPEN:
            n.at = s.now
            n.decides = 0
        elif s.state == _DUE:
            n.at = s.now
        elif s.state == _RESTING and s.nsys > 0 and s.wake > s.now:
            n.at = s.wake
        set_event(C, N, TE, r)
        n.load = load_of(S, N, r, q.by)
        set_load(C, N, TL, n.pool, r, n.up)
    elif q.by == _BY_PASSES:
        n.load = load_of(S, N, r, q.by)
        set_load(C, N, TL, n.pool, r, n.up)
