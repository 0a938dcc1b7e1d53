"""Ask the device itself, at start, whether an attention works here: run it on a small batch and compare."""

from __future__ import annotations

__all__ = ["fault"]

from collections.abc import Callable

import numpy as np
import torch

from tileq_engine.decoder.attention.base import Attention
from tileq_engine.decoder.attention.sdpa import SdpaAttention
from tileq_engine.decoder.batch import FlatBatch, Member, flat_batch
from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.pool import KvPool

_BATCHES = {"mixed": ((3, 5), (1, 41), (9, 9), (1, 1), (20, 90)), "decodes": ((1, 30), (1, 1), (1, 77), (1, 16))}
_WINDOW = 7


def fault(
    make: Callable[[], Attention], config: DecoderConfig, device: torch.device, dtype: torch.dtype, block_tokens: int
) -> str | None:
    """Return None if the attention that `make` makes is right on this device, else why it is not used.

    Prefill chunks and decodes over scattered blocks, contexts of up to three blocks, against
    scaled_dot_product_attention in float32; 2 % of the values' size is the rounding of bfloat16, many times over what
    float32 needs.
    """
    layers = [0] if config.window(0) == config.window(config.layers - 1) else [0, config.layers - 1]
    try:
        attention = make()
        for name, sizes in _BATCHES.items():
            for layer in layers:
                worst = _difference(attention, config, device, dtype, block_tokens, sizes, _tried(config.window(layer)))
                limit = 1e-4 if dtype == torch.float32 else 0.06
                if not worst < limit:
                    return f"{name} batch differs by {worst:.3g} from the portable attention (allowed {limit:g})"
        return None
    except Exception as error:
        text = str(error).strip() or type(error).__name__
        return f"{type(error).__name__}: {text.splitlines()[0][:160]}"


def _tried(window: int | None) -> int | None:
    """Return the window to try: a model's own reaches beyond the small batches, and would leave no trace in them."""
    return None if window is None else min(window, _WINDOW)


def _difference(
    attention: Attention,
    config: DecoderConfig,
    device: torch.device,
    dtype: torch.dtype,
    block_tokens: int,
    sizes: tuple[tuple[int, int], ...],
    window: int | None,
) -> float:
    one = DecoderConfig(
        vocab_size=1,
        hidden_size=config.hidden_size,
        layers=1,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_dim=config.head_dim,
        intermediate_size=1,
    )
    contexts = [context + 2 * block_tokens * (i % 2) for i, (_, context) in enumerate(sizes)]
    held = [-(-context // block_tokens) for context in contexts]
    pool = KvPool(one, sum(held) + 1, block_tokens=block_tokens, dtype=dtype, device=device)
    stream = torch.Generator(device=device).manual_seed(5)
    pool.data.normal_(generator=stream)
    batch = _batch(sizes, contexts, held, block_tokens, device)
    query = torch.empty((batch.tokens, one.heads, one.head_dim), dtype=dtype, device=device).normal_(generator=stream)
    got = attention(0, query, pool, attention.plan(batch, pool), window)
    exact = KvPool(one, pool.blocks, block_tokens=block_tokens, device=device)
    exact.data.copy_(pool.data)
    portable = SdpaAttention()
    expected = portable(0, query.to(torch.float32), exact, portable.plan(batch, exact), window)
    difference = (got.to(torch.float32) - expected).abs()
    return float(difference.max()) if bool(torch.isfinite(difference).all()) else float("inf")


def _batch(
    sizes: tuple[tuple[int, int], ...], contexts: list[int], held: list[int], block_tokens: int, device: torch.device
) -> FlatBatch:
    order = np.random.default_rng(3).permutation(sum(held) + 1)
    members, at = [], 0
    for (query, _), context, blocks in zip(sizes, contexts, held, strict=True):
        members.append(Member([0] * query, context - query, order[at : at + blocks]))
        at += blocks
    return flat_batch(members, block_tokens, device)
