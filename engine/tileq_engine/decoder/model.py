"""The decoder: one forward pass of a flat batch of prefill chunks and decodes over the paged cache."""

from __future__ import annotations

__all__ = ["Decoder"]

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch.nn.functional import linear, rms_norm, silu

from tileq_engine.decoder.attention.choose import choose_attention
from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.pool import KvPool, blocks_that_fit
from tileq_engine.decoder.rope import attention_factor, inverse_frequencies, rotate
from tileq_engine.decoder.weights import LayerWeights, Weights
from tileq_theory.errors import InputError


class Decoder:
    """A decoder with its weights and its KV pool, on one device.

    Parameters
    ----------
    config, weights
        Shape and weights (`random_weights` or `load_weights`); the decoder runs where they lie, in their type.
    blocks, block_tokens
        Size of the KV pool.
    attention
        `auto`, or the name of a backend.
    invariant
        On the CPU: rows of zeros fill up every product to a multiple of four rows. Products of one to three rows take
        another path through the BLAS, with other roundings; from four rows on a row's bits no longer depend on how
        many others there are (`row_invariant` asks the machine itself whether that holds). With the `paged`
        attention the logits of a request are then the same bits in any batch, chunking and block layout.

    Examples
    --------
    >>> from tileq_engine.decoder import DecoderConfig, Member, flat_batch, random_weights
    >>> config = DecoderConfig.small(layers=1, hidden=32, heads=2, kv_heads=1, vocab=50)
    >>> decoder = Decoder(config, random_weights(config, seed=1), blocks=4)
    >>> logits = decoder.forward(flat_batch([Member([1, 2, 3], 0, [2])]))
    >>> tuple(logits.shape), logits.dtype
    ((1, 50), torch.float32)
    """

    def __init__(
        self,
        config: DecoderConfig,
        weights: Weights,
        *,
        blocks: int,
        block_tokens: int = 16,
        attention: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        invariant: bool = True,
    ) -> None:
        if len(weights.layers) != config.layers or tuple(weights.embedding.shape) != (
            config.vocab_size,
            config.hidden_size,
        ):
            raise InputError("the weights are not those of this configuration: layers, vocabulary or width differ")
        if device is not None and torch.device(device).type != weights.device.type:
            raise InputError(f"the weights lie on {weights.device}; the decoder was asked to run on {device}")
        if dtype is not None and dtype != weights.dtype:
            raise InputError(f"the weights are {weights.dtype}; the decoder was asked to run in {dtype}")
        self.config = config
        self.weights = weights
        self.device = weights.device
        self.dtype = weights.dtype
        self.kv = KvPool(config, blocks, block_tokens=block_tokens, dtype=self.dtype, device=self.device)
        self.attention = choose_attention(attention, config, self.device, self.dtype, block_tokens)
        self.row_multiple = 4 if invariant and self.device.type == "cpu" else 1
        self._frequencies = inverse_frequencies(config).to(self.device)
        self._factor = attention_factor(config)

    @property
    def attention_name(self) -> str:
        """The attention that was chosen."""
        return self.attention.name

    @property
    def block_tokens(self) -> int:
        """Tokens of a KV block."""
        return self.kv.block_tokens

    @property
    def blocks(self) -> int:
        """Blocks of the pool."""
        return self.kv.blocks

    def copy_out(
        self, blocks: Sequence[int] | Int[np.ndarray, "block"]
    ) -> Float[torch.Tensor, "layer 2 block token kv_head dim"]:
        """Return the contents of `blocks` on the host (swap)."""
        return self.kv.copy_out(blocks)

    def copy_in(
        self,
        host: Float[torch.Tensor, "layer 2 block token kv_head dim"],
        blocks: Sequence[int] | Int[np.ndarray, "block"],
    ) -> None:
        """Write what `copy_out` returned into `blocks`."""
        self.kv.copy_in(host, blocks)

    def blocks_that_fit(self, share: float = 0.9) -> int:
        """Return how many blocks more would fit beside what is allocated now."""
        return blocks_that_fit(self.config, self.device, self.dtype, block_tokens=self.block_tokens, share=share)

    # ------------------------------------------------------------------ forward

    def forward(self, batch: FlatBatch) -> Float[torch.Tensor, "out vocab"]:
        """Run the batch: write its keys and values into the cache, return float32 logits of the rows wanted."""
        with torch.inference_mode():
            plan = self.attention.plan(batch, self.kv)
            return self._run(batch, plan)

    def _run(self, batch: FlatBatch, plan: Any) -> Float[torch.Tensor, "out vocab"]:
        turns = self._turns(batch.positions)
        x = self._embed(batch)
        for i, layer in enumerate(self.weights.layers):
            x = x + self._attend(i, layer, x, batch, plan, turns)
            x = x + self._mlp(layer, x)
        return self._logits(x, batch)

    def _embed(self, batch: FlatBatch) -> torch.Tensor:
        return self._padded(self.weights.embedding[batch.token_ids], self.row_multiple)

    def _logits(self, x: torch.Tensor, batch: FlatBatch) -> Float[torch.Tensor, "out vocab"]:
        count = len(batch.last_rows)
        rows = self._norm(self._padded(x[batch.last_rows], self.row_multiple), self.weights.norm)
        return linear(rows, self.weights.head)[:count].to(torch.float32)

    def _padded(self, x: torch.Tensor, multiple: int) -> torch.Tensor:
        """Fill up to whole multiples of rows: see `row_multiple`."""
        missing = -x.shape[0] % multiple
        return x if missing == 0 else torch.cat((x, x.new_zeros((missing, *x.shape[1:]))))

    def trace(self, batch: FlatBatch, sequence: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Run the batch again and yield, stage by stage, what concerns one sequence: for `check_finite`.

        The stages of a layer: its part of the cache, the stream after its attention, the stream after its MLP.
        """
        rows = slice(int(batch.host_query_start[sequence]), int(batch.host_query_start[sequence + 1]))
        held = -(-int(batch.host_context_tokens[sequence]) // self.block_tokens)
        blocks = batch.block_table[sequence, :held].to(torch.int64)
        earlier = int(batch.host_context_tokens[sequence]) - (rows.stop - rows.start)
        with torch.inference_mode():
            plan = self.attention.plan(batch, self.kv)
            turns = self._turns(batch.positions)
            x = self._embed(batch)
            yield "the embedding", x[rows]
            for i, layer in enumerate(self.weights.layers):
                cached = torch.stack((self.kv.keys[i][blocks], self.kv.values[i][blocks]))
                yield f"layer {i} (its cache of earlier tokens)", cached.flatten(1, 2)[:, :earlier]
                x = x + self._attend(i, layer, x, batch, plan, turns)
                yield f"layer {i} (attention)", x[rows]
                x = x + self._mlp(layer, x)
                yield f"layer {i} (MLP)", x[rows]
            last = x[rows.stop - 1 : rows.stop]
            yield "the last norm", self._norm(last, self.weights.norm)
            yield "the output matrix", linear(self._norm(last, self.weights.norm), self.weights.head)

    def _turns(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of all positions of the batch, once for all layers; in float32 as the model was trained."""
        count = len(positions)
        angle = self._padded(positions, 4 * self.row_multiple).to(torch.float32)[:, None] * self._frequencies
        cosine, sine = (angle.cos() * self._factor, angle.sin() * self._factor)
        both = (torch.cat((t, t), dim=-1)[:count, None, :].to(self.dtype) for t in (cosine, sine))
        return next(both), next(both)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)

    def _attend(
        self,
        index: int,
        layer: LayerWeights,
        x: torch.Tensor,
        batch: FlatBatch,
        plan: Any,
        turns: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        c, count = self.config, len(batch.token_ids)
        qkv = linear(self._norm(x, layer.attention_norm), layer.qkv, layer.qkv_bias)[:count]
        query, key, value = qkv.split((c.q_size, c.kv_size, c.kv_size), dim=-1)
        query = query.unflatten(-1, (c.heads, c.head_dim))
        key = key.unflatten(-1, (c.kv_heads, c.head_dim))
        if layer.q_norm is not None and layer.k_norm is not None:
            query, key = self._norm(query, layer.q_norm), self._norm(key, layer.k_norm)
        query, key = rotate(query, *turns), rotate(key, *turns)
        self.kv.flat_keys[index].index_copy_(0, batch.slots, key)
        self.kv.flat_values[index].index_copy_(0, batch.slots, value.unflatten(-1, (c.kv_heads, c.head_dim)))
        out = self.attention(index, query, self.kv, plan, c.window(index)).reshape(count, c.q_size)
        return linear(self._padded(out, self.row_multiple), layer.output, layer.output_bias)

    def _mlp(self, layer: LayerWeights, x: torch.Tensor) -> torch.Tensor:
        gate, up = linear(self._norm(x, layer.mlp_norm), layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        return linear(silu(gate) * up, layer.down, layer.down_bias)
