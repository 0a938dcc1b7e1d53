"""Choose the attention at start, by what the device and this torch can do."""

from __future__ import annotations

__all__ = ["choose_attention"]

import torch

from tileq_engine.decoder.attention.base import Attention
from tileq_engine.decoder.attention.sdpa import SdpaAttention
from tileq_engine.decoder.config import DecoderConfig
from tileq_theory.errors import InputError, near_matches

_NAMES = ("auto", "sdpa")


def choose_attention(
    name: str, config: DecoderConfig, device: torch.device, dtype: torch.dtype, block_tokens: int
) -> Attention:
    """Return the attention of that name, or for `auto` the fastest one that works here."""
    if name not in _NAMES:
        raise InputError(f"attention {name!r} is unknown; {near_matches('attentions', name, _NAMES)}")
    return SdpaAttention()
