"""Generalised RAD: the levels of a tile plan, mixed in the plan's proportions."""

from __future__ import annotations

__all__ = ["mix_tiles"]

from typing import Any

from tileq_engine.batch import secure_decode, take_ready
from tileq_engine.records import Records
from tileq_engine.rules.mixing.chunked import closed, fill_ongoing, fill_waiting

_FIELDS = 5  # of a level in P: tokens, prefill tokens, decode tokens, share in millionths, credit


def next_level(S: Records, P: Any) -> Any:
    """Return the level whose turn it is: every level earns its share, the richest pays one iteration."""
    best = 0
    for j in range(S[0].levels):
        P[j * _FIELDS + 4] += P[j * _FIELDS + 3]
        if P[j * _FIELDS + 4] > P[best * _FIELDS + 4]:
            best = j
    P[best * _FIELDS + 4] -= 1000000
    return best


def mix_tiles(
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
    """Serve the level's decodes, then its prefill tokens; what is left of its tile goes to whoever has work.

    Decodes beyond the level's number take turns by the age of their last token. A level without enough decodes is
    filled with prefill and one without enough prefill with decodes, so that a batch is full while there is work.
    """
    s = S[0]
    at = next_level(S, P) * _FIELDS
    tokens = P[at]
    n = decodes(R, B, S, O, W, P)
    j = 0
    while j < n and s.ndec < P[at + 2]:
        if not take_ready(B[W[j]], s):
            secure_decode(R, B, S, H, O, P, W[j], order, victim)
        j += 1
    room = tokens - s.ndec
    if P[at + 1] == 0 and n >= tokens:
        room = 0  # a pure decode level that its decodes can fill
    if room > 0:
        room = fill_ongoing(B, S, O, room)
        if s.npreempt == 0 and room > 0:
            room = fill_waiting(R, B, S, H, O, P, room, order, admit)
    while j < n and s.ndec + s.npre < tokens:
        if not take_ready(B[W[j]], s):
            secure_decode(R, B, S, H, O, P, W[j], order, victim)
        j += 1
    s.deaf = closed(S, tokens - s.ndec - s.npre)
    s.repeat = 1 if s.levels == 1 and s.ndec == n and n <= P[at + 2] else 0
