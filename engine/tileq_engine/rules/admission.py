"""Admission rules: the memory gate before a waiting request becomes a resident.

`rule(R, B, S, P, i)` returns 1 when request `i` may become active now; slots and token budget are looked at by the
mixing rule. Every gate lets a request into an empty system, whatever the watermark, so that nothing waits for ever.
"""

from __future__ import annotations

__all__ = ["admit_always", "admit_chunk", "admit_estimate", "admit_sequence", "admit_watermark"]

from typing import Any

from tileq_engine.batch import admission_need, blocks_for
from tileq_engine.prefix_tree import find_prefix, found_tokens, spared_blocks
from tileq_engine.records import Records

_EMPTY_SEAT = 0  # phase of a slot without a resident
_CLIPPED = 4096  # tokens: an output limit is rarely used up


def admit_watermark(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit while the request's blocks (its prompt, or prompt and predicted output) leave the watermark free."""
    s = S[0]
    need = admission_need(R, S, P, i)
    if s.nres > 0:
        need += s.watermark
    return 1 if need <= s.free else 0


def admit_chunk(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit when the blocks of the first chunk are free (vLLM v1); the chunk is what the budget leaves."""
    s = S[0]
    r = R[i]
    if r.cached > 0:
        return 1 if admission_need(R, S, P, i) <= s.free else 0
    if s.tree > 0:
        find_prefix(R, S, P, i)
    found = found_tokens(S, P, i)
    tokens = min(r.prompt + r.gen - r.replay, found + s.room)
    return 1 if blocks_for(tokens, s.block) - spared_blocks(S, P, i) <= s.free else 0


def admit_sequence(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit when the blocks of all that is known of the request are free, its prompt and what it has generated.

    vLLM v1 since 0.19. Blocks are still taken chunk by chunk: two long prompts may enter on the same free blocks.
    """
    s = S[0]
    r = R[i]
    tokens = r.cached + 1 if r.cached > 0 else r.prompt + r.gen - r.replay
    if s.tree > 0:
        find_prefix(R, S, P, i)
    return 1 if blocks_for(tokens, s.block) - spared_blocks(S, P, i) <= s.free else 0


def admit_estimate(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit when what the residents are still expected to write, and the request with its output, fit (SGLang).

    A resident is expected to write S[0].reserve thousandths of the rest of its predicted output, at most 4096 tokens.
    """
    s = S[0]
    r = R[i]
    need = admission_need(R, S, P, i)
    if need > s.free:
        return 0
    if s.nres == 0:
        return 1
    expected = 0
    for slot in range(len(B)):
        b = B[slot]
        if b.phase != _EMPTY_SEAT:
            expected += min(max(R[b.id].predicted - b.gen, 0), _CLIPPED)
    tokens = (expected * s.reserve) // 1000 + min(max(r.predicted - r.gen, 1), _CLIPPED)
    return 1 if need * s.block + tokens <= s.free * s.block else 0


def admit_always(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit while the blocks are there at all."""
    return 1 if admission_need(R, S, P, i) <= S[0].free else 0
