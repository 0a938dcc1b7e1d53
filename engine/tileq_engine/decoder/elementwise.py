"""What lies between the matrix products of a layer, as functions that torch.compile can fuse."""

from __future__ import annotations

__all__ = ["elementwise", "gated", "queries_keys_values"]

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch.nn.functional import rms_norm, silu

from tileq_engine.decoder.rope import rotate
from tileq_theory.errors import InputError


def queries_keys_values(
    qkv: Float[torch.Tensor, "token qkv"],
    cosine: Float[torch.Tensor, "token 1 dim"],
    sine: Float[torch.Tensor, "token 1 dim"],
    norms: Float[torch.Tensor, "turning dim"] | None,
    heads: int,
    kv_heads: int,
    eps: float,
) -> tuple[
    Float[torch.Tensor, "token head dim"],
    Float[torch.Tensor, "token kv_head dim"],
    Float[torch.Tensor, "token kv_head dim"],
]:
    """Return rotated queries, rotated keys and values; queries and keys normed first where the model does so."""
    by_head = qkv.unflatten(-1, (heads + 2 * kv_heads, cosine.shape[-1]))
    turning, value = by_head.split((heads + kv_heads, kv_heads), dim=1)
    if norms is not None:
        turning = rms_norm(turning, (turning.shape[-1],), None, eps) * norms
    query, key = rotate(turning, cosine, sine).split((heads, kv_heads), dim=1)
    return query, key, value


def gated(gate_up: Float[torch.Tensor, "token gate_up"]) -> Float[torch.Tensor, "token inner"]:
    """Return silu(gate) up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return silu(gate) * up


def elementwise(fuse: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `queries_keys_values` and `gated`, fused by torch.compile if asked: one kernel or two in place of eight.

    The first call of each takes up to half a minute. On a CPU it does not pay (a pass of a small model takes twice as
    long); it is meant for CUDA graphs, where fewer kernels are less time.
    """
    if not fuse:
        return queries_keys_values, gated
    try:
        return torch.compile(queries_keys_values, dynamic=True), torch.compile(gated, dynamic=True)
    except RuntimeError as error:  # no compiler for this Python or platform
        raise InputError(f"torch.compile does not work here ({str(error).splitlines()[0]}); use fuse=False") from None
