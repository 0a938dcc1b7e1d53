r"""A stack of transformer blocks of a model's shape with random weights: what an iteration runs, and nothing else.

One forward takes a batch as an engine would: a prefill chunk after cached tokens, decodes with their contexts, or both,
flattened to n tokens. Per block: RMS norm, QKV, rotary embedding, keys and values written to the cache, attention,
output projection, RMS norm, gated MLP. Outside: embedding, final norm, lm_head and argmax for the m sequences.

Attention is the portable path of `scaled_dot_product_attention`. A decode's query heads that share a KV head are
treated as rows of one query, which is grouped-query attention without copies and without a mask. A chunk is causal
from its cached tokens on. Each block has a cache of its own, so that reading it costs what it costs in a model.
"""

from __future__ import annotations

__all__ = ["BlockStack"]

import importlib
from typing import Any

from tileq_profiling.measure.batch import Batch
from tileq_theory.errors import InputError
from tileq_theory.hardware import Model

_STD = 0.02
_EPSILON = 1e-5
_ROPE_BASE = 500_000.0


class BlockStack:
    """Random weights of `layers` blocks of `model` on one device, and a KV cache of `kv_tokens` tokens.

    `layers` may be fewer than the model's when it does not fit; `forward` marks where the blocks begin and end, so
    that their time can be scaled.
    """

    def __init__(
        self, torch: Any, model: Model, device: Any, dtype: Any, kv_tokens: int, layers: int, seed: int = 0
    ) -> None:
        if model.moe_layers:
            raise InputError(f"{model.name} is a mixture of experts, which is not measured; choose a dense model")
        self.torch, self.model, self.layers, self.kv_tokens = torch, model, layers, kv_tokens
        self._device, self.dtype = device, dtype
        self._random = torch.Generator(device=device).manual_seed(seed)
        h, q, kv = model.hidden, model.q_size, model.kv_size
        self._embedding = self._weight(model.vocab, h)
        self._head = self._embedding if model.tied_embeddings else self._weight(model.vocab, h)
        self._norm = torch.ones(h, device=device, dtype=dtype)
        self._blocks = [
            (
                self._weight(q + 2 * kv, h),
                self._weight(h, q),
                self._weight(2 * model.intermediate, h),
                self._weight(h, model.intermediate),
            )
            for _ in range(layers)
        ]
        self._cache = [self._weight(2, kv_tokens * kv) for _ in range(layers)]
        self._angles = 1.0 / _ROPE_BASE ** (torch.arange(0, model.head_dim, 2, device=device).float() / model.head_dim)

    def _weight(self, *shape: int) -> Any:
        weight = self.torch.empty(*shape, device=self._device, dtype=self.dtype)
        return weight.normal_(0.0, _STD, generator=self._random)

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Return token ids, rotary tables and the mask of a batch: what an engine has ready before the iteration."""
        if batch.held_tokens > self.kv_tokens:
            raise InputError(
                f"a batch that holds {batch.held_tokens} KV tokens does not fit the cache of {self.kv_tokens}"
            )
        torch = self.torch
        ids = torch.randint(self.model.vocab, (batch.tokens,), device=self._device, generator=self._random)
        places = [torch.arange(batch.history_tokens, batch.history_tokens + batch.chunk_tokens, device=self._device)]
        places.append(torch.full((batch.decodes,), max(batch.context_tokens - 1, 0), device=self._device))
        angles = torch.cat(places).float()[:, None] * self._angles[None, :]
        mask = None
        if batch.chunk_tokens and batch.history_tokens:
            mask = self._mask(batch.chunk_tokens, batch.history_tokens + batch.chunk_tokens)
        last = [batch.chunk_tokens - 1] if batch.chunk_tokens else []
        rows = torch.tensor([*last, *range(batch.chunk_tokens, batch.tokens)], device=self._device)
        return {
            "ids": ids,
            "cos": angles.cos().to(self.dtype)[:, None, :],
            "sin": angles.sin().to(self.dtype)[:, None, :],
            "mask": mask,
            "rows": rows,
        }

    def _mask(self, queries: int, keys: int) -> Any:
        """Causal from the cached tokens on: a table on the CPU; on CUDA the form that keeps the fused kernels."""
        if self._device.type == "cuda":
            return importlib.import_module("torch.nn.attention.bias").causal_lower_right(queries, keys)
        places = self.torch.arange(keys, device=self._device)
        return places[None, :] <= places[keys - queries :, None]

    def forward(self, batch: Batch, given: dict[str, Any], mark: Any = None) -> Any:
        """Run one iteration and return the next token of each sequence; `mark()` is called around the blocks."""
        x = self.torch.nn.functional.embedding(given["ids"], self._embedding)
        if mark is not None:
            mark()
        for weights, cache in zip(self._blocks, self._cache, strict=True):
            x = self._block(x, weights, cache, batch, given)
        if mark is not None:
            mark()
        x = self._rms(x[given["rows"]])
        return self.torch.nn.functional.linear(x, self._head).argmax(dim=-1)

    def _rms(self, x: Any) -> Any:
        return self.torch.nn.functional.rms_norm(x, (self.model.hidden,), self._norm, _EPSILON)

    def _block(self, x: Any, weights: tuple[Any, ...], cache: Any, batch: Batch, given: dict[str, Any]) -> Any:
        linear, m = self.torch.nn.functional.linear, self.model
        qkv_w, out_w, gate_up_w, down_w = weights
        q, k, v = linear(self._rms(x), qkv_w).split([m.q_size, m.kv_size, m.kv_size], dim=-1)
        q = _rotate(self.torch, q.unflatten(-1, (m.heads, m.head_dim)), given["cos"], given["sin"])
        k = _rotate(self.torch, k.unflatten(-1, (m.kv_heads, m.head_dim)), given["cos"], given["sin"])
        v = v.unflatten(-1, (m.kv_heads, m.head_dim))
        c, parts = batch.chunk_tokens, []
        if c:
            parts.append(self._chunk(q[:c], k[:c], v[:c], cache, batch, given["mask"]))
        if batch.decodes:
            parts.append(self._decodes(q[c:], k[c:], v[c:], cache, batch))
        attended = parts[0] if len(parts) == 1 else self.torch.cat(parts)
        x = x + linear(attended, out_w)
        gate, up = linear(self._rms(x), gate_up_w).chunk(2, dim=-1)
        return x + linear(self.torch.nn.functional.silu(gate) * up, down_w)

    def _chunk(self, q: Any, k: Any, v: Any, cache: Any, batch: Batch, mask: Any) -> Any:
        m, length = self.model, batch.history_tokens + batch.chunk_tokens
        held = cache[:, : length * m.kv_size].view(2, 1, m.kv_heads, length, m.head_dim)
        held[0, 0, :, batch.history_tokens :] = k.transpose(0, 1)
        held[1, 0, :, batch.history_tokens :] = v.transpose(0, 1)
        out = self.torch.nn.functional.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            held[0],
            held[1],
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=m.heads != m.kv_heads,
        )
        return out[0].transpose(0, 1).reshape(batch.chunk_tokens, m.q_size)

    def _decodes(self, q: Any, k: Any, v: Any, cache: Any, batch: Batch) -> Any:
        m, d, s = self.model, batch.decodes, max(batch.context_tokens, 1)
        start = (batch.history_tokens + batch.chunk_tokens if batch.chunk_tokens else 0) * m.kv_size
        held = cache[:, start : start + d * s * m.kv_size].view(2, d, m.kv_heads, s, m.head_dim)
        held[0, :, :, s - 1] = k
        held[1, :, :, s - 1] = v
        grouped = q.view(d, m.kv_heads, m.heads // m.kv_heads, m.head_dim)
        out = self.torch.nn.functional.scaled_dot_product_attention(grouped, held[0], held[1])
        return out.reshape(d, m.q_size)


def _rotate(torch: Any, x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
