"""Physical blocks of the residents: whose tokens lie where on the device, and what waits on the host."""

from __future__ import annotations

__all__ = ["PagedMemory"]

from typing import Any, TypeGuard

import numpy as np

from tileq_engine.executor.backend import Backend
from tileq_engine.kv import KvCache, KvError
from tileq_engine.kv_prefix import PrefixKvCache
from tileq_engine.prefix_blocks import BlockPaths

_HOST_BLOCKS = 2**40  # host memory is not what a policy plans with
_GAP = 32  # blocks of 16 tokens: a few hundred tokens in a row


class PagedMemory:
    """Block tables of the residents on top of `KvCache`, kept as one array so that a batch is built by indexing.

    Blocks are taken when a request's tokens need them, never ahead: the scheduler, which counts what it has promised,
    has then always counted at least as many. A resident has a row of `table` from its first batch until it
    leaves: `row_of` it (-1: none yet), with blocks for `room` tokens. With `prefixes`, the paths of the prompts' full
    blocks, those outlive their owners and are found again.
    """

    def __init__(
        self, backend: Backend, rows: int, blocks: int | None = None, prefixes: BlockPaths | None = None
    ) -> None:
        self.backend = backend
        self.block_tokens = backend.block_tokens
        self.prefixes = prefixes
        kind = KvCache if prefixes is None else PrefixKvCache
        self.cache = kind(
            blocks=backend.blocks if blocks is None else blocks,
            block_tokens=backend.block_tokens,
            host_blocks=_HOST_BLOCKS,
            gap=_GAP,
        )
        self.table = np.zeros((rows, 8), dtype=np.int32)
        self.room = np.zeros(rows, dtype=np.int64)
        self._free_rows = list(range(rows - 1, -1, -1))
        self.row_of = np.full(16, -1, dtype=np.int64)
        self._host: dict[int, Any] = {}

    def _row(self, request: int) -> int:
        """Return the row of `request`, -1 when it has none."""
        if request >= self.row_of.size:
            self.row_of = np.concatenate([self.row_of, np.full(request + 1, -1, dtype=np.int64)])
        return int(self.row_of[request])

    def grow(self, request: int, tokens: int, cached: int = 0) -> None:
        """Give `request` blocks for `tokens` tokens in all, and a row of the table if it has none.

        With a prefix cache, `cached` tokens of a request that has no row are there already.
        """
        row = self._row(request)
        if row < 0:
            row = self._free_rows.pop()
            self.row_of[request] = row
            self.room[row] = 0
            if cached and self.prefixes is not None and request not in self._host:
                self._attach(request, row, cached)
        if request in self._host:
            self._bring_back(request, row)
        if tokens <= self.room[row]:
            return
        need = self.cache.blocks_for(tokens)
        held = int(self.room[row]) // self.block_tokens
        self._write(row, held, self.cache.grow(request, need * self.block_tokens))

    def _write(self, row: int, held: int, blocks: list[int]) -> None:
        need = held + len(blocks)
        if need > self.table.shape[1]:
            wider = np.zeros((self.table.shape[0], max(need, 2 * self.table.shape[1])), dtype=np.int32)
            wider[:, : self.table.shape[1]] = self.table
            self.table = wider
        self.table[row, held:need] = blocks
        self.room[row] = need * self.block_tokens

    def _bring_back(self, request: int, row: int) -> None:
        blocks = self.cache.swap_in(request)
        self.backend.copy_in(self._host.pop(request), blocks)
        self._write(row, 0, blocks)

    def _keys(self, request: int, tokens: int) -> list[int]:
        """Return the nodes of the request's full blocks within its first `tokens` tokens."""
        if self.prefixes is None or request >= len(self.prefixes):
            return []
        return [int(node) for node in self.prefixes.path(request)[: tokens // self.block_tokens]]

    def _attach(self, request: int, row: int, cached: int) -> None:
        blocks = self.cache.attach(request, self._keys(request, cached)) if self._keeps(self.cache) else []
        if len(blocks) * self.block_tokens != cached:
            raise KvError(
                f"request {request} is to begin behind {cached} cached tokens, and {len(blocks)} blocks are kept"
            )
        self._write(row, 0, blocks)

    def keep(self, request: int, tokens: int) -> None:
        """Keep the full blocks of the request's first `tokens` tokens for prompts that begin with them."""
        if self._keeps(self.cache):
            row = self._row(request)
            for place, block in self.cache.commit(request, self._keys(request, tokens)):
                self.table[row, place] = block

    @staticmethod
    def _keeps(cache: KvCache) -> TypeGuard[PrefixKvCache]:
        return isinstance(cache, PrefixKvCache)

    def swap_out(self, request: int) -> None:
        """Move a request's KV to the host; one whose KV is there already stays."""
        if request in self._host:
            return
        self._host[request] = self.backend.copy_out(self.cache.table(request))
        self.cache.swap_out(request)
        self._leave_row(request)

    def drop(self, request: int) -> None:
        """Give back all that a request holds, on the device and on the host."""
        self._host.pop(request, None)
        self.cache.release(request)
        self._leave_row(request)

    def _leave_row(self, request: int) -> None:
        row = self._row(request)
        if row >= 0:
            self._free_rows.append(row)
            self.row_of[request] = -1
            self.room[row] = 0

    @property
    def held(self) -> int:
        """Requests with KV on the device or on the host."""
        return self.table.shape[0] - len(self._free_rows) + len(self._host)

    def check(self) -> None:
        """Prove the cache's invariants and that every row shows its request's blocks, or raise `KvError`."""
        self.cache.check()
        for request in np.flatnonzero(self.row_of >= 0).tolist():
            row = int(self.row_of[request])
            blocks = self.cache.table(request)
            if self.table[row, : len(blocks)].tolist() != blocks or self.room[row] != len(blocks) * self.block_tokens:
                raise KvError(f"row {row} does not show the blocks of request {request}")
