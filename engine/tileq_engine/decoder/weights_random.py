"""Random weights at any size: what measures the same as trained ones, but for the text."""

from __future__ import annotations

__all__ = ["random_weights"]

import zlib

import torch

from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.weights import Weights, allocate, parts


def random_weights(
    config: DecoderConfig,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Weights:
    """Return normal weights of variance 1/fan-in, so that activations and logits keep the order of one.

    Every tensor is drawn from its own stream, named by `seed` and its checkpoint name: the result depends neither on
    the order nor on how tensors are joined. They are drawn in place, one after another; nothing is held twice.
    The draws of one device type are not those of another.

    Examples
    --------
    >>> from tileq_engine.decoder.config import DecoderConfig
    >>> w = random_weights(DecoderConfig.small(layers=1), seed=3)
    >>> abs(float(w.head.var()) * 256 - 1) < 0.02
    True
    """
    weights = allocate(config, dtype, device)
    with torch.no_grad():
        for part in parts(config, weights):
            stream = torch.Generator(device=device)
            stream.manual_seed((int(seed) << 32) ^ zlib.crc32(part.name.encode()))
            mean, deviation = _law(config, part.name, part.tensor)
            part.tensor.normal_(mean, deviation, generator=stream)
    return weights


def _law(config: DecoderConfig, name: str, tensor: torch.Tensor) -> tuple[float, float]:
    if "norm" in name:
        return 1.0, 0.1
    if name.endswith(".bias"):
        return 0.0, 0.1
    if name == "model.embed_tokens.weight" and not config.tie_embeddings:
        return 0.0, 1.0
    return 0.0, float(tensor.shape[-1]) ** -0.5
