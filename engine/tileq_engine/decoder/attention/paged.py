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
    first: Int[np.ndarray, "seq"]
    rows: Int[np.ndarray, "room"]
    scores: Float[np.ndarray, "head longest"]
    bits: Int[np.ndarray, "longest"]


class PagedAttention:
    """Every query row in one fixed order of additions: batch, chunks and block layout leave no trace in its bits."""

    name = "paged"
    graphable = False

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self._kernel, self._find = compiled_attention()
        self._longest = self._room = 0
        self._rows = np.empty(0, dtype=np.int64)

    def plan(self, batch: FlatBatch, pool: KvPool) -> _Plan:
        """Return where each sequence's tokens lie, with scratch for the longest context."""
        longest = batch.max_context_tokens
        if longest > self._longest:
            self._longest = max(2 * self._longest, longest)
            self._scores = np.empty((self.heads, self._longest), dtype=np.float32)
            self._bits = np.empty(self._longest, dtype=np.int32)
        starts, contexts = batch.host_query_start, batch.host_context_tokens
        whole = int(contexts.sum())
        if whole > len(self._rows):
            self._rows = np.empty(2 * whole, dtype=np.int64)
        first = np.empty(len(contexts), dtype=np.int64)
        self._find(batch.block_table.numpy(), contexts, pool.block_tokens, first, self._rows)
        return _Plan(starts, contexts, first, self._rows, self._scores, self._bits)

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
            pool.flat_keys[layer].numpy(),
            pool.flat_values[layer].numpy(),
            plan.query_start,
            plan.context,
            plan.first,
            plan.rows,
            query.shape[-1] ** -0.5,
            window or 0,
            plan.scores,
            plan.bits,
            out.numpy(),
        )
        return out


@functools.cache
def compiled_attention() -> tuple[Callable[..., None], Callable[..., None]]:
    """Return `paged_attention` and `find_rows`, compiled; the code lies in the user's cache folder under its hash."""
    kernels = compiled_module(paged_kernel, "attention", _OPTIONS)
    return kernels["paged_attention"], kernels["find_rows"]
