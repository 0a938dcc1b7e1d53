"""The arithmetic of the layers on a CPU: compiled passes over rows between products on packed matrices."""

from __future__ import annotations

__all__ = ["CompiledLayers", "filled_rows"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from tileq_engine.compile_module import compiled_module
from tileq_engine.decoder import row_kernels
from tileq_engine.decoder.attention.base import Attention
from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.layers import head_norms
from tileq_engine.decoder.pool import KvPool
from tileq_engine.decoder.products import PackedProduct, PlainProduct, Product, products_of
from tileq_engine.decoder.turns_table import TurnsTable
from tileq_engine.decoder.weights import Weights

_OPTIONS = "_nrt=False, fastmath={'reassoc', 'contract', 'nsz', 'arcp'}"
_TILE = 128  # rows: what one layer's products of so many make stays in the caches
_PREPARED = 2**22  # elements of a matrix beyond which the product itself takes longer than choosing its kernel


def filled_rows(rows: int) -> int:
    """Return the size to which a tile is filled up: 4 or a multiple of 8, so that a handful of sizes is all there is.

    oneDNN makes a kernel for each size that it meets, which takes half a millisecond.
    """
    return 4 if rows <= 4 else -(-rows // 8) * 8


@dataclass(frozen=True, slots=True)
class _Begun:
    plan: Any
    positions: Int[np.ndarray, "token"]
    slots: Int[np.ndarray, "token"]
    query: torch.Tensor
    by_head: Float[np.ndarray, "filled head dim"]


class CompiledLayers:
    """Float32 on a CPU. The stream is a list of tiles of up to 128 rows.

    Parameters
    ----------
    config, weights, pool, attention
        The decoder's.
    invariant
        Fill up tiles (`filled_rows`). oneDNN's rows have their bits without that; the BLAS's only from four rows on.
    packed
        Whether the matrices are packed.
    """

    name = "compiled"

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        pool: KvPool,
        attention: Attention,
        invariant: bool,
        packed: bool,
    ) -> None:
        self._config, self._weights, self._pool, self._attention = config, weights, pool, attention
        self.row_multiple = 4 if invariant else 1
        kernels = compiled_module(row_kernels, "rows", _OPTIONS)
        self._norm_rows, self._place_rows = kernels["norm_rows"], kernels["place_rows"]
        self._gate_rows = kernels["gate_rows"]
        with torch.inference_mode():
            self._products, self._head = products_of(weights, PackedProduct if packed else PlainProduct)
        self._turns = TurnsTable(config)
        self._norms = [(layer.attention_norm.numpy(), layer.mlp_norm.numpy()) for layer in weights.layers]
        self._head_norms = [self._norms_of_heads(index) for index in range(config.layers)]
        self._keys = [k.numpy() for k in pool.flat_keys]
        self._values = [v.numpy() for v in pool.flat_values]
        if packed:
            self._prepare()

    @property
    def products(self) -> Sequence[Product]:
        """The products with the first layer's matrices and the head."""
        return [*self._products[0], self._head]

    def _norms_of_heads(self, index: int) -> Float[np.ndarray, "turning dim"]:
        found = head_norms(self._config, self._weights.layers[index])
        return np.empty((0, self._config.head_dim), dtype=np.float32) if found is None else found.numpy()

    def _prepare(self) -> None:
        """Have a kernel made for every size of a tile now, not when a batch of that size first comes."""
        sizes = sorted({filled_rows(n) for n in range(1, _TILE + 1)}) if self.row_multiple > 1 else []
        with torch.inference_mode():
            for product in self.products:
                rows, columns = product.matrix.shape
                if rows * columns > _PREPARED:
                    continue
                for size in sizes:
                    x = torch.zeros((size, columns))
                    product(x)
                    if product in (self._products[0][1], self._products[0][3]):
                        product.added(x, torch.zeros((size, rows)))

    def begin(self, batch: FlatBatch) -> _Begun:
        """Return the attention's plan and room for the queries."""
        self._turns.reach(batch.max_context_tokens)
        whole = sum(size for _, _, size in self._tiles(len(batch.token_ids)))
        query = torch.empty((whole, self._config.heads, self._config.head_dim))
        plan = self._attention.plan(batch, self._pool)
        return _Begun(plan, batch.positions.numpy(), batch.slots.numpy(), query, query.numpy())

    def embed(self, batch: FlatBatch) -> list[torch.Tensor]:
        """Return the stream before the first layer."""
        ids, table = batch.token_ids, self._weights.embedding
        return [self._filled(table[ids[a:b]], size) for a, b, size in self._tiles(len(ids))]

    def attend(self, index: int, x: list[torch.Tensor], batch: FlatBatch, begun: _Begun) -> list[torch.Tensor]:
        """Return the stream after the layer's attention; its keys and values go into the cache."""
        c, (first, second, _, _) = self._config, self._products[index]
        start = 0
        for tile in x:
            qkv = first(self._norm(tile, self._norms[index][0]))
            self._place(index, qkv, begun, start)
            start += len(tile)
        out = self._attention(index, begun.query, self._pool, begun.plan, c.window(index))
        tiles = out.view(-1, c.q_size).split([len(tile) for tile in x])
        return [second.added(rows, tile) for rows, tile in zip(tiles, x, strict=True)]

    def _place(self, index: int, qkv: torch.Tensor, begun: _Begun, start: int) -> None:
        stop = min(start + len(qkv), len(begun.slots))
        outside = self._place_rows(
            qkv.numpy(),
            begun.positions[start:stop],
            begun.slots[start:stop],
            self._turns.cosine,
            self._turns.sine,
            self._head_norms[index],
            self._config.norm_eps,
            begun.by_head[start:],
            self._keys[index],
            self._values[index],
        )
        if outside >= 0:
            token = start + outside
            raise IndexError(
                f"token {token} of the batch has slot {begun.slots[token]} and position {begun.positions[token]}; the "
                f"cache has slots 0 to {len(self._keys[index]) - 1}, and positions must lie before the longest context"
            )

    def mlp(self, index: int, x: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the stream after the layer's MLP."""
        _, _, third, fourth = self._products[index]
        weight, found = self._norms[index][1], []
        for tile in x:
            inner = torch.empty((len(tile), self._config.intermediate_size))
            self._gate_rows(third(self._norm(tile, weight)).numpy(), inner.numpy())
            found.append(fourth.added(inner, tile))
        return found

    def rows(self, x: list[torch.Tensor], start: int, stop: int) -> torch.Tensor:
        """Return some rows of the stream."""
        return torch.cat(x)[start:stop]

    def last_norm(self, x: list[torch.Tensor], batch: FlatBatch) -> torch.Tensor:
        """Return the rows whose logits are wanted, normed, filled up."""
        wanted = (x[0] if len(x) == 1 else torch.cat(x))[batch.last_rows]
        return self._norm(
            self._filled(wanted, sum(s for _, _, s in self._tiles(len(wanted)))), self._weights.norm.numpy()
        )

    def logits(self, normed: torch.Tensor, count: int) -> Float[torch.Tensor, "out vocab"]:
        """Return the logits of the first `count` rows."""
        if not count:
            return normed.new_empty((0, self._config.vocab_size))
        if len(normed) <= _TILE:
            return self._head(normed)[:count]
        return torch.cat([self._head(part) for part in normed.split(_TILE)])[:count]

    def _norm(self, x: torch.Tensor, weight: Float[np.ndarray, "hidden"]) -> torch.Tensor:
        out = torch.empty_like(x)
        self._norm_rows(x.numpy(), weight, self._config.norm_eps, out.numpy())
        return out

    def _tiles(self, count: int) -> list[tuple[int, int, int]]:
        """Return first row, last row and size of each tile of so many rows."""
        bounds = [(a, min(a + _TILE, count)) for a in range(0, count, _TILE)]
        return [(a, b, filled_rows(b - a) if self.row_multiple > 1 else b - a) for a, b in bounds]

    def _filled(self, x: torch.Tensor, size: int) -> torch.Tensor:
        missing = size - len(x)
        return x if missing == 0 else torch.cat((x, x.new_zeros((missing, *x.shape[1:]))))
