"""The small rules that policies are made of: waiting orders, making room for a decode, admission."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from tileq_reference.core import BLOCK, Request, Simulator

Key = Callable[[Request], tuple[float, ...]]


# -------------------------------------------------------------------- waiting orders


def fcfs(s: Simulator) -> list[Request]:
    """The queue as it stands: arrivals at the end, preempted requests at the front."""
    return list(s.waiting)


def by(s: Simulator, key: Key) -> list[Request]:
    """Sorted by `key`, then arrival, then id."""
    return sorted(s.waiting, key=lambda r: (*key(r), r.arrival, r.id))


def predicted(r: Request) -> int:
    return r.output if r.predicted is None else r.predicted


def sigma(x: float, mid: float, rate: float) -> float:
    return 1.0 / (1.0 + math.exp(-rate * (x - mid)))


def aging_score(wait_s: float, length: float) -> float:
    """vLLM's request for comments: half of the waiting time's sigmoid, half of the length's falling one, in [0, 1]."""
    score = 0.5 * sigma(wait_s, 5.0, 1 / 5) + 0.5 * (1.0 - sigma(length, 32768.0, 1 / 32768))
    return min(1.0, max(0.0, score))


def waiting_order(s: Simulator, order: str) -> list[Request]:
    """Waiting requests in the order `order` would admit them."""
    if order == "spf":
        return by(s, lambda r: (r.prompt,))
    if order == "sjf":
        return by(s, lambda r: (predicted(r),))
    if order == "sjf_total":
        return by(s, lambda r: (r.prompt + predicted(r),))
    if order == "priority":
        return by(s, lambda r: (r.priority,))
    if order == "aging":
        return by(s, lambda r: (-aging_score((s.now - r.arrival) * 1e-12, r.prompt),))
    if order == "paying_spf":
        return by(s, lambda r: (0 if r.paying else 1, r.prompt))
    return fcfs(s)


# -------------------------------------------------------------------- room for a decode


def tail(s: Simulator, candidates: Iterable[Request]) -> Request:
    """Last admitted."""
    return max(candidates, key=s.running.index)


def lowest_priority(s: Simulator, candidates: Iterable[Request]) -> Request:
    """Largest (priority value, arrival, id)."""
    return max(candidates, key=lambda r: (r.priority, r.arrival, r.id))


def make_room(s: Simulator, r: Request, tokens: int, victim: Callable[..., Request]) -> bool:
    """Preempt until `r` can hold `tokens` more; False when `r` itself had to go."""
    while not s.take(r, r.kv + tokens):
        loser = victim(s, s.running)
        s.batch.withdraw(loser)
        s.preempt(loser)
        if loser is r:
            return False
    return True


# -------------------------------------------------------------------- admission


def may_hold(s: Simulator, r: Request, kv: int) -> bool:
    """Watermark: after the blocks for `kv` tokens are given, `watermark` blocks must still be free."""
    return s.free - s.missing(r, kv) >= s.c.watermark


def admit_chunks(s: Simulator, order: list[Request], left: int, whole_prompt_blocks: bool = True) -> int:
    """Admit in `order`, a chunk of what is left of the budget each; stop at the first that does not fit.

    Nobody is admitted in an iteration that preempted, nor while somebody is swapped out.
    """
    for r in order if not (s.batch.preempted or s.swapped) else []:
        if left < 1 or len(s.running) >= s.c.max_seqs:
            break
        chunk = min(r.target, left)
        holds = r.target if whole_prompt_blocks else chunk
        if not may_hold(s, r, holds):
            break
        s.take(r, holds)
        s.admit(r)
        s.prefill(r, chunk)
        left -= chunk
    return left


def admit_whole(s: Simulator, order: list[Request], left: int) -> int:
    """Admit whole prompts in `order`; stop at the first that does not fit; what is left of the budget.

    A restarted request whose prompt and generated tokens exceed the budget may go alone: else it would block for ever.
    """
    for r in order if not (s.batch.preempted or s.swapped) else []:
        alone = r.generated > 0 and not s.batch.items
        if len(s.running) >= s.c.max_seqs or (r.target > left and not alone) or not may_hold(s, r, r.target):
            break
        s.take(r, r.target)
        s.admit(r)
        s.prefill(r, r.target)
        left -= r.target
    return left


def swap_in(s: Simulator, left: int) -> int:
    """Bring swapped requests back, first out first, while they, their next token and the watermark fit; left over."""
    for r in list(s.swapped) if not s.batch.preempted else []:
        need = -(-(r.kv + 1) // BLOCK)
        if left < 1 or len(s.running) >= s.c.max_seqs or s.free - need < s.c.watermark:
            break
        s.swapped.remove(r)
        r.status = "running"
        s.running.append(r)
        s.move(r)
        s.take(r, r.kv + 1)
        s.decode(r)
        left -= 1
    return left
