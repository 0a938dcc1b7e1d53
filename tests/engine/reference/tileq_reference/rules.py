"""The small rules that policies are made of: waiting orders, making room for a decode, admission."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

from tileq_reference.core import Simulator
from tileq_reference.parts import BLOCK, Request

Key = Callable[[Request], tuple[float, ...]]


# -------------------------------------------------------------------- waiting orders


def fcfs(s: Simulator) -> list[Request]:
    """The queue as it stands: arrivals at the end, preempted requests at the front."""
    return list(s.waiting)


def by(s: Simulator, key: Key, front: bool = True) -> list[Request]:
    """Preempted requests as they stand at the front (if `front`), the others by `key`, then arrival, then id."""
    first = [r for r in s.waiting if r.status == "swapped" or (r.returning and front)]
    return first + sorted((r for r in s.waiting if r not in first), key=lambda r: (*key(r), r.arrival, r.id))


def predicted(r: Request) -> int:
    return r.output if r.predicted is None else r.predicted


def sigma(x: float, mid: float, rate: float) -> float:
    return 1.0 / (1.0 + math.exp(-rate * (x - mid)))


def aging_score(wait_s: float, length: float) -> float:
    """vLLM's request for comments: half of the waiting time's sigmoid, half of the length's falling one, in [0, 1]."""
    score = 0.5 * sigma(wait_s, 5.0, 1 / 5) + 0.5 * (1.0 - sigma(length, 32768.0, 1 / 32768))
    return min(1.0, max(0.0, score))


def size(r: Request) -> int:
    """Prompt plus predicted output."""
    return r.prompt + predicted(r)


def waiting_order(s: Simulator, order: str) -> list[Request]:
    """Waiting requests in the order `order` would admit them; swapped ones lead under every order."""
    if order == "spf":
        return by(s, lambda r: (r.prompt,))
    if order == "sjf":
        return by(s, lambda r: (predicted(r),))
    if order == "sjf_total":
        return by(s, lambda r: (size(r),))
    if order == "priority":
        return by(s, lambda r: (r.priority,), front=False)
    if order == "aging":
        return by(s, lambda r: (-aging_score((s.now - r.arrival) * 1e-12, size(r)),))
    if order == "svf":
        return by(s, lambda r: (r.prompt * predicted(r) + (predicted(r) ** 2 + predicted(r)) / 2,))
    if order == "vtc":
        return by(s, lambda r: (float(s.accounts[r.tenant].counter),))
    if order == "aged":
        return by(s, lambda r: (r.arrival + s.c.get("age") * r.priority,), front=False)
    if order == "deadline":
        return by(s, lambda r: (r.arrival + s.c.get("deadlines")[r.kind],), front=False)
    if order == "paying_spf":
        return by(s, lambda r: (0 if r.paying else 1, r.prompt))
    return fcfs(s)


# -------------------------------------------------------------------- room for a decode


def heads(s: Simulator, order: str) -> Iterator[Request]:
    """Whoever is next in `order`, again and again, as the queue and the tenants' accounts change; nobody at quota."""
    while True:
        first = next((r for r in waiting_order(s, order) if not s.accounts or s.accounts[r.tenant].open), None)
        if first is None:
            return
        yield first


def tail(s: Simulator, candidates: Iterable[Request]) -> Request:
    """Last admitted."""
    return max(candidates, key=s.running.index)


def lowest_priority(s: Simulator, candidates: Iterable[Request]) -> Request:
    """Largest (priority value, arrival, id)."""
    return max(candidates, key=lambda r: (r.priority, r.arrival, r.id))


def last_in_order(s: Simulator, candidates: Iterable[Request]) -> Request:
    """Whoever stands last in the policy's waiting order."""
    if s.c.get("order") == "deadline":
        return max(candidates, key=lambda r: (r.arrival + s.c.get("deadlines")[r.kind], r.id))
    return max(candidates, key=lambda r: (r.arrival + s.c.get("age") * r.priority, r.id))


def victim_of(order: str) -> Callable[..., Request]:
    """Whom an order policy evicts."""
    if order == "priority":
        return lowest_priority
    return last_in_order if order in ("aged", "deadline") else tail


def make_room(s: Simulator, r: Request, tokens: int, victim: Callable[..., Request]) -> bool:
    """Preempt until `r` can hold `tokens` more; False when `r` itself had to go, or nobody may be preempted."""
    while not s.take(r, r.kv + tokens):
        if not s.c.preempt:
            return False
        loser = victim(s, s.running)
        s.batch.withdraw(loser)
        s.preempt(loser)
        if loser is r:
            return False
    return True


# -------------------------------------------------------------------- admission


def may_hold(s: Simulator, r: Request, kv: int) -> bool:
    """Watermark: after the blocks for `kv` tokens are given, `watermark` blocks must still be free (0 when alone)."""
    return s.free - s.missing(r, kv) >= (s.c.watermark if s.running else 0)


def promised(s: Simulator, r: Request) -> int:
    """Tokens a conservative admission sets aside: prompt + predicted output, or what is known if more."""
    left = max(predicted(r) - r.generated, 1)
    emitted = 1 if s.c.engine_convention else 0  # its last token is never cached
    end = r.kv + left if r.status == "swapped" else r.target + left - emitted
    return min(end, s.c.kv_blocks * BLOCK)  # a wrong prediction must not lock a request out


def modes(s: Simulator, by_chunk: bool, conservative: bool) -> tuple[bool, bool]:
    """Whether blocks are taken chunk by chunk, and whether the predicted end is set aside."""
    if s.c.reservation == "policy":
        return by_chunk, conservative
    return s.c.reservation == "optimistic", s.c.reservation == "conservative"


def ongoing(s: Simulator, left: int, victim: Callable[..., Request] = tail) -> int:
    """Chunks of what is left of the budget for ongoing prefills; the first that finds no block is remembered."""
    for r in s.prefilling():
        chunk = min(r.target - r.kv, left)
        if chunk < 1:
            break
        if s.take(r, r.kv + chunk):
            s.prefill(r, chunk)
            left -= chunk
        elif s.batch.stuck is None:
            s.batch.stuck = (r, chunk, victim)
    return left


def may_admit(s: Simulator) -> bool:
    """Nobody is admitted in an iteration that preempted; slots are `max_seqs`."""
    return not s.batch.preempted and len(s.running) < s.c.max_seqs


def decode_if_room(s: Simulator, r: Request, victim: Callable[..., Request] = tail) -> None:
    """Decode `r`, if it is still resident and not in the batch, preempting for its block."""
    if r in s.running and not s.batch.holds(r) and make_room(s, r, 1, victim):
        s.decode(r)


def admit_chunks(
    s: Simulator,
    order: Iterable[Request],
    left: int,
    by_chunk: bool = False,
    conservative: bool = False,
    sequence: bool = False,
) -> int:
    """Admit in `order`, a chunk of what is left of the budget each; stop at the first that does not fit.

    `by_chunk` (vLLM v1): blocks for the chunk alone and no watermark; else blocks for the whole prompt. `sequence`
    (vLLM v1 since 0.19): all that is known of the request must fit, though only the chunk's blocks are taken.
    """
    by_chunk, conservative = modes(s, by_chunk, conservative)
    sequence = sequence and s.c.reservation == "policy"
    for r in order:
        if left < 1 or not may_admit(s):
            break
        if r.status == "swapped":
            if not swap_in(s, r, watermark=not by_chunk, conservative=conservative):
                break
            left -= 1
            continue
        chunk = min(s.todo(r), left)
        holds = s.had(r) + chunk if by_chunk else promised(s, r) if conservative else r.target
        if s.missing(r, r.target if sequence else holds) > s.free if by_chunk else not may_hold(s, r, holds):
            break
        s.take(r, holds)
        s.admit(r)
        s.prefill(r, chunk)
        left -= chunk
    return left


def admit_whole(s: Simulator, order: Iterable[Request], left: int, conservative: bool = False) -> int:
    """Admit whole prompts in `order`; stop at the first that does not fit; what is left of the budget.

    A restarted request whose prompt and generated tokens exceed the budget may go alone: else it would block for ever.
    """
    by_chunk, conservative = modes(s, False, conservative)
    for r in order:
        alone = r.generated > 0 and not s.batch.items
        holds = promised(s, r) if conservative else r.target
        chunk = s.todo(r)
        if not may_admit(s) or r.status == "swapped" or (chunk > left and not alone):
            break
        if s.missing(r, holds) > s.free if by_chunk else not may_hold(s, r, holds):
            break
        s.take(r, holds)
        s.admit(r)
        s.prefill(r, chunk)
        left -= chunk
    return left


def swap_in(s: Simulator, r: Request, watermark: bool = True, decode: bool = True, conservative: bool = False) -> bool:
    """Bring a swapped request back, if it, its next token (or promise) and the watermark fit; it decodes at once."""
    by_chunk, conservative = modes(s, not watermark, conservative)
    watermark = not by_chunk
    holds = promised(s, r) if conservative else r.kv + 1
    if not (may_hold(s, r, holds) if watermark else s.missing(r, holds) <= s.free):
        return False
    s.take(r, holds)
    s.admit(r)
    s.move(r)
    if decode:
        s.decode(r)
    return True


def return_swapped(s: Simulator, left: int, conservative: bool = False) -> int:
    """Bring back the swapped requests at the head of the queue while they fit; what is left of the budget."""
    for r in heads(s, s.c.get("waiting order", "fcfs")):
        if left < 1 or not may_admit(s) or r.status != "swapped":
            break
        if not swap_in(s, r, conservative=conservative):
            break
        left -= 1
    return left
