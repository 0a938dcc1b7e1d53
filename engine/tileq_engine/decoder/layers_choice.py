"""Choose how the layers' arithmetic is done, by device, type and what this torch can do."""

from __future__ import annotations

__all__ = ["Arithmetic", "choose_layers"]

from dataclasses import dataclass

import torch

from tileq_engine.decoder.attention.base import Attention
from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.layers import Layers, TorchLayers
from tileq_engine.decoder.pool import KvPool
from tileq_engine.decoder.products import packing_fault
from tileq_engine.decoder.weights import Weights
from tileq_theory.errors import InputError, near_matches

_NAMES = ("auto", "packed", "compiled", "torch")


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The layers, what they are called, and why what would be faster is not used."""

    layers: Layers
    name: str
    passed_over: dict[str, str]


def choose_layers(
    name: str,
    config: DecoderConfig,
    weights: Weights,
    pool: KvPool,
    attention: Attention,
    invariant: bool,
    fuse: bool,
) -> Arithmetic:
    """Return the arithmetic of that name, or for `auto` the fastest that is right here.

    Raises
    ------
    InputError
        The name is unknown, or it does not work here; the reason is given.
    """
    if name not in _NAMES:
        raise InputError(f"arithmetic {name!r} is unknown; {near_matches('arithmetics', name, _NAMES)}")
    passed_over: dict[str, str] = {}
    for each in _NAMES[1:]:
        if name not in ("auto", each):
            continue
        reason = _fault(each, weights, fuse)
        if reason is None:
            return Arithmetic(_made(each, config, weights, pool, attention, invariant, fuse), each, passed_over)
        passed_over[each] = reason
    raise InputError(f"arithmetic {name!r} does not work here ({passed_over[name]}); use 'auto' or 'torch'")


def _fault(name: str, weights: Weights, fuse: bool) -> str | None:
    if name == "torch":
        return None
    if fuse:
        return "fuse=True asks for torch's own, fused"
    if weights.device.type != "cpu" or weights.dtype != torch.float32:
        return f"not offered for {weights.dtype} on {weights.device.type}"
    return packing_fault(weights) if name == "packed" else None


def _made(
    name: str,
    config: DecoderConfig,
    weights: Weights,
    pool: KvPool,
    attention: Attention,
    invariant: bool,
    fuse: bool,
) -> Layers:
    if name == "torch":
        multiple = 4 if invariant and weights.device.type == "cpu" else 1
        return TorchLayers(config, weights, pool, attention, multiple, fuse)
    from tileq_engine.decoder.compiled_layers import CompiledLayers

    return CompiledLayers(config, weights, pool, attention, invariant, name == "packed")
