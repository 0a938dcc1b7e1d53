"""From a scheduler's batch to the flat batch of a model, and from its tokens back to the histories: compiled."""

from __future__ import annotations

__all__ = ["BatchBuilder"]

from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.compile_module import compiled_module
from tileq_engine.executor import batch_kernels
from tileq_engine.executor.backend import HostBatch
from tileq_engine.executor.histories import Histories
from tileq_engine.executor.memory import PagedMemory
from tileq_engine.scheduler import Batch

_OPTIONS = "_nrt=False"  # they allocate nothing: no references to count


class BatchBuilder:
    """Builds flat batches over the blocks of `memory` and the tokens of `histories`.

    Parameters
    ----------
    memory, histories
        The executor's.

    Examples
    --------
    >>> from tileq_engine.executor import TokenHashBackend
    >>> memory, histories = PagedMemory(TokenHashBackend(), rows=2), Histories()
    >>> _ = histories.add(np.array([5, 6, 7]), room=1)
    >>> one, three, none = np.array([0]), np.array([3]), np.array([0])
    >>> nobody = np.zeros(0, dtype=np.int64)
    >>> flat, given = BatchBuilder(memory, histories).build(Batch(one, three, none, none, nobody, nobody > 0))
    >>> flat.token_ids.tolist(), flat.last_rows.tolist(), given.tolist()
    ([5, 6, 7], [2], [0])
    """

    def __init__(self, memory: PagedMemory, histories: Histories) -> None:
        self._memory, self._histories = memory, histories
        kernels = compiled_module(batch_kernels, "batch", _OPTIONS)
        self._measure, self._fill = kernels["measure_batch"], kernels["fill_batch"]
        self._deliver = kernels["deliver_tokens"]
        self._need = np.zeros(4, dtype=np.int64)
        self._short = np.zeros(0, dtype=np.int64)

    def build(self, batch: Batch) -> tuple[HostBatch, Int[np.ndarray, "out"]]:
        """Give the members blocks; return the flat batch, and how many tokens each that gets one has been given."""
        memory, told, size = self._memory, self._histories, len(batch)
        if size > self._short.size:
            self._short = np.zeros(2 * size, dtype=np.int64)
        members = (batch.ids, batch.prefill_tokens, batch.decode, batch.context_tokens)
        self._measure(*members, told.length, memory.row_of, memory.room, self._need, self._short)
        total, longest, wanted, short = self._need.tolist()
        for k in self._short[:short].tolist():
            context = int(batch.context_tokens[k])
            memory.grow(int(batch.ids[k]), context + int(batch.prefill_tokens[k] + batch.decode[k]), context)
        per_token = np.empty((3, total), dtype=np.int64)
        per_out = np.empty((4, wanted), dtype=np.int64)
        start, after = np.empty(size + 1, dtype=np.int32), np.empty(size, dtype=np.int32)
        table = np.empty((size, -(-longest // memory.block_tokens)), dtype=np.int32)
        known = (told.flat, told.offset, told.length, told.prompt, memory.row_of, memory.table, memory.block_tokens)
        self._fill(*members, *known, per_token, per_out, start, after, table)
        ids, positions, slots = per_token
        last, whose, who, given = per_out
        return HostBatch(batch.ids, ids, positions, slots, start, after, table, last, whose, who), given

    def deliver(self, requests: Int[np.ndarray, "out"], tokens: Int[np.ndarray, "out"]) -> None:
        """Append one token to the history of each request."""
        told: Any = self._histories
        self._deliver(requests, tokens, told.flat, told.offset, told.length)
