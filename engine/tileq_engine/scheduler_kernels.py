"""One decision and one completion as single compiled calls: what an executor pays per iteration."""

from __future__ import annotations

__all__ = ["announce_at", "complete_at", "decide_at"]

from typing import Any

from tileq_engine.pressure import bottleneck, note_bottleneck
from tileq_engine.records import Records
from tileq_engine.simulator_iteration import complete, observe_end
from tileq_engine.simulator_loop import decide
from tileq_engine.simulator_record import advance
from tileq_engine.simulator_step import account, announce


def announce_at(R: Records, S: Records, now: int) -> Any:
    """Move the clock to `now`, let in whoever has arrived by then, and return the requests in the system."""
    s = S[0]
    if now > s.now:
        s.now = now
    announce(R, S, s.now)
    advance(S, s.now)
    return s.nsys


def decide_at(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    X: Any,
    now: int,
    decodes: Any,
    order: Any,
    mixing: Any,
    admit: Any,
    victim: Any,
) -> Any:
    """Form the batch of the instant `now`; write (request, chunk, decode, context) of members, then victims, to X.

    Return their number, or -1 when the check has found an error.
    """
    s = S[0]
    if now > s.now:
        s.now = now
    announce(R, S, s.now)
    decide(R, B, S, H, O, W, P, decodes, order, mixing, admit, victim)
    if s.error > 0:
        return -1
    if s.watch == 1:
        bottleneck(R, B, S, H, P, 1 << 62, order, admit)
    count = 0
    for k in range(s.nres):
        b = B[O[k]]
        if b.dec == 1 or b.chunk > 0:
            X[4 * count] = b.id
            X[4 * count + 1] = b.chunk
            X[4 * count + 2] = b.dec
            X[4 * count + 3] = b.cached
            count += 1
    at = 4 * count
    i = s.victims
    while i >= 0:
        X[at] = i
        at += 1
        i = R[i].victim
    return count


def complete_at(
    R: Records,
    B: Records,
    S: Records,
    O: Any,  # noqa: E741
    P: Any,
    GS: Any,
    GP: Any,
    GH: Any,
    GC: Any,
    X: Any,
    duration: int,
) -> Any:
    """Count the batch that has run for `duration`; write the requests that ended to X and return their number."""
    s = S[0]
    residents = s.nres
    account(S, duration)
    announce(R, S, s.now - 1)
    advance(S, s.now)
    s.work -= s.npre + s.ndec
    if s.extras > 0:
        observe_end(R, B, S, O, P, duration)
    if s.watch == 1:
        note_bottleneck(S, P, s.cause, s.now - duration, s.now, 1)
    complete(R, B, S, O, P, GS, GP, GH, GC, duration)
    for k in range(s.nres, residents):
        X[k - s.nres] = B[O[k]].id
    return residents - s.nres
