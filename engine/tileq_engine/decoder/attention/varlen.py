"""Attention on CUDA by torch's own variable-length flash attention (float16 and bfloat16).

torch 2.13 reads the paged cache itself if a block holds a multiple of 256 tokens; torch 2.11 knows no block tables,
so the keys and values of the batch are laid out side by side first. Which arguments there are is read off the
function's signature; whether the answer is right is asked of the device itself at start (`probe`).
"""

from __future__ import annotations

__all__ = ["PagedVarlenAttention", "VarlenAttention", "varlen_arguments"]

import importlib
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int

from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.pool import KvPool


def varlen_arguments() -> frozenset[str]:
    """Return the arguments that this torch's varlen_attn takes; none if it has no such function."""
    try:
        module = importlib.import_module("torch.nn.attention.varlen")
        return frozenset(inspect.signature(module.varlen_attn).parameters)
    except (ImportError, AttributeError):
        return frozenset()


class _Varlen:
    """The call that both ways share."""

    def __init__(self) -> None:
        self._call: Any = importlib.import_module("torch.nn.attention.varlen").varlen_attn
        self._known = varlen_arguments()

    def _attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, window: int | None, *ends: Any, **more: Any
    ) -> torch.Tensor:
        if "window_size" in self._known:
            more["window_size"] = (-1 if window is None else window - 1, 0)
        elif window is None:
            more["is_causal"] = True
        else:
            raise NotImplementedError("this torch's varlen_attn knows no window")
        if "enable_gqa" in self._known:
            more["enable_gqa"] = query.shape[1] != key.shape[-2]
        if "num_splits" in self._known:
            more["num_splits"] = 1  # more than one is wrong on paged caches (pytorch issue 194167), and bits would vary
        out: torch.Tensor = self._call(query.contiguous(), key, value, *ends, **more)
        return out


class PagedVarlenAttention(_Varlen):
    """varlen_attn with a block table: one kernel, no copies, and a CUDA graph may hold it."""

    name = "varlen paged"
    graphable = True

    def plan(self, batch: FlatBatch, pool: KvPool) -> tuple[FlatBatch, int, int]:
        """Return the batch and the sizes that the kernel is told."""
        return batch, batch.max_query_tokens, batch.max_context_tokens

    def __call__(
        self,
        layer: int,
        query: Float[torch.Tensor, "token head dim"],
        pool: KvPool,
        plan: tuple[FlatBatch, int, int],
        window: int | None,
    ) -> Float[torch.Tensor, "token head dim"]:
        """Return the attended values of `layer`."""
        batch, max_query, max_context = plan
        return self._attend(
            query,
            pool.keys[layer],
            pool.values[layer],
            window,
            batch.query_start,
            None,
            max_query,
            max_context,
            seqused_k=batch.context_tokens,
            block_table=batch.block_table,
        )


@dataclass(frozen=True, slots=True)
class _Side:
    slots: Int[torch.Tensor, "context"]
    query_start: Int[torch.Tensor, "start"]
    key_start: Int[torch.Tensor, "start"]
    max_query: int
    max_context: int


class VarlenAttention(_Varlen):
    """varlen_attn over keys and values laid out side by side: works with any block size; costs the sum of contexts."""

    graphable = False

    def __init__(self, expand: bool) -> None:
        super().__init__()
        self.expand = expand  # repeat each KV head for its query heads, where the kernel does not share them itself
        self.name = "varlen gathered" + (" and expanded" if expand else "")

    def plan(self, batch: FlatBatch, pool: KvPool) -> _Side:
        """Return the slots of all contexts, one sequence after another; their number is known on the host."""
        device, total = batch.slots.device, int(batch.host_context_tokens.sum())
        contexts = batch.context_tokens.to(torch.int64)
        stop = contexts.cumsum(0)
        sequence = torch.repeat_interleave(torch.arange(len(contexts), device=device), contexts, output_size=total)
        at = torch.arange(total, device=device) - (stop - contexts)[sequence]
        block = batch.block_table[sequence, at // pool.block_tokens].to(torch.int64)
        key_start = torch.nn.functional.pad(stop, (1, 0)).to(torch.int32)
        slots = block * pool.block_tokens + at % pool.block_tokens
        return _Side(slots, batch.query_start, key_start, batch.max_query_tokens, batch.max_context_tokens)

    def __call__(
        self,
        layer: int,
        query: Float[torch.Tensor, "token head dim"],
        pool: KvPool,
        plan: _Side,
        window: int | None,
    ) -> Float[torch.Tensor, "token head dim"]:
        """Return the attended values of `layer`."""
        key, value = pool.flat_keys[layer][plan.slots], pool.flat_values[layer][plan.slots]
        if self.expand:
            group = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        ends = (plan.query_start, plan.key_start, plan.max_query, plan.max_context)
        return self._attend(query, key, value, window, *ends)
