"""PSJF and SRPT, one request an iteration; generalised RAD, one level of its plan an iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tileq_reference.core import Simulator
from tileq_reference.parts import Request
from tileq_reference.rules import (
    admit_chunks,
    decode_if_room,
    heads,
    may_admit,
    may_hold,
    modes,
    ongoing,
    predicted,
    promised,
    size,
    swap_in,
)


def psjf(s: Simulator) -> None:
    """The resident of the smallest prompt plus predicted output is served."""
    smallest(s, size)


def srpt(s: Simulator) -> None:
    """The resident with the least left of prompt and predicted output is served."""
    last = 1 if s.c.engine_convention else 0  # the last chunk brings a token
    smallest(s, lambda r: max(predicted(r) - r.generated, 1) + (r.target - r.kv - last if r.prefilling else 0))


def smallest(s: Simulator, measure: Callable[[Request], int]) -> None:
    by_chunk, conservative = modes(s, False, False)
    for r in heads(s, "fcfs"):
        if not may_admit(s):
            break
        if r.status == "swapped":
            if not swap_in(s, r, decode=False):
                break
        elif by_chunk and s.missing(r, s.had(r) + min(s.todo(r), s.c.budget)) <= s.free:
            s.take(r, s.had(r))
            s.admit(r)
        elif not by_chunk and may_hold(s, r, promised(s, r) if conservative else r.target):
            s.take(r, promised(s, r) if conservative else r.target)
            s.admit(r)
        else:
            break
    if not s.running:
        return
    served = min(s.running, key=lambda r: (measure(r), r.id))

    def largest_other(_: Simulator, residents: Iterable[Request]) -> Request:
        others = [r for r in residents if r is not served]
        return max(others, key=lambda r: (size(r), r.id)) if others else served

    if served.prefilling:
        chunk = min(served.target - served.kv, s.c.budget)
        if s.take(served, served.kv + chunk):
            s.prefill(served, chunk)
        else:
            s.batch.stuck = (served, chunk, largest_other)
    else:
        decode_if_room(s, served, largest_other)


def rad_general(s: Simulator) -> None:
    """The level that has earned most: its decodes, then prefills, then more decodes up to its tokens."""
    levels: list[tuple[int, int, int, int]] = s.c.get("levels")  # tokens, prefill, decodes, share in millionths
    credit = s.memo.setdefault("credit", [0] * len(levels))
    for j, level in enumerate(levels):
        credit[j] += level[3]
    turn = credit.index(max(credit))
    credit[turn] -= 1_000_000
    tokens, prefill, decodes, _ = levels[turn]
    residents = sorted(s.decoding(), key=lambda r: (r.touched, r.id))
    ahead = list(residents)
    while ahead and s.batch.decodes < decodes:
        decode_if_room(s, ahead.pop(0))
    room = tokens - s.batch.tokens
    if room > 0 and not (prefill == 0 and len(residents) >= tokens):
        room = ongoing(s, room)
        admit_chunks(s, heads(s, "fcfs"), room)
    while ahead and s.batch.tokens < tokens:
        decode_if_room(s, ahead.pop(0))
