"""Kernels that find the least of many: winner trees over nodes, a heap of transfers, queues linked by the requests.

A winner tree over `size` (a power of two) leaves is an array of twice that: T[1] is the winner of all, T[size + r] is
`r` or -1 for nobody. A change of one leaf is mended in log2(size) comparisons, which are counted.
"""

from __future__ import annotations

__all__ = ["draw", "pop_flight", "push_flight", "set_event", "set_load", "sooner", "sort_requests"]

from typing import Any

from tileq_engine.records import Records

_M1, _M2 = 4294967087, 4294944443


def lighter(N: Records, p: int, q: int) -> Any:
    """Return whether node `p` comes before `q`: smaller load, then whoever was given a request longest ago."""
    if q < 0:
        return True
    if p < 0:
        return False
    if N[p].load != N[q].load:
        return N[p].load < N[q].load
    if N[p].stamp != N[q].stamp:
        return N[p].stamp < N[q].stamp
    return p < q


def sooner(N: Records, p: int, q: int) -> Any:
    """Return whether node `p` has its next event before `q`; at one instant, ends of iterations before decisions."""
    if q < 0:
        return True
    if p < 0:
        return False
    if N[p].at != N[q].at:
        return N[p].at < N[q].at
    if N[p].decides != N[q].decides:
        return N[p].decides < N[q].decides
    return p < q


def set_load(C: Records, N: Records, T: Any, pool: int, r: int, listed: int) -> None:
    """Mend the tree of loads of a pool after node `r` has changed; `listed` says whether it stands in it."""
    size = C[0].size
    base = pool * 2 * size
    at = size + r
    T[base + at] = r if listed == 1 else -1
    while at > 1:
        at >>= 1
        left = T[base + 2 * at]
        right = T[base + 2 * at + 1]
        T[base + at] = left if lighter(N, left, right) else right
        C[0].comparisons += 1


def set_event(C: Records, N: Records, T: Any, r: int) -> None:
    """Mend the tree of events after the next event of node `r` has changed."""
    at = C[0].size + r
    T[at] = r
    while at > 1:
        at >>= 1
        left = T[2 * at]
        right = T[2 * at + 1]
        T[at] = left if sooner(N, left, right) else right
        C[0].comparisons += 1


def push_flight(C: Records, T: Any, when: int, i: int) -> None:
    """Add the transfer of request `i`, which ends at `when`, to the heap of (time, request)."""
    at = C[0].flying
    C[0].flying += 1
    while at > 0:
        up = (at - 1) >> 1
        if T[2 * up] < when or (T[2 * up] == when and T[2 * up + 1] < i):
            break
        T[2 * at] = T[2 * up]
        T[2 * at + 1] = T[2 * up + 1]
        at = up
    T[2 * at] = when
    T[2 * at + 1] = i


def pop_flight(C: Records, T: Any) -> None:
    """Remove the transfer that ends first."""
    C[0].flying -= 1
    count = C[0].flying
    when = T[2 * count]
    i = T[2 * count + 1]
    at = 0
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        other = down + 1
        if other < count and (
            T[2 * other] < T[2 * down] or (T[2 * other] == T[2 * down] and T[2 * other + 1] < T[2 * down + 1])
        ):
            down = other
        if T[2 * down] > when or (T[2 * down] == when and T[2 * down + 1] >= i):
            break
        T[2 * at] = T[2 * down]
        T[2 * at + 1] = T[2 * down + 1]
        at = down
    T[2 * at] = when
    T[2 * at + 1] = i


def sink(A: Any, at: int, count: int) -> None:
    """Restore the heap (largest first) of the first `count` of `A` below place `at`."""
    value = A[at]
    while True:
        down = 2 * at + 1
        if down >= count:
            break
        if down + 1 < count and A[down + 1] > A[down]:
            down += 1
        if A[down] <= value:
            break
        A[at] = A[down]
        at = down
    A[at] = value


def sort_requests(A: Any, count: int) -> None:
    """Sort the first `count` entries of `A`, in place."""
    for k in range(count // 2):
        sink(A, count // 2 - 1 - k, count)
    for k in range(count - 1):
        last = count - 1 - k
        top = A[0]
        A[0] = A[last]
        A[last] = top
        sink(A, 0, last)


def draw(C: Records) -> Any:
    """Return the next random integer in [0, 4294967087): L'Ecuyer's MRG32k3a (Oper. Res. 47(1), 1999).

    Products stay below 2**53, so that compiled and plain Python agree to the bit.
    """
    c = C[0]
    p = (1403580 * c.a1 - 810728 * c.a0) % _M1
    c.a0 = c.a1
    c.a1 = c.a2
    c.a2 = p
    q = (527612 * c.b2 - 1370589 * c.b0) % _M2
    c.b0 = c.b1
    c.b1 = c.b2
    c.b2 = q
    return (p - q) % _M1
