"""A Llama-family decoder in plain PyTorch over a paged KV cache: what the real executor runs.

Importing this package does not import torch; its names are fetched at first use.
"""

from __future__ import annotations

__all__ = [
    "Decoder",
    "DecoderConfig",
    "FlatBatch",
    "KvPool",
    "Member",
    "NonFiniteLogits",
    "RopeScaling",
    "SamplingParams",
    "Weights",
    "blocks_that_fit",
    "check_finite",
    "flat_batch",
    "greedy",
    "greedy_host",
    "load_weights",
    "random_weights",
    "sample",
    "torch_setup",
]

import importlib
from typing import Any

from tileq_theory.errors import InputError

_HOMES = {
    "Decoder": "model",
    "DecoderConfig": "config",
    "FlatBatch": "batch",
    "KvPool": "pool",
    "Member": "batch",
    "NonFiniteLogits": "finite",
    "RopeScaling": "config",
    "SamplingParams": "sampling",
    "Weights": "weights",
    "blocks_that_fit": "pool",
    "check_finite": "finite",
    "flat_batch": "batch",
    "greedy": "sampling",
    "greedy_host": "sampling",
    "load_weights": "weights_load",
    "random_weights": "weights_random",
    "sample": "sampling",
    "torch_setup": "setup",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tileq_engine.decoder' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"tileq_engine.decoder.{_HOMES[name]}"), name)
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise
        raise InputError(
            f"tileq_engine.decoder.{name} needs PyTorch 2.11 or newer, which is not installed here; "
            "install it with: pip install 'tileq[torch]' (on a machine without a GPU first: pip install torch==2.13.0)"
        ) from None
