"""Admission rules: the memory gate before a waiting request becomes a resident.

`rule(R, B, S, P, i)` returns 1 when request `i` may become active now; slots and token budget are looked at by the
mixing rule. Every gate lets a request into an empty system, whatever the watermark, so that nothing waits for ever.
"""

from __future__ import annotations

__all__ = ["admit_always", "admit_chunk", "admit_sequence", "admit_watermark"]

from typing import Any

from tileq_engine.batch import admission_blocks, blocks_for
from tileq_engine.records import Records


def admit_watermark(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit while the request's blocks (its prompt, or prompt and predicted output) leave the watermark free."""
    s = S[0]
    need = admission_blocks(R, S, i)
    if s.nres > 0:
        need += s.watermark
    return 1 if need <= s.free else 0


def admit_chunk(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit when the blocks of the first chunk are free (vLLM v1); the chunk is what the budget leaves."""
    s = S[0]
    r = R[i]
    if r.cached > 0:
        return 1 if admission_blocks(R, S, i) <= s.free else 0
    tokens = r.prompt + r.gen - r.replay
    if tokens > s.room:
        tokens = s.room
    return 1 if blocks_for(tokens, s.block) <= s.free else 0


def admit_sequence(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit when the blocks of all that is known of the request are free, its prompt and what it has generated.

    vLLM v1 since 0.19. Blocks are still taken chunk by chunk: two long prompts may enter on the same free blocks.
    """
    s = S[0]
    r = R[i]
    tokens = r.cached + 1 if r.cached > 0 else r.prompt + r.gen - r.replay
    return 1 if blocks_for(tokens, s.block) <= s.free else 0


def admit_always(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit while the blocks are there at all."""
    return 1 if admission_blocks(R, S, i) <= S[0].free else 0
