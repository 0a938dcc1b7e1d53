"""SGLang: the longest cached prefix first, prefill before decode (or beside it), admission by an estimate."""

from __future__ import annotations

from collections.abc import Iterable

from tileq_reference.core import Simulator
from tileq_reference.parts import BLOCK, Request
from tileq_reference.pressure import may_enter
from tileq_reference.rules import by, decode_if_room, may_admit, modes, ongoing, predicted, promised, swap_in

CLIPPED = 4096


def sglang(s: Simulator) -> None:
    """One batch: chunks of prompts alone, else decodes of everybody; or both together."""
    mixed = s.c.get("mixed_chunk", False)
    left = s.c.budget
    if mixed:
        for r in s.decoding():
            decode_if_room(s, r, fewest_tokens)
        left -= s.batch.tokens
    left = ongoing(s, left, fewest_tokens)
    while left > 0 and may_admit(s):
        r = first(s)
        if r is None or not may_enter(s, r, left) or (r.status == "swapped" and not mixed):
            break
        left -= enter(s, r, left)
    if mixed or s.batch.items:
        return
    for r in s.decoding():
        decode_if_room(s, r, fewest_tokens)
    while may_admit(s) and s.batch.tokens < s.c.budget:
        r = first(s)
        if r is None or r.status != "swapped" or not may_enter(s, r, s.c.budget):
            break
        swap_in(s, r, watermark=False)


def enter(s: Simulator, r: Request, left: int) -> int:
    """Admit `r`; the tokens it gets."""
    if r.status == "swapped":
        swap_in(s, r, watermark=False)
        return 1
    by_chunk, conservative = modes(s, False, False)
    chunk = min(s.todo(r), left)
    s.take(r, s.had(r) + chunk if by_chunk else promised(s, r) if conservative else r.target)
    s.admit(r)
    s.prefill(r, chunk)
    return chunk


def first(s: Simulator) -> Request | None:
    """Who is next: swapped ones, then the longest cached prefix; in order of arrival when too many wait."""
    aware = s.c.get("order") == "longest_prefix" and len(s.waiting) <= s.c.get("fcfs_beyond")
    waiting = by(s, lambda r: (-s.had(r) if aware else 0,), front=False)
    return next((r for r in waiting if not s.accounts or s.accounts[r.tenant].open), None)


def estimate_fits(s: Simulator, r: Request) -> bool:
    """The prompt, its output, and a share of what the residents are to write fit; alone it need only fit itself."""
    need = s.missing(r, r.kv + 1 if r.status == "swapped" else r.target)
    if need > s.free or not s.running:
        return need <= s.free
    expected = sum(min(max(predicted(x) - x.generated, 0), CLIPPED) for x in s.running)
    own = min(max(predicted(r) - r.generated, 1), CLIPPED)
    return need * BLOCK + expected * s.c.get("reserve") // 1000 + own <= s.free * BLOCK


def fewest_tokens(s: Simulator, candidates: Iterable[Request]) -> Request:
    """The fewest output tokens, then the longest prompt, then the last."""
    return max(candidates, key=lambda r: (-r.generated, r.prompt, r.id))
