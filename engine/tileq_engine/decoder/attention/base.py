"""What every attention backend offers."""

from __future__ import annotations

__all__ = ["Attention"]

from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float

from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.pool import KvPool


@runtime_checkable
class Attention(Protocol):
    """Causal attention of a flat batch over the cache, in which its own keys and values already stand."""

    name: str
    graphable: bool  # whether a CUDA graph may hold it: shapes and pointers depend on the batch's shapes alone

    def plan(self, batch: FlatBatch, pool: KvPool) -> Any:
        """Compute, once an iteration, what all layers share."""

    def __call__(
        self, layer: int, query: Float[torch.Tensor, "token head dim"], pool: KvPool, plan: Any, window: int | None
    ) -> Float[torch.Tensor, "token head dim"]:
        """Return the attended values of `layer`."""
