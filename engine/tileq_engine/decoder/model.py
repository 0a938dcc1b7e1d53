"""The decoder: one forward pass of a flat batch of prefill chunks and decodes over the paged cache."""

from __future__ import annotations

__all__ = ["Decoder"]

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int

from tileq_engine.decoder.attention.choose import choose_attention
from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.graphs import Graphs, GraphShape
from tileq_engine.decoder.layers_choice import choose_layers
from tileq_engine.decoder.pool import KvPool, blocks_that_fit
from tileq_engine.decoder.row_check import row_invariant
from tileq_engine.decoder.setup import denormals_flushed
from tileq_engine.decoder.weights import Weights
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
    arithmetic
        `torch`; `compiled` (float32 on a CPU: compiled passes over the rows between the products) with torch's own
        products; `packed`, the same with products of oneDNN on matrices packed beforehand, which doubles the memory
        that they take, and weights changed later are not seen; `auto`, the fastest of them that is right here.
    fuse
        Fuse what lies between the products by torch.compile: seconds at the first pass, fewer kernels later.

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
        arithmetic: str = "auto",
        fuse: bool = False,
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
        self._choice = choose_attention(attention, config, self.device, self.dtype, block_tokens)
        self.attention = self._choice.attention
        self.graphs: Graphs | None = None
        self.fused = fuse
        self._arithmetic = choose_layers(arithmetic, config, weights, self.kv, self.attention, invariant, fuse)
        self.layers = self._arithmetic.layers

    @property
    def attention_name(self) -> str:
        """The attention that was chosen."""
        return self.attention.name

    @property
    def arithmetic(self) -> str:
        """How the layers' arithmetic is done."""
        return self._arithmetic.name

    @property
    def row_multiple(self) -> int:
        """Products are filled up to whole multiples of so many rows."""
        return self.layers.row_multiple

    @property
    def block_tokens(self) -> int:
        """Tokens of a KV block."""
        return self.kv.block_tokens

    @property
    def blocks(self) -> int:
        """Blocks of the pool."""
        return self.kv.blocks

    def describe(self) -> dict[str, object]:
        """Return, as plain data, what runs where and how it was chosen."""
        return {
            "architecture": self.config.architecture,
            "parameters": self.config.parameters,
            "dtype": str(self.dtype).removeprefix("torch."),
            "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type,
            "attention": self.attention_name,
            "attention_passed_over": dict(self._choice.passed_over),
            "kv_blocks": self.blocks,
            "kv_block_tokens": self.block_tokens,
            "kv_bytes": self.kv.data.numel() * self.kv.data.element_size(),
            "arithmetic": self.arithmetic,
            "arithmetic_passed_over": dict(self._arithmetic.passed_over),
            "row_multiple": self.row_multiple,
            "fused": self.fused,
            "graph_shapes": [] if self.graphs is None else [[s.tokens, s.sequences] for s in self.graphs.shapes],
        }

    def row_invariant(self) -> bool:
        """Return whether this machine's products give a row the same bits in every batch: see `invariant`."""
        return row_invariant(self.layers.products, self.row_multiple)

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
            replayed = None if self.graphs is None else self.graphs.forward(batch)
            return self._run(batch) if replayed is None else replayed

    def capture(
        self,
        decodes: Iterable[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256),
        mixed: Iterable[tuple[int, int]] = (),
        longest_context: int | None = None,
    ) -> tuple[GraphShape, ...]:
        """Record CUDA graphs; `forward` uses them from then on wherever one holds its batch. Return the shapes.

        Parameters
        ----------
        decodes
            Numbers of sequences of batches that hold decodes only.
        mixed
            (rows, sequences) of batches with chunks, such as (token budget, 64).
        longest_context
            Longest context that a recorded batch may hold (default: the pool or the model, whichever is smaller);
            it sets the width of the block tables.
        """
        if not self.attention.graphable or self.device.type != "cuda":
            raise InputError(f"attention {self.attention_name!r} on {self.device} cannot run in a CUDA graph")
        most = min(self.config.max_positions, self.blocks * self.block_tokens)
        graphs = Graphs(self._run, self.kv, min(longest_context or most, most))
        graphs.record([*(GraphShape(n, n) for n in decodes), *(GraphShape(*shape) for shape in mixed)])
        self.graphs = graphs
        return graphs.shapes

    def _run(self, batch: FlatBatch) -> Float[torch.Tensor, "out vocab"]:
        with denormals_flushed():
            return self._through(batch)

    def _through(self, batch: FlatBatch) -> Float[torch.Tensor, "out vocab"]:
        layers = self.layers
        begun, x = layers.begin(batch), layers.embed(batch)
        for i in range(self.config.layers):
            x = layers.mlp(i, layers.attend(i, x, batch, begun))
        return layers.logits(layers.last_norm(x, batch), len(batch.last_rows))

    def trace(self, batch: FlatBatch, sequence: int) -> Iterator[tuple[str, torch.Tensor]]:
        """Run the batch again and yield, stage by stage, what concerns one sequence: for `check_finite`.

        The stages of a layer: its part of the cache, the stream after its attention, the stream after its MLP.
        """
        stages = self._stages(batch, sequence)
        while True:
            # the mode is the thread's: it must not stay on while the caller holds a stage, or drops the rest
            with torch.inference_mode(), denormals_flushed():
                found = next(stages, None)
            if found is None:
                return
            yield found

    def _stages(self, batch: FlatBatch, sequence: int) -> Iterator[tuple[str, torch.Tensor]]:
        rows = slice(int(batch.host_query_start[sequence]), int(batch.host_query_start[sequence + 1]))
        held = -(-int(batch.host_context_tokens[sequence]) // self.block_tokens)
        blocks = batch.block_table[sequence, :held].to(torch.int64)
        earlier = int(batch.host_context_tokens[sequence]) - (rows.stop - rows.start)
        layers = self.layers
        begun, x = layers.begin(batch), layers.embed(batch)
        bounds = (rows.start, rows.stop)
        yield "the embedding", layers.rows(x, *bounds)
        for i in range(self.config.layers):
            cached = torch.stack((self.kv.keys[i][blocks], self.kv.values[i][blocks]))
            yield f"layer {i} (its cache of earlier tokens)", cached.flatten(1, 2)[:, :earlier]
            x = layers.attend(i, x, batch, begun)
            yield f"layer {i} (attention)", layers.rows(x, *bounds)
            x = layers.mlp(i, x)
            yield f"layer {i} (MLP)", layers.rows(x, *bounds)
        normed = layers.last_norm(x, dataclasses.replace(batch, last_rows=batch.last_rows.new_tensor([rows.stop - 1])))
        yield "the last norm", normed[:1]
        yield "the output matrix", layers.logits(normed, 1)
