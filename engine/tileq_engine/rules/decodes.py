"""Decode rules: which residents decode, in which order, and how many of them before any prefill.

`rule(R, B, S, O, W, P)` writes the candidates' slots to W[0], W[1], ... in order of preference, sets S[0].must to
how many of them are served before prefills, and returns how many there are; the rest get what the budget leaves.
"""

from __future__ import annotations

__all__ = ["decodes_after", "decodes_all", "decodes_capped", "decodes_critical", "decodes_oldest"]

from typing import Any

from tileq_engine.records import Records

_DECODE = 2
_PLACED, _KEPT = 1, 2


def decodes_all(R: Records, B: Records, S: Records, O: Any, W: Any, P: Any) -> Any:  # noqa: E741
    """Serve every decoding resident, in order of admission, before any prefill."""
    s = S[0]
    n = 0
    for k in range(s.nres):
        if B[O[k]].phase == _DECODE:
            W[n] = O[k]
            n += 1
    s.must = n
    return n


def decodes_capped(R: Records, B: Records, S: Records, O: Any, W: Any, P: Any) -> Any:  # noqa: E741
    """As `decodes_all`, but no more than the token budget."""
    s = S[0]
    n = 0
    for k in range(s.nres):
        if n < s.budget and B[O[k]].phase == _DECODE:
            W[n] = O[k]
            n += 1
    s.must = n
    return n


def decodes_after(R: Records, B: Records, S: Records, O: Any, W: Any, P: Any) -> Any:  # noqa: E741
    """Serve prefills first; decodes, in order of admission, get what they leave."""
    s = S[0]
    n = 0
    for k in range(s.nres):
        if B[O[k]].phase == _DECODE:
            W[n] = O[k]
            n += 1
    s.must = 0
    return n


def sort_decodes(B: Records, S: Records, O: Any, W: Any) -> Any:  # noqa: E741
    """Write the decoding residents to W by (last schedulable time, request); return how many there are.

    Those not served since keep their order in W; the others, in order of admission and so nearly sorted, are sorted
    by insertion and merged in. The upper half of W is scratch.
    """
    s = S[0]
    kept = 0
    for j in range(s.ndl):
        b = B[W[j]]
        if b.phase == _DECODE and b.sorted == _PLACED:
            W[kept] = W[j]
            kept += 1
            b.sorted = _KEPT
    half = len(W) // 2
    fresh = 0
    for k in range(s.nres):
        b = B[O[k]]
        if b.phase != _DECODE:
            continue
        if b.sorted != _KEPT:
            at = half + fresh
            while at > half and _due_before(B, O[k], W[at - 1]):
                W[at] = W[at - 1]
                at -= 1
            W[at] = O[k]
            fresh += 1
        b.sorted = _PLACED
    n = kept + fresh
    at = n
    while fresh > 0:
        at -= 1
        if kept > 0 and _due_before(B, W[half + fresh - 1], W[kept - 1]):
            kept -= 1
            W[at] = W[kept]
        else:
            fresh -= 1
            W[at] = W[half + fresh]
    s.ndl = n
    return n


def _due_before(B: Records, a: int, b: int) -> Any:
    if B[a].lst != B[b].lst:
        return B[a].lst < B[b].lst
    return B[a].id < B[b].id


def decodes_critical(R: Records, B: Records, S: Records, O: Any, W: Any, P: Any) -> Any:  # noqa: E741
    """Serve residents in order of their last schedulable time; those for which it has come, before prefills (SLAI).

    At most S[0].decode_cap are served at all.
    """
    s = S[0]
    n = sort_decodes(B, S, O, W)
    must = 0
    while must < n and must < s.decode_cap and B[W[must]].lst <= s.now:
        must += 1
    s.must = must
    return n


def decodes_oldest(R: Records, B: Records, S: Records, O: Any, W: Any, P: Any) -> Any:  # noqa: E741
    """Serve the residents whose last token is the oldest, before prefills; the mixing rule says how many."""
    n = sort_decodes(B, S, O, W)
    S[0].must = n
    return n
