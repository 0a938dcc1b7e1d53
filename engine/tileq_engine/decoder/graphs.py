"""CUDA graphs: the launches of a forward pass recorded once per shape and replayed.

A batch runs in the smallest recorded shape that holds it. What it lacks is filled up: in a shape of decodes by
sequences of one token that write into the pool's spare block, in a mixed shape by rows and sequences that no query
belongs to. Nothing of a real row depends on them.
"""

from __future__ import annotations

__all__ = ["GraphShape", "Graphs", "filled"]

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.pool import KvPool
from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True, order=True)
class GraphShape:
    """Rows and sequences of a recorded batch; as many rows as sequences: decodes only."""

    tokens: int
    sequences: int

    @property
    def decode_only(self) -> bool:
        """Whether every sequence brings one token."""
        return self.tokens == self.sequences

    def holds(self, batch: FlatBatch) -> bool:
        """Return whether `batch` runs in this shape."""
        return (
            self.decode_only == batch.decode_only
            and batch.tokens <= self.tokens
            and batch.sequences <= self.sequences
            and len(batch.last_rows) <= self.sequences
        )


def filled(batch: FlatBatch, shape: GraphShape, table_width: int, pool: KvPool) -> FlatBatch:
    """Return `batch` with the rows, sequences and table columns of `shape`; on the device, without waiting for it.

    The rows added hold token 0 at position 0 and write into the spare block, token by token from its start.
    """
    rows, sequences = shape.tokens - batch.tokens, shape.sequences - batch.sequences
    outs = shape.sequences - len(batch.last_rows)
    pad = torch.nn.functional.pad
    spare = pool.blocks * pool.block_tokens
    step = int(shape.decode_only)  # tokens of each sequence added
    ends = batch.tokens + step * np.arange(1, sequences + 1)
    device = batch.query_start.device
    more = batch.tokens + step * torch.arange(1, sequences + 1, dtype=torch.int32, device=device)
    return FlatBatch(
        token_ids=pad(batch.token_ids, (0, rows)),
        positions=pad(batch.positions, (0, rows)),
        slots=pad(batch.slots, (0, rows), value=spare),
        query_start=torch.cat((batch.query_start, more)),
        context_tokens=pad(batch.context_tokens, (0, sequences), value=step),
        block_table=pad(
            pad(batch.block_table, (0, table_width - batch.block_table.shape[1])),
            (0, 0, 0, sequences),
            value=pool.blocks,
        ),
        last_rows=pad(batch.last_rows, (0, outs)),
        host_query_start=np.concatenate((batch.host_query_start, ends)).astype(np.int32),
        host_context_tokens=np.concatenate((batch.host_context_tokens, np.full(sequences, step))).astype(np.int32),
    )


_TENSORS = ("token_ids", "positions", "slots", "query_start", "context_tokens", "block_table", "last_rows")


@dataclass(slots=True)
class _Recorded:
    batch: FlatBatch
    logits: Float[torch.Tensor, "out vocab"]
    graph: Any


class Graphs:
    """The recorded shapes of one decoder.

    Parameters
    ----------
    run
        The forward pass of a batch whose sizes (longest query and context) are those given with it.
    pool
        The decoder's pool.
    longest_context
        Contexts beyond it run without a graph.
    """

    def __init__(
        self, run: Callable[[FlatBatch], Float[torch.Tensor, "out vocab"]], pool: KvPool, longest_context: int
    ) -> None:
        self._run = run
        self._pool = pool
        self._width = -(-longest_context // pool.block_tokens)
        self._recorded: dict[GraphShape, _Recorded] = {}
        self._memory: Any = None
        self.replays = 0

    @property
    def shapes(self) -> tuple[GraphShape, ...]:
        """The shapes recorded, smallest first."""
        return tuple(sorted(self._recorded))

    def record(self, shapes: Iterable[GraphShape]) -> None:
        """Record `shapes`, the largest first: the others then live in its memory."""
        if not torch.cuda.is_available():
            raise InputError("CUDA graphs need a CUDA device; on this one every batch runs directly")
        for shape in sorted(set(shapes), reverse=True):
            self._recorded[shape] = self._record(shape)

    def _record(self, shape: GraphShape) -> _Recorded:
        batch = self._static(shape)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(side):
            for _ in range(3):  # kernels compile and libraries choose their algorithms before recording
                self._run(batch)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph, pool=self._memory):
            logits = self._run(batch)
        self._memory = graph.pool()
        return _Recorded(batch, logits, graph)

    def _static(self, shape: GraphShape) -> FlatBatch:
        """Return a batch of that shape whose sizes are the largest that it can stand for."""
        longest = self._width * self._pool.block_tokens
        device = self._pool.data.device

        def whole(*size: int, value: int = 0, kind: torch.dtype = torch.int64) -> torch.Tensor:
            return torch.full(size, value, dtype=kind, device=device)

        starts = np.minimum(np.arange(shape.sequences + 1), shape.tokens).astype(np.int32)
        if not shape.decode_only:
            starts[1:] = shape.tokens  # one sequence with all rows: the longest query
        return FlatBatch(
            token_ids=whole(shape.tokens),
            positions=whole(shape.tokens),
            slots=whole(shape.tokens, value=self._pool.blocks * self._pool.block_tokens),
            query_start=torch.from_numpy(starts).to(device),
            context_tokens=whole(shape.sequences, value=1, kind=torch.int32),
            block_table=whole(shape.sequences, self._width, value=self._pool.blocks, kind=torch.int32),
            last_rows=whole(shape.sequences),
            host_query_start=starts,
            host_context_tokens=np.full(shape.sequences, longest, dtype=np.int32),
        )

    def forward(self, batch: FlatBatch) -> Float[torch.Tensor, "out vocab"] | None:
        """Return the logits of `batch` by a replay, or None where no recorded shape holds it."""
        if batch.block_table.shape[1] > self._width:
            return None
        shape = next((s for s in self.shapes if s.holds(batch)), None)
        if shape is None:
            return None
        recorded = self._recorded[shape]
        whole = filled(batch, shape, self._width, self._pool)
        for name in _TENSORS:
            getattr(recorded.batch, name).copy_(getattr(whole, name))
        recorded.graph.replay()
        self.replays += 1
        return recorded.logits[: len(batch.last_rows)].clone()
