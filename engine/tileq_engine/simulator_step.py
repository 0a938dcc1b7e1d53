"""Kernels that stepping and macro-steps share: arrivals, totals, deadlines, bounds."""

from __future__ import annotations

__all__ = ["account", "announce", "deadline_lead", "set_deadline", "stop_reason", "turned_away"]

from typing import Any

from tileq_engine.pressure import pressed
from tileq_engine.records import Records
from tileq_engine.simulator_record import advance

_TIME, _BACKLOG, _ITERATIONS = 2, 3, 4
_FAR = 1 << 62


def turned_away(S: Records, prompt: int, output: int) -> Any:
    """Return the reason for which a request that arrives now is rejected (`records.REASONS`), 0 when it is not."""
    s = S[0]
    if s.model_limit > 0 and prompt + output > s.model_limit:
        return 1
    if prompt + output - s.emit > s.total_blocks * s.block:
        return 2
    if s.whole == 1 and prompt > s.prompt_limit:
        return 3
    if s.queue_limit > 0 and s.nsys >= s.queue_limit:
        return 4
    if s.extras > 0 and s.pressure > 1 and pressed(S):
        return 4 + s.pressure  # 6: rejected, 7: to be sent elsewhere
    return 0


def announce(R: Records, S: Records, upto: int) -> None:
    """Let every request that arrives up to `upto` enter the system, or reject it; areas follow each arrival."""
    s = S[0]
    while s.next < s.n and R[s.next].arrival <= upto:
        r = R[s.next]
        s.next += 1
        advance(S, r.arrival)
        reason = turned_away(S, r.prompt, r.output)
        if reason > 0:
            r.status = 4
            r.reason = reason
            s.rejected += 1
            continue
        r.status = 1
        s.nsys += 1
        s.nwaiting += 1
        if s.nwaiting > s.peak_waiting:
            s.peak_waiting = s.nwaiting
        s.work += r.prompt - r.cached + r.output
        if r.cached == 0:
            s.work -= s.emit


def account(S: Records, duration: int) -> None:
    """Move the clock and the totals over the iteration that has just run."""
    s = S[0]
    s.now += duration
    s.iters += 1
    s.sum_dur += duration
    if s.mean_kind == 1:
        s.ewma += (duration - s.ewma) * s.ewma_weight if s.iters > 1 else duration
    s.prefill_tokens += s.npre
    s.decode_tokens += s.ndec
    used = s.total_blocks - s.free
    if used > s.peak_blocks:
        s.peak_blocks = used


def deadline_lead(S: Records) -> Any:
    """Return floor(Theta * mean batch time so far): how long before its limit a token is last schedulable.

    Theta (in thousandths) is `theta_hi` where at least `kv_high` thousandths of the KV cache are used and `theta_lo`
    below, evaluated as the tokens complete, before the blocks of requests that end with this batch are freed
    (SLAI, arXiv 2508.01002). It is the same for every token of a batch.
    """
    s = S[0]
    if s.deadline != 1:
        return 0
    theta = s.theta_lo
    if 1000 * (s.total_blocks - s.free) >= s.kv_high * s.total_blocks:
        theta = s.theta_hi
    if s.mean_kind == 1:
        return int(theta * s.ewma / 1000.0)
    whole = s.sum_dur // s.iters
    rest = s.sum_dur - whole * s.iters
    thousands = whole // 1000  # theta * whole may not fit
    parts = theta * (whole - 1000 * thousands) + (theta * rest) // s.iters
    return theta * thousands + parts // 1000


def set_deadline(S: Records, b: Any, lead: int) -> None:
    """Set the last schedulable time of slot `b`: completion + TBT limit - `lead`.

    A rule that only rotates (`deadline` 2) stands its residents by their last token.
    """
    s = S[0]
    b.sorted = 3  # it is to be placed anew
    if s.deadline == 2:
        b.lst = s.now
    elif b.limit == 0:
        b.lst = _FAR
    else:
        b.lst = s.now + b.limit - lead


def stop_reason(S: Records) -> Any:
    """Return the code of the bound that has been reached, 0 when none."""
    s = S[0]
    if s.now >= s.stop_time:
        return _TIME
    if s.nsys >= s.stop_backlog:
        return _BACKLOG
    if s.iters >= s.stop_iters:
        return _ITERATIONS
    return 0
