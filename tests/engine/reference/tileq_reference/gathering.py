"""WAIT and Nested WAIT: stages that move when enough requests have gathered; overflow restarts the last admitted."""

from __future__ import annotations

from tileq_reference.core import Simulator
from tileq_reference.parts import Request
from tileq_reference.rules import decode_if_room, may_admit, may_hold, modes, promised


def wait(s: Simulator) -> None:
    """Class j moves (its residents decode, n_j prompts enter) when n_j of it wait, or nobody is to come any more."""
    decoding = s.decoding()
    for kind, number in enumerate(s.c.get("thresholds")):
        if len(of_class(s, kind)) < number and s.future:
            continue
        for r in decoding:
            if r.kind == kind:
                decode_if_room(s, r)
        enter(s, of_class(s, kind), number)


def nested_wait(s: Simulator) -> None:
    """Segments 1..k of the output move, k the largest for which every segment up to it has gathered its number."""
    starts: list[int] = s.c.get("starts")
    numbers: list[int] = s.c.get("thresholds")
    decoding = [(r, stage(s, r)) for r in s.decoding()]
    moving = 0
    for start, number in zip(starts, numbers, strict=True):
        gathered = sum(at == start for _, at in decoding) if moving else len(s.waiting)
        if gathered < number and s.future:
            break
        moving += 1
    door = list(numbers)
    for r, at in decoding:
        segment = max(i for i, start in enumerate(starts) if start <= max(at, 0))
        if segment >= moving:
            continue
        if segment > 0 and at == starts[segment] and s.future:
            if door[segment] == 0:
                continue
            door[segment] -= 1
        decode_if_room(s, r)
    if moving:
        enter(s, s.waiting, numbers[0])


def stage(s: Simulator, r: Request) -> int:
    """Tokens decoded in this life (the one that ends a prefill does not count)."""
    return r.generated - r.replay - (1 if s.c.engine_convention else 0)


def of_class(s: Simulator, kind: int) -> list[Request]:
    return [r for r in s.waiting if r.kind == kind]


def enter(s: Simulator, who: list[Request], most: int) -> None:
    """The earliest `most` of `who` enter with their whole prompts, while slots and blocks last."""
    for r in sorted(who, key=lambda r: r.id)[:most]:
        by_chunk, conservative = modes(s, False, False)
        holds, chunk = promised(s, r) if conservative else r.target, s.todo(r)
        if not may_admit(s) or (not by_chunk and s.c.reservation != "policy" and not may_hold(s, r, holds)):
            return
        if not s.take(r, holds):
            return
        s.admit(r)
        s.prefill(r, chunk)
