"""WAIT and Nested WAIT: a stage of the pipeline moves only when enough requests have gathered before it."""

from __future__ import annotations

__all__ = ["mix_nested_wait", "mix_wait"]

from typing import Any

from tileq_engine.batch import admit_request, remove_waiting, secure_decode, take_chunk, take_ready
from tileq_engine.records import Records

_PREFILL, _DECODE = 1, 2
_ANY_PROMPT = 1 << 31


def first_waiting(R: Records, S: Records, H: Any, kind: int) -> Any:
    """Return the place of the earliest waiting request of class `kind` (of any, if -1); -1 when there is none."""
    best = -1
    for place in range(S[0].nwait):
        i = H[place]
        if (kind < 0 or R[i].cls == kind) and (best < 0 or i < H[best]):
            best = place
    return best


def count_waiting(R: Records, S: Records, H: Any, kind: int) -> Any:
    """Return how many requests of class `kind` (of any, if -1) wait for their prompt stage."""
    count = 0
    for place in range(S[0].nwait):
        if kind < 0 or R[H[place]].cls == kind:
            count += 1
    return count


def take_prompts(
    R: Records,
    B: Records,
    S: Records,
    H: Any,
    O: Any,  # noqa: E741
    P: Any,
    kind: int,
    most: int,
    admit: Any,
) -> None:
    """Admit up to `most` of the earliest waiting requests of class `kind`, whole prompts."""
    s = S[0]
    s.room = _ANY_PROMPT
    while most > 0 and s.nres < s.max_seqs and s.npreempt == 0:
        place = first_waiting(R, S, H, kind)
        if place < 0 or admit(R, B, S, P, H[place]) == 0:
            return
        b = B[admit_request(R, B, S, O, P, remove_waiting(R, S, H, place))]
        if b.phase == _PREFILL:
            take_chunk(b, s, b.target - b.cached)
        most -= 1


def mix_wait(
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
    """Move class j, one token for each of its residents and n_j new prompts, when n_j of its prompts have gathered.

    P holds n_j by class. When no arrival is to come, every class moves with what it has. No token budget applies.
    """
    s = S[0]
    n = decodes(R, B, S, O, W, P)
    for kind in range(s.kinds):
        gathered = count_waiting(R, S, H, kind)
        if gathered < P[kind] and s.drain == 0:
            continue
        for j in range(n):
            b = B[W[j]]
            if b.phase == _DECODE and b.dec == 0 and R[b.id].cls == kind and not take_ready(b, s):
                secure_decode(R, B, S, H, O, P, W[j], order, victim)
        take_prompts(R, B, S, H, O, P, kind, P[kind], admit)


def mix_nested_wait(
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
    """Move segments 1..k of the output, k the largest for which every segment up to it has gathered its threshold.

    P holds the segments' first stages (0, l_1, l_2, ...) and then their thresholds. A request gathers before segment
    i when it has decoded just l_(i-1) tokens; before the first, when it waits for its prompt. Requests inside a
    moving segment all move, and of those gathered before it the earliest n_i.
    """
    s = S[0]
    n = decodes(R, B, S, O, W, P)
    m = s.kinds
    moving = 0
    while moving < m:
        gathered = count_waiting(R, S, H, -1)
        if moving > 0:
            gathered = 0
            for j in range(n):
                b = B[W[j]]
                if b.gen - b.replay - s.emit == P[moving]:
                    gathered += 1
        if gathered < P[m + moving] and s.drain == 0:
            break
        moving += 1
    for segment in range(1, moving):
        W[n + segment - 1] = P[m + segment]  # places left at the segment's door
    for j in range(n):
        b = B[W[j]]
        stage = b.gen - b.replay - s.emit
        segment = 0
        while segment + 1 < m and stage >= P[segment + 1]:
            segment += 1
        if segment >= moving:
            continue
        if segment > 0 and stage == P[segment] and s.drain == 0:
            if W[n + segment - 1] == 0:
                continue
            W[n + segment - 1] -= 1
        if not take_ready(b, s):
            secure_decode(R, B, S, H, O, P, W[j], order, victim)
    if moving > 0:
        take_prompts(R, B, S, H, O, P, -1, P[m], admit)
