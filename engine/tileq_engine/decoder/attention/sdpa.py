"""Portable attention: torch's scaled_dot_product_attention, one call a sequence.

Each call sees exactly its own context, so the work is the sum of the contexts and not batch times longest.
"""

from __future__ import annotations

__all__ = ["SdpaAttention"]

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int

from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.pool import KvPool


@dataclass(frozen=True, slots=True)
class _Sequence:
    start: int
    stop: int
    slots: Int[torch.Tensor, "context"]
    queries: Int[torch.Tensor, "query"]  # positions
    keys: Int[torch.Tensor, "context"]


class SdpaAttention:
    """One call of scaled_dot_product_attention per sequence; the heads that share a KV head lie in the query axis."""

    name = "sdpa"
    graphable = False

    def plan(self, batch: FlatBatch, pool: KvPool) -> list[_Sequence]:
        """Return, for each sequence, its rows and the slots of its context."""
        device = batch.slots.device
        within = torch.arange(pool.block_tokens, device=device)
        sequences = []
        for i in range(batch.sequences):
            start, stop = int(batch.host_query_start[i]), int(batch.host_query_start[i + 1])
            if start == stop:  # a sequence that only fills up a recorded shape
                continue
            context = int(batch.host_context_tokens[i])
            blocks = batch.block_table[i, : -(-context // pool.block_tokens)].to(torch.int64)
            slots = (blocks[:, None] * pool.block_tokens + within).flatten()[:context]
            keys = torch.arange(context, device=device)
            sequences.append(_Sequence(start, stop, slots, keys[context - (stop - start) :], keys))
        return sequences

    def __call__(
        self,
        layer: int,
        query: Float[torch.Tensor, "token head dim"],
        pool: KvPool,
        plan: list[_Sequence],
        window: int | None,
    ) -> Float[torch.Tensor, "token head dim"]:
        """Return softmax(q k / sqrt(d)) v over each sequence's own context."""
        out = torch.zeros_like(query)  # rows of padding belong to no sequence
        for s in plan:
            key, value = pool.flat_keys[layer][s.slots], pool.flat_values[layer][s.slots]
            out[s.start : s.stop] = _attend(query[s.start : s.stop], key, value, _mask(s, window))
        return out


def _mask(s: _Sequence, window: int | None) -> Bool[torch.Tensor, "query context"] | None:
    if s.stop - s.start == 1 and (window is None or window >= len(s.keys)):
        return None
    visible = s.keys[None, :] <= s.queries[:, None]
    if window is not None:
        visible &= s.keys[None, :] > s.queries[:, None] - window
    return visible


def _attend(
    query: Float[torch.Tensor, "query head dim"],
    key: Float[torch.Tensor, "context kv_head dim"],
    value: Float[torch.Tensor, "context kv_head dim"],
    mask: Bool[torch.Tensor, "query context"] | None,
) -> Float[torch.Tensor, "query head dim"]:
    count, heads, dim = query.shape
    shared = key.shape[1]
    group = heads // shared
    rows = query.view(count, shared, group, dim).permute(1, 2, 0, 3).reshape(1, shared, group * count, dim)
    seen = None if mask is None else mask.repeat(group, 1)
    out = torch.nn.functional.scaled_dot_product_attention(
        rows, key.transpose(0, 1)[None], value.transpose(0, 1)[None], attn_mask=seen
    )
    return out.view(shared, group, count, dim).permute(2, 0, 1, 3).reshape(count, heads, dim)
