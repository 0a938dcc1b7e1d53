"""Lengths with the hits of one replica's cache, by what the router sends it: conversations or single requests."""

from __future__ import annotations

__all__ = ["TOGETHER", "conversation_law", "trace_law"]

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tileq_theory.lengths.base import JointLaw
    from tileq_theory.prefix_cache import CachedLengths, Conversations

TOGETHER = ("session_affinity", "prefix_affinity")  # routers that send requests with a common prefix to one node


def conversation_law(
    base: JointLaw,
    talks: Conversations,
    share: float,
    together: bool,
    cache_tokens: float | None,
    residents: float,
    turns_per_s: float,
) -> tuple[CachedLengths, float]:
    """Return the lengths with hits, and how long the cache remembers, seconds.

    Parameters
    ----------
    base
        Whole lengths.
    talks
        The conversations as users hold them.
    share
        Share of all turns that the replica is sent.
    together
        Whether whole conversations are sent there, or single turns.
    cache_tokens
        Of the replica; None: no limit.
    residents
        Turns that are there at the same time, and hold their system prompts once.
    turns_per_s
        The replica's own rate.
    """
    from tileq_theory.prefix_cache import CachedLengths, at_node

    law = at_node(talks, share, together=together)
    reach = math.inf if cache_tokens is None else law.reach_s(cache_tokens, turns_per_s)
    prompt, cached, weight = law.turn_law(reach, turns_per_s)
    # a conversation takes one turn at a time: residents share system prompts alone
    shared = np.minimum(cached, law.shared_tokens(residents))
    return CachedLengths(base, prompt, cached, shared, weights=weight), reach


def trace_law(
    base: JointLaw,
    trace: Any,
    share: float,
    together: bool,
    cache_tokens: float | None,
    residents: float,
    answers: bool,
) -> tuple[CachedLengths, float]:
    """Return the lengths with hits, and how many of the trace's requests back the cache remembers.

    `together`: the caches of all replicas serve as one, since a trace does not tell where its conversations part;
    `answers`: generated tokens take room beside the prompts. The others are `conversation_law`'s.
    """
    from tileq_theory.prefix_cache import CachedLengths, Reuse, SplitReuse

    blocks, prompts = trace.blocks, trace.prompt_tokens
    reuse = Reuse.of_blocks(blocks.ids, blocks.offsets, blocks.block_tokens, prompts)
    per_request = reuse.references / reuse.requests
    extra = float(trace.output_tokens.mean()) / reuse.block_tokens / per_request if answers else 0.0
    size = None if cache_tokens is None else cache_tokens / reuse.block_tokens
    window = math.inf
    if together:
        if size is not None:
            window = reuse.window(size / share, extra_per_touch=extra)
        cached = reuse.hit_tokens_within(window).astype(float)
        saved = reuse.shared_tokens(residents / share * per_request)
    else:
        split = SplitReuse.of_blocks(blocks.ids, blocks.offsets, blocks.block_tokens, prompts, share=share)
        if size is not None:
            window = split.window(size, extra_per_touch=extra)
        cached = split.hit_tokens_within(window)
        saved = share * reuse.shared_tokens(residents / share * per_request)
    shared = np.minimum(cached, saved)
    return CachedLengths(base, prompts, cached, shared, output_tokens=trace.output_tokens), window / per_request
