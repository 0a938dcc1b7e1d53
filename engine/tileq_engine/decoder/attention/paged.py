"""Paged attention on the CPU: the kernels of `paged_kernel`, compiled by numba."""

from __future__ import annotations

__all__ = ["PagedAttention", "compiled_attention"]

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from tileq_engine.compile_module import compiled_module
from tileq_engine.decoder.attention import paged_kernel
from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.pool import KvPool

_OPTIONS = "fastmath={'reassoc', 'contract', 'nsz', 'arcp'}"


@dataclass(frozen=True, slots=True)
class _Plan:
    query_start: Int[np.ndarray, "start"]
    context: Int[np.ndarray, "seq"]
    table: Int[np.ndarray, "seq block"]
    scores: Float[np.ndarray, "head room"]
    bits: Int[np.ndarray, "room"]


class PagedAttention:
    """Every query row in one fixed order of additions: batch, chunks and block layout leave no trace in its bits."""

    name = "paged"
    graphable = False

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self._kernel = compiled_attention()
        self._room = 0

    def plan(self, batch: FlatBatch, pool: KvPool) -> _Plan:
        """Return the batch as numpy sees it, with scratch for its longest context."""
        longest = batch.max_context_tokens
        if longest > self._room:
            self._room = max(2 * self._room, longest)
            self._scores = np.empty((self.heads, self._room), dtype=np.float32)
            self._bits = np.empty(self._room, dtype=np.int32)
        starts, contexts = batch.host_query_start, batch.host_context_tokens
        return _Plan(starts, contexts, batch.block_table.numpy(), self._scores, self._bits)

    def __call__(
        self,
        layer: int,
        query: Float[torch.Tensor, "token head dim"],
        pool: KvPool,
        plan: _Plan,
        window: int | None,
    ) -> Float[torch.Tensor, "token head dim"]:
        """Return the attended values of `layer`."""
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        self._kernel(
            query.contiguous().numpy(),
            pool.keys[layer].numpy(),
            pool.values[layer].numpy(),
            plan.table,
            plan.query_start,
            plan.context,
            query.shape[-1] ** -0.5,
            window or 0,
            plan.scores,
            plan.bits,
            out.numpy(),
        )
        return out


@functools.cache
def compiled_attention() -> Callable[..., None]:
    """Return `paged_attention` compiled; the code lies in the user's cache folder under a hash of its source."""
    kernel: Callable[..., None] = compiled_module(paged_kernel, "attention", _OPTIONS)["paged_attention"]
    return kernel
