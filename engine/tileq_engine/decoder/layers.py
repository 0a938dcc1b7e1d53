"""The arithmetic of the layers in plain torch: what runs on CUDA, and what the compiled layers are held against."""

from __future__ import annotations

__all__ = ["Layers", "TorchLayers", "head_norms"]

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch.nn.functional import linear, rms_norm

from tileq_engine.decoder.attention.base import Attention
from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.elementwise import elementwise
from tileq_engine.decoder.pool import KvPool
from tileq_engine.decoder.products import PlainProduct, Product
from tileq_engine.decoder.rope import attention_factor, inverse_frequencies, turns
from tileq_engine.decoder.weights import LayerWeights, Weights


@runtime_checkable
class Layers(Protocol):
    """What a pass is made of: the stream is whatever the implementation keeps the rows in."""

    name: str
    row_multiple: int

    @property
    def products(self) -> Sequence[Product]:
        """The products with the first layer's matrices and the head."""
        ...

    def begin(self, batch: FlatBatch) -> Any:
        """Compute, once a pass, what all layers share."""
        ...

    def embed(self, batch: FlatBatch) -> Any:
        """Return the stream before the first layer."""
        ...

    def attend(self, index: int, x: Any, batch: FlatBatch, begun: Any) -> Any:
        """Return the stream after the layer's attention; its keys and values go into the cache."""
        ...

    def mlp(self, index: int, x: Any) -> Any:
        """Return the stream after the layer's MLP."""
        ...

    def rows(self, x: Any, start: int, stop: int) -> Float[torch.Tensor, "row hidden"]:
        """Return some rows of the stream."""
        ...

    def last_norm(self, x: Any, batch: FlatBatch) -> Float[torch.Tensor, "filled hidden"]:
        """Return the rows whose logits are wanted, normed, filled up."""
        ...

    def logits(self, normed: Float[torch.Tensor, "filled hidden"], count: int) -> Float[torch.Tensor, "out vocab"]:
        """Return the logits of the first `count` rows."""
        ...


class TorchLayers:
    """Plain torch, any device and type.

    Parameters
    ----------
    config, weights, pool, attention
        The decoder's.
    row_multiple
        Products are filled up to whole multiples of so many rows.
    fuse
        Fuse what lies between the products by torch.compile.
    """

    name = "torch"

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        pool: KvPool,
        attention: Attention,
        row_multiple: int,
        fuse: bool,
    ) -> None:
        self._config, self._weights, self._pool, self._attention = config, weights, pool, attention
        self.row_multiple = row_multiple
        self._split, self._gate = elementwise(fuse)
        self._frequencies = inverse_frequencies(config).to(weights.device)
        self._factor = attention_factor(config)
        self._head_norms = [head_norms(config, layer) for layer in weights.layers]

    @property
    def products(self) -> Sequence[Product]:
        """The products with the first layer's matrices and the head."""
        layer = self._weights.layers[0]
        return [PlainProduct(m, None) for m in (layer.qkv, layer.output, layer.gate_up, layer.down, self._weights.head)]

    def begin(self, batch: FlatBatch) -> Any:
        """Return the attention's plan and the cosines and sines of the batch's positions."""
        padded = self._padded(batch.positions, 4 * self.row_multiple)
        cosine, sine = turns(padded, self._frequencies, self._factor)
        count, dtype = len(batch.positions), self._weights.dtype
        return self._attention.plan(batch, self._pool), (cosine[:count].to(dtype), sine[:count].to(dtype))

    def embed(self, batch: FlatBatch) -> torch.Tensor:
        """Return the stream before the first layer."""
        return self._padded(self._weights.embedding[batch.token_ids], self.row_multiple)

    def attend(self, index: int, x: torch.Tensor, batch: FlatBatch, begun: Any) -> torch.Tensor:
        """Return the stream after the layer's attention; its keys and values go into the cache."""
        c, layer, count, (plan, turned) = self._config, self._weights.layers[index], len(batch.token_ids), begun
        qkv = linear(self._norm(x, layer.attention_norm), layer.qkv, layer.qkv_bias)[:count]
        sizes = (c.heads, c.kv_heads, c.norm_eps)
        query, key, value = self._split(qkv, *turned, self._head_norms[index], *sizes)
        self._pool.flat_keys[index].index_copy_(0, batch.slots, key)
        self._pool.flat_values[index].index_copy_(0, batch.slots, value)
        out = self._attention(index, query, self._pool, plan, c.window(index)).reshape(count, c.q_size)
        return x + linear(self._padded(out, self.row_multiple), layer.output, layer.output_bias)

    def mlp(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Return the stream after the layer's MLP."""
        layer = self._weights.layers[index]
        inner = self._gate(linear(self._norm(x, layer.mlp_norm), layer.gate_up, layer.gate_up_bias))
        return x + linear(inner, layer.down, layer.down_bias)

    def rows(self, x: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """Return some rows of the stream."""
        return x[start:stop]

    def last_norm(self, x: torch.Tensor, batch: FlatBatch) -> torch.Tensor:
        """Return the rows whose logits are wanted, normed, filled up."""
        return self._norm(self._padded(x[batch.last_rows], self.row_multiple), self._weights.norm)

    def logits(self, normed: torch.Tensor, count: int) -> Float[torch.Tensor, "out vocab"]:
        """Return the logits of the first `count` rows."""
        return linear(normed, self._weights.head)[:count].to(torch.float32)

    def _padded(self, x: torch.Tensor, multiple: int) -> torch.Tensor:
        """Fill up to whole multiples of rows: see `row_multiple`."""
        missing = -x.shape[0] % multiple
        return x if missing == 0 else torch.cat((x, x.new_zeros((missing, *x.shape[1:]))))

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, (x.shape[-1],), weight, self._config.norm_eps)


def head_norms(config: DecoderConfig, layer: LayerWeights) -> Float[torch.Tensor, "head dim"] | None:
    """Return the weights of the norms of queries and keys, a row for each of the heads as they lie side by side."""
    if layer.q_norm is None or layer.k_norm is None:
        return None
    rows = (layer.q_norm.expand(config.heads, -1), layer.k_norm.expand(config.kv_heads, -1))
    return torch.cat(rows)
