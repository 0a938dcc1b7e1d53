"""Choose the attention at start, by what the device and this torch can do."""

from __future__ import annotations

__all__ = ["Choice", "choose_attention"]

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tileq_engine.decoder.attention.base import Attention
from tileq_engine.decoder.attention.probe import fault
from tileq_engine.decoder.attention.sdpa import SdpaAttention
from tileq_engine.decoder.config import DecoderConfig
from tileq_theory.errors import InputError, near_matches

_NAMES = ("auto", "paged", "sdpa", "triton paged", "varlen gathered", "varlen gathered and expanded", "varlen paged")


@dataclass(frozen=True, slots=True)
class Choice:
    """The attention, and why those that would be faster are not used."""

    attention: Attention
    passed_over: dict[str, str]


def choose_attention(
    name: str, config: DecoderConfig, device: torch.device, dtype: torch.dtype, block_tokens: int
) -> Choice:
    """Return the attention of that name, or for `auto` the first of the fastest-first list that is right here.

    Raises
    ------
    InputError
        The name is unknown, or that attention does not work on this device; the reason is given.
    """
    if name not in _NAMES:
        raise InputError(f"attention {name!r} is unknown; {near_matches('attentions', name, _NAMES)}")
    passed_over: dict[str, str] = {}
    for each, make in _candidates(config, device, dtype, block_tokens).items():
        if name not in ("auto", each):
            continue
        reason = None if each == "sdpa" else fault(make, config, device, dtype, block_tokens)
        if reason is None:
            return Choice(make(), passed_over)
        passed_over[each] = reason
    why = passed_over.get(name, f"not offered for {dtype} on {device.type}")
    raise InputError(f"attention {name!r} does not work here ({why}); use 'auto' or 'sdpa'")


def _candidates(
    config: DecoderConfig, device: torch.device, dtype: torch.dtype, block_tokens: int
) -> dict[str, Callable[[], Attention]]:
    """Return what could work, fastest first; nothing of it is imported before it is tried."""
    found: dict[str, Callable[[], Attention]] = {}
    if device.type == "cpu" and dtype == torch.float32:
        found["paged"] = lambda: _paged(config.heads)
    if device.type == "cuda":
        if dtype != torch.float32:
            found["varlen paged"] = lambda: _varlen_paged(block_tokens)
        found["triton paged"] = _triton
        if dtype != torch.float32:
            found["varlen gathered"] = lambda: _varlen_gathered(False)
            found["varlen gathered and expanded"] = lambda: _varlen_gathered(True)
    found["sdpa"] = SdpaAttention
    return found


def _paged(heads: int) -> Attention:
    from tileq_engine.decoder.attention.paged import PagedAttention

    return PagedAttention(heads)


def _triton() -> Attention:
    from tileq_engine.decoder.attention.triton_paged import TritonAttention

    return TritonAttention()


def _varlen_paged(block_tokens: int) -> Attention:
    from tileq_engine.decoder.attention.varlen import PagedVarlenAttention, varlen_arguments

    missing = {"block_table", "seqused_k", "num_splits"} - varlen_arguments()
    if missing:
        raise InputError(f"torch {torch.__version__} has no varlen_attn with {', '.join(sorted(missing))}")
    if block_tokens % 256:
        raise InputError(f"it reads blocks of a multiple of 256 tokens; these hold {block_tokens}")
    return PagedVarlenAttention()


def _varlen_gathered(expand: bool) -> Attention:
    from tileq_engine.decoder.attention.varlen import VarlenAttention

    return VarlenAttention(expand)
