"""Choose the attention at start, by what the device and this torch can do."""

from __future__ import annotations

__all__ = ["choose_attention"]

import torch

from tileq_engine.decoder.attention.base import Attention
from tileq_engine.decoder.attention.sdpa import SdpaAttention
from tileq_engine.decoder.config import DecoderConfig
from tileq_theory.errors import InputError, near_matches

_NAMES = ("auto", "paged", "sdpa")


def choose_attention(
    name: str, config: DecoderConfig, device: torch.device, dtype: torch.dtype, block_tokens: int
) -> Attention:
    """Return the attention of that name, or for `auto` the fastest one that works here."""
    if name not in _NAMES:
        raise InputError(f"attention {name!r} is unknown; {near_matches('attentions', name, _NAMES)}")
    paged = device.type == "cpu" and dtype == torch.float32
    if name == "paged" and not paged:
        raise InputError(f"attention 'paged' runs float32 on the CPU; the weights are {dtype} on {device}; use 'auto'")
    if name == "sdpa" or not paged:
        return SdpaAttention()
    from tileq_engine.decoder.attention.paged import PagedAttention

    return PagedAttention(config.heads)
