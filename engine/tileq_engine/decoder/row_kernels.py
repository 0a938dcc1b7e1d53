"""What lies between the matrix products on a CPU, as plain functions that `compiled_layers` compiles.

Every row is worked on by itself, in one fixed order of additions that depends on its width alone: its bits do not
depend on what else is in the batch. A number that is not finite stays so: nothing here assumes that there are none.
"""

from __future__ import annotations

__all__ = ["gate_rows", "head_scale", "norm_rows", "place_rows", "turn"]

import numpy as np
from jaxtyping import Float, Int


def norm_rows(
    x: Float[np.ndarray, "row hidden"],
    weight: Float[np.ndarray, "hidden"],
    eps: float,
    out: Float[np.ndarray, "row hidden"],
) -> None:
    """Fill `out` with x / sqrt(mean(x^2) + eps) weight, row by row (RMSNorm, arXiv 1910.07467, eq. 4)."""
    for r in range(len(x)):
        scale = head_scale(x[r], eps)
        for j in range(x.shape[1]):
            out[r, j] = x[r, j] * scale * weight[j]


def head_scale(x: Float[np.ndarray, "width"], eps: float) -> np.float32:
    """Return 1 / sqrt(mean(x^2) + eps)."""
    total = np.float32(0)
    for j in range(len(x)):
        total += x[j] * x[j]
    scale: np.float32 = np.float32(1) / np.sqrt(total / np.float32(len(x)) + np.float32(eps))
    return scale


def place_rows(
    qkv: Float[np.ndarray, "filled qkv"],
    positions: Int[np.ndarray, "token"],
    slots: Int[np.ndarray, "token"],
    cosine: Float[np.ndarray, "position half"],
    sine: Float[np.ndarray, "position half"],
    norms: Float[np.ndarray, "turning dim"],
    eps: float,
    query: Float[np.ndarray, "filled head dim"],
    keys: Float[np.ndarray, "slot kv_head dim"],
    values: Float[np.ndarray, "slot kv_head dim"],
) -> int:
    """Norm (where `norms` has a row for each of the heads that turn) and rotate queries and keys; fill the cache.

    Queries go to `query`, keys and values to the `slots` of their tokens. Rows beyond the tokens are left alone.
    Return the first token whose slot or position lies outside, where it stops; -1 if there is none.
    """
    heads, dim = query.shape[1], query.shape[2]
    shared = keys.shape[1]
    for t in range(len(slots)):
        if not (0 <= slots[t] < len(keys) and 0 <= positions[t] < len(cosine)):
            return t
        c, s, slot = cosine[positions[t]], sine[positions[t]], slots[t]
        for h in range(heads + shared):
            row = qkv[t, h * dim : (h + 1) * dim]
            if len(norms) > 0:
                scale = head_scale(row, eps)
                for d in range(dim):
                    row[d] = row[d] * scale * norms[h, d]
            if h < heads:
                turn(row, c, s, query[t, h])
            else:
                turn(row, c, s, keys[slot, h - heads])
        for h in range(shared):
            start = (heads + shared + h) * dim
            for d in range(dim):
                values[slot, h, d] = qkv[t, start + d]
    return -1


def turn(
    x: Float[np.ndarray, "dim"],
    cosine: Float[np.ndarray, "half"],
    sine: Float[np.ndarray, "half"],
    out: Float[np.ndarray, "dim"],
) -> None:
    """Fill `out` with x, its two halves turned by the angles (RoFormer, arXiv 2104.09864, eq. 34)."""
    half = len(cosine)
    for d in range(half):
        a, b = x[d], x[half + d]
        out[d] = a * cosine[d] - b * sine[d]
        out[half + d] = b * cosine[d] + a * sine[d]


def gate_rows(gate_up: Float[np.ndarray, "row gate_up"], out: Float[np.ndarray, "row inner"]) -> None:
    """Fill `out` with silu(gate) up, silu(x) = x / (1 + exp(-x)).

    exp(-x) = 2^n 2^f with n whole and |f| <= 1/2: a polynomial for 2^f, and n put into the exponent's bits; relative
    error of the result below 1e-6 + |x| 2^-24. Below -87.9 silu, which is less than 1e-36 there, is taken as nothing.
    """
    inner = out.shape[1]
    for r in range(len(out)):
        for j in range(inner):
            x = gate_up[r, j]
            left = x * np.float32(0) if x < np.float32(-87.9) else x  # minus infinity becomes NaN, as in torch
            y = x * np.float32(-1.4426950408889634)
            y = y if y < np.float32(126.9) else np.float32(126.9)  # of NaN a number: `left` brings it back
            y = y if y > np.float32(-126) else np.float32(-126)
            n = np.int32(np.floor(y + np.float32(0.5)))
            f = y - np.float32(n)
            p = np.float32(1.5403530393381609e-4)
            p = p * f + np.float32(1.3333558146428443e-3)
            p = p * f + np.float32(9.6181291076284772e-3)
            p = p * f + np.float32(5.5504108664821580e-2)
            p = p * f + np.float32(2.4022650695910072e-1)
            p = p * f + np.float32(6.9314718055994531e-1)
            p = p * f + np.float32(1)
            power = np.int32((n + np.int32(127)) << np.int32(23)).view(np.float32)
            out[r, j] = left / (np.float32(1) + p * power) * gate_up[r, inner + j]
