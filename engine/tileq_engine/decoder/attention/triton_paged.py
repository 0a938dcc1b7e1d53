"""Attention on CUDA by the project's Triton kernel: blocks of any size, no copies, fit for CUDA graphs."""

from __future__ import annotations

__all__ = ["TritonAttention"]

from typing import Any

import torch
from jaxtyping import Float

from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.pool import KvPool


class TritonAttention:
    """Calls the kernel of `triton_kernel`; a batch of single tokens gets small tiles, one with chunks large ones."""

    name = "triton paged"
    graphable = True

    def __init__(self) -> None:
        from tileq_engine.decoder.attention.triton_kernel import paged_kernel

        self._kernel: Any = paged_kernel

    def plan(self, batch: FlatBatch, pool: KvPool) -> tuple[FlatBatch, bool]:
        """Return the batch and whether it has chunks."""
        return batch, batch.max_query_tokens > 1

    def __call__(
        self,
        layer: int,
        query: Float[torch.Tensor, "token head dim"],
        pool: KvPool,
        plan: tuple[FlatBatch, bool],
        window: int | None,
    ) -> Float[torch.Tensor, "token head dim"]:
        """Return the attended values of `layer`."""
        batch, chunks = plan
        tokens, heads, dim = query.shape
        keys = pool.flat_keys[layer]
        group = heads // keys.shape[1]
        queries = max(1, 64 // group) if chunks else max(1, 16 // group)
        sequences = batch.query_start.shape[0] - 1
        out = torch.empty((tokens, heads, dim), dtype=query.dtype, device=query.device)
        grid = (tokens // queries + sequences, keys.shape[1])
        self._kernel[grid](
            query,
            keys,
            pool.flat_values[layer],
            out,
            batch.block_table,
            batch.query_start,
            batch.context_tokens,
            sequences,
            dim**-0.5,
            query.stride(0),
            keys.stride(0),
            batch.block_table.stride(0),
            WINDOW=window or 0,
            HEADS=heads,
            GROUP=group,
            DIM=dim,
            DIM_TILE=max(16, 1 << (dim - 1).bit_length()),
            BLOCK_TOKENS=pool.block_tokens,
            QUERIES=queries,
            ROWS=max(16, 1 << (queries * group - 1).bit_length()),
            KEYS=32 if query.dtype == torch.float32 else 64,
            PRECISION="ieee" if query.dtype == torch.float32 else "tf32",
        )
        return out
