"""The event loop: ingest, batch, execute, refill; one iteration at a time, or many where nothing can change.

The arrays are those of `batch.py`, and GS, GP, GH: gap sums, pairs, histogram; GC: gaps of this iteration by group;
SA: samples; TR: trace; D: scratch of durations. The five hooks are the policy's rules; a batch
is run by `simulator_iteration`.
"""

from __future__ import annotations

__all__ = ["decide", "join", "run_until", "start_batch"]

from typing import Any

from tileq_engine.batch import admission_blocks, admit_request, push_waiting
from tileq_engine.fairness import welcome_tenant
from tileq_engine.prefix_tree import evict_idle
from tileq_engine.pressure import bottleneck, note_bottleneck, relieve, set_budget
from tileq_engine.records import Records
from tileq_engine.simulator_check import verify
from tileq_engine.simulator_iteration import begin_iteration, end_iteration
from tileq_engine.simulator_record import advance
from tileq_engine.simulator_step import announce, stop_reason

_FINISHED, _STALLED, _FLUSH, _ERROR = 1, 5, 6, 7
_FAR = 1 << 62


def join(R: Records, B: Records, S: Records, H: Any, O: Any, P: Any, order: Any) -> None:  # noqa: E741
    """Bring the requests announced so far to the policy: into the waiting queue, or at once among the residents
    when they arrive with their KV and there is room."""
    s = S[0]
    while s.joined < s.next:
        i = s.joined
        s.joined += 1
        r = R[i]
        if r.status == 4:
            continue
        if s.account > 0:
            welcome_tenant(R, S, P, i)
        r.key = order(R, S, P, i)
        seat_or_queue(R, B, S, H, O, P, i)
    if s.pending > 0:
        join_pending(R, B, S, H, O, P, order)


def seat_or_queue(R: Records, B: Records, S: Records, H: Any, O: Any, P: Any, i: int) -> None:  # noqa: E741
    """Make request `i` a resident at once when it comes with its KV and there is room, else let it wait."""
    s = S[0]
    if R[i].cached > 0 and s.seat == 1 and s.nres < s.max_seqs and admission_blocks(R, S, i) <= s.free:
        admit_request(R, B, S, O, P, i)
    else:
        push_waiting(R, S, H, i)


def join_pending(R: Records, B: Records, S: Records, H: Any, O: Any, P: Any, order: Any) -> None:  # noqa: E741
    """Bring the requests that a router has given to this node to the policy; they stand at the end of `H`, backwards.

    `H` has room for them and for the queue they join at once.

    Blocks that were set aside for a request whose KV has come from another node are free for it now.
    """
    s = S[0]
    last = len(H) - 1
    for k in range(s.pending):
        i = H[last - k]
        r = R[i]
        if r.held > 0:
            if s.tree > 0:
                evict_idle(S, P)  # before any block comes back
            need = admission_blocks(R, S, i)
            s.free += need
            s.promised -= need
        if s.account > 0:
            welcome_tenant(R, S, P, i)
        r.key = order(R, S, P, i)
        seat_or_queue(R, B, S, H, O, P, i)
    s.pending = 0


def start_batch(B: Records, S: Records, O: Any) -> None:  # noqa: E741
    """Empty the batch."""
    s = S[0]
    s.ndec = 0
    s.npre = 0
    s.pairs2 = 0
    s.kv = 0
    s.pad = 0
    s.swap_tokens = 0
    s.npreempt = 0
    s.victims = -1
    s.returned = 0
    s.must = 0
    s.repeat = 0
    s.deaf = 0
    s.wake = 0
    s.stuck = -1
    for k in range(s.nres):
        b = B[O[k]]
        b.dec = 0
        b.chunk = 0


def count_sequences(B: Records, S: Records, O: Any) -> None:  # noqa: E741
    """Set the number of sequences in the batch."""
    s = S[0]
    chunks = 0
    if s.npre > 0:
        for k in range(s.nres):
            if B[O[k]].chunk > 0:
                chunks += 1
    s.seqs = s.ndec + chunks


def decide(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    W: Any,
    P: Any,
    decodes: Any,
    order: Any,
    mixing: Any,
    admit: Any,
    victim: Any,
) -> Any:
    """Form the batch of the instant `now`; return its tokens."""
    s = S[0]
    join(R, B, S, H, O, P, order)
    start_batch(B, S, O)
    if s.extras > 0 and s.pressure == 1:
        set_budget(S)
    mixing(R, B, S, H, O, W, P, decodes, order, admit, victim)
    if s.stuck >= 0 and s.npre + s.ndec == 0:
        relieve(R, B, S, H, O, P, order, victim)
    count_sequences(B, S, O)
    if s.check == 1:
        verify(R, B, S, H, O, P)
    return s.npre + s.ndec


def run_until(
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
) -> Any:
    """Run until a bound, the end, an error, or until a buffer must be emptied; return the code (`records.STOPS`)."""
    s = S[0]
    while True:
        announce(R, S, s.now)
        if s.next == s.n:
            s.drain = 1  # nobody is to come: rules that wait for company stop waiting
        code = stop_reason(S)
        if code > 0:
            return code
        if s.nsys == 0:
            if s.next == s.n:
                return _FINISHED
            s.now = R[s.next].arrival
            continue
        if (
            s.iters >= s.chunk_stop
            or s.ncauses + 2 > s.causes_cap
            or (s.gap_mode == 0 and s.npairs + s.nres + s.ngroups + 8 > s.pairs_cap)
        ):
            return _FLUSH
        tokens = decide(R, B, S, H, O, W, P, decodes, order, mixing, admit, victim)
        if s.error > 0:
            return _ERROR
        if tokens == 0:
            to = _FAR
            if s.next < s.n:
                to = R[s.next].arrival
            if s.now < s.wake < to:
                to = s.wake
            if s.npreempt > 0 and s.empties <= s.nsys:
                s.empties += 1  # whoever gave way may let another in at once
                continue
            if to == _FAR:
                return _STALLED
            if to > s.stop_time:
                to = s.stop_time
            if s.watch == 1:
                note_bottleneck(S, P, bottleneck(R, B, S, H, P, 0, order, admit), s.now, to, 0)
            advance(S, to)
            s.now = to
            continue
        s.empties = 0
        if begin_iteration(R, B, S, H, O, P, SA, TR, order, admit) < 0:
            return _ERROR
        end_iteration(R, B, S, O, P, GS, GP, GH, GC, SA, D)
