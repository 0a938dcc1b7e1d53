"""Physical blocks of the residents: whose tokens lie where on the device, and what waits on the host."""

from __future__ import annotations

__all__ = ["PagedMemory"]

from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.executor.backend import Backend
from tileq_engine.kv import KvCache

_HOST_BLOCKS = 2**40  # host memory is not what a policy plans with


class PagedMemory:
    """Block tables of the residents on top of `KvCache`, kept as one array so that a batch is built by indexing.

    Blocks are taken when a request's tokens need them, never ahead: the scheduler, which counts what it has promised,
    has then always counted at least as many. A resident has a row of `table` from its first batch until it leaves.
    """

    def __init__(self, backend: Backend, rows: int, blocks: int | None = None) -> None:
        self.backend = backend
        self.block_tokens = backend.block_tokens
        self.cache = KvCache(
            blocks=backend.blocks if blocks is None else blocks,
            block_tokens=backend.block_tokens,
            host_blocks=_HOST_BLOCKS,
        )
        self.table = np.zeros((rows, 8), dtype=np.int32)
        self._room = np.zeros(rows, dtype=np.int64)  # tokens that the blocks of a row hold
        self._free_rows = list(range(rows - 1, -1, -1))
        self._row_of = np.full(16, -1, dtype=np.int64)
        self._host: dict[int, Any] = {}

    def rows(self, requests: Int[np.ndarray, "member"]) -> Int[np.ndarray, "member"]:
        """Return the rows of these requests; -1 for one that has none."""
        most = int(requests.max(initial=0))
        if most >= self._row_of.size:
            self._row_of = np.concatenate([self._row_of, np.full(most + 1, -1, dtype=np.int64)])
        rows: np.ndarray = self._row_of[requests]
        return rows

    def secure(
        self, requests: Int[np.ndarray, "member"], tokens: Int[np.ndarray, "member"]
    ) -> Int[np.ndarray, "member"]:
        """Give each request blocks for `tokens` tokens in all; return their rows."""
        rows = self.rows(requests)
        short = (rows < 0) | (tokens > self._room[rows])
        for at in np.flatnonzero(short).tolist():
            self._grow(int(requests[at]), int(tokens[at]))
        return self._row_of[requests] if bool(short.any()) else rows

    def _grow(self, request: int, tokens: int) -> None:
        row = int(self._row_of[request])
        if row < 0:
            row = self._free_rows.pop()
            self._row_of[request] = row
            self._room[row] = 0
        if request in self._host:
            self._bring_back(request, row)
        if tokens <= self._room[row]:
            return
        need = self.cache.blocks_for(tokens)
        held = int(self._room[row]) // self.block_tokens
        self._write(row, held, self.cache.grow(request, need * self.block_tokens))

    def _write(self, row: int, held: int, blocks: list[int]) -> None:
        need = held + len(blocks)
        if need > self.table.shape[1]:
            wider = np.zeros((self.table.shape[0], max(need, 2 * self.table.shape[1])), dtype=np.int32)
            wider[:, : self.table.shape[1]] = self.table
            self.table = wider
        self.table[row, held:need] = blocks
        self._room[row] = need * self.block_tokens

    def _bring_back(self, request: int, row: int) -> None:
        blocks = self.cache.swap_in(request)
        self.backend.copy_in(self._host.pop(request), blocks)
        self._write(row, 0, blocks)

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
        row = int(self.rows(np.array([request]))[0])
        if row >= 0:
            self._free_rows.append(row)
            self._row_of[request] = -1
            self._room[row] = 0

    @property
    def held(self) -> int:
        """Requests with KV on the device or on the host."""
        return self.table.shape[0] - len(self._free_rows) + len(self._host)

    def check(self) -> None:
        """Prove the cache's invariants and that every row shows its request's blocks, or raise `KvError`."""
        from tileq_engine.kv import KvError

        self.cache.check()
        for request in np.flatnonzero(self._row_of >= 0).tolist():
            row = int(self._row_of[request])
            blocks = self.cache.table(request)
            if self.table[row, : len(blocks)].tolist() != blocks or self._room[row] != len(blocks) * self.block_tokens:
                raise KvError(f"row {row} does not show the blocks of request {request}")
