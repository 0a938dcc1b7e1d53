"""Kernels of one node: the engine's own loop, run up to an instant, and the ways in and out of it.

A node is the same records and the same rules as a single engine's. Its loop differs in one thing: arrivals are not
known beforehand, so that it may only go as far as they are. `advance_node(..., until)` ends every iteration that ends
at `until` or before and decides at every instant before `until`; an iteration that is running then stays open.
"""

from __future__ import annotations

__all__ = ["advance_node", "enter_node", "pair_room", "refused", "tokens_to_do"]

from typing import Any

from tileq_engine.pressure import bottleneck, note_bottleneck
from tileq_engine.records import Records
from tileq_engine.simulator_iteration import begin_iteration, end_iteration
from tileq_engine.simulator_loop import decide
from tileq_engine.simulator_record import advance
from tileq_engine.simulator_step import turned_away

_DUE, _OPEN, _RESTING, _STOPPED = 0, 1, 2, 3
_FLUSH, _ERROR = 6, 7
_FAR = 1 << 62


def pair_room(S: Records) -> Any:
    """Return whether the buffer of exact gaps has room for those of one more iteration."""
    s = S[0]
    return s.gap_mode == 1 or s.npairs + s.nres + s.ngroups + 8 <= s.pairs_cap


def advance_node(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    GS: Any,
    GP: Any,
    GH: Any,
    GC: Any,
    SA: Any,
    TR: Any,
    D: Any,
    decodes: Any,
    order: Any,
    mixing: Any,
    admit: Any,
    victim: Any,
    until: int,
) -> Any:
    """Run the node to `until`; return 0, or the code of what its caller must do first (flush, error)."""
    s = S[0]
    s.horizon = until
    while True:
        if s.state == _OPEN:
            if s.now > until:
                return 0
            if not pair_room(S):
                return _FLUSH
            s.state = _DUE
            end_iteration(R, B, S, O, P, GS, GP, GH, GC, SA, D)
        if s.state == _RESTING:
            wake = s.wake if s.nsys > 0 and s.wake > s.now else _FAR
            if s.nsys > 0 and s.stop_time < min(wake, until):
                wake = s.stop_time
            if wake >= until:
                return 0
            advance(S, wake)
            s.now = wake
            s.state = _DUE
        if s.state == _STOPPED or s.now >= until:
            return 0
        if s.now >= s.closing:
            s.drain = 1  # nobody is to come: rules that wait for company stop waiting
        if s.now >= s.stop_time:
            s.state = _STOPPED
            return 0
        if s.nsys == 0:
            s.wake = 0
            s.state = _RESTING
            return 0
        if s.ncauses + 4 > s.causes_cap:
            return _FLUSH
        if s.watch == 1 and s.rested >= 0:
            note_bottleneck(S, P, s.rest_cause, s.rested, s.now, 0)
            s.rested = -1
        tokens = decide(R, B, S, H, O, W, P, decodes, order, mixing, admit, victim)
        if s.error > 0:
            return _ERROR
        if tokens == 0:
            if s.npreempt > 0 and s.empties <= s.nsys:
                s.empties += 1  # whoever gave way may let another in at once
                continue
            if s.watch == 1:
                s.rest_cause = bottleneck(R, B, S, H, P, 0, order, admit)
                s.rested = s.now
            s.state = _RESTING
            continue
        s.empties = 0
        if begin_iteration(R, B, S, H, O, P, SA, TR, order, admit) < 0:
            return _ERROR
        s.state = _OPEN


def refused(R: Records, S: Records, i: int) -> Any:
    """Return the reason for which this node does not take request `i` (`records.REASONS`), 0 when it does."""
    s = S[0]
    r = R[i]
    reason = turned_away(S, r.prompt, r.output)
    if s.hand == 1 and reason == 2 and r.prompt + r.gen <= s.total_blocks * s.block:
        reason = 0  # the answer is not made here
        if s.whole == 1 and r.prompt > s.prompt_limit:
            reason = 3
        elif s.queue_limit > 0 and s.nsys >= s.queue_limit:
            reason = 4
    if r.held > 0 and reason >= 3:
        return 0  # it was promised a place, and nothing of it is prefilled here
    return reason


def tokens_to_do(R: Records, S: Records, i: int) -> Any:
    """Return the tokens that request `i`, not admitted, makes the node compute."""
    s = S[0]
    r = R[i]
    if r.cached > 0:
        return r.output - r.gen
    if s.hand == 1:
        return r.prompt + r.gen - r.replay
    return r.prompt + r.output - s.emit


def enter_node(R: Records, S: Records, H: Any, i: int, now: int) -> Any:
    """Give request `i` to the node at the instant `now`; return whether it took it (else it is rejected)."""
    s = S[0]
    r = R[i]
    if s.state == _RESTING:
        s.now = now
        s.state = _DUE
    advance(S, now)
    reason = refused(R, S, i)
    if reason > 0:
        r.status = 4
        r.reason = reason
        s.rejected += 1
        return False
    r.status = 1
    r.replay = r.gen if s.preempt_mode == 2 and r.cached == 0 and s.hand == 0 else 0
    s.nsys += 1
    s.nwaiting += 1
    if s.nwaiting > s.peak_waiting:
        s.peak_waiting = s.nwaiting
    s.work += tokens_to_do(R, S, i)
    H[len(H) - 1 - s.pending] = i
    s.pending += 1
    return True
