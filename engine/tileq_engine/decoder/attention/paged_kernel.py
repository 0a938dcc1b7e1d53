"""Paged attention on the CPU, as plain functions that `paged` compiles.

Each query row reads the blocks of its own sequence and nothing else, in one fixed order: the work is the sum of the
contexts, and a row's result does not depend on what else is in the batch or how its prompt was cut into chunks.
"""

from __future__ import annotations

__all__ = ["attend_rows", "exponentials", "paged_attention", "score_rows"]

import numpy as np
from jaxtyping import Float, Int


def paged_attention(
    query: Float[np.ndarray, "token head dim"],
    keys: Float[np.ndarray, "block inside kv_head dim"],
    values: Float[np.ndarray, "block inside kv_head dim"],
    table: Int[np.ndarray, "seq held"],
    query_start: Int[np.ndarray, "start"],
    context: Int[np.ndarray, "seq"],
    scale: float,
    window: int,
    scores: Float[np.ndarray, "head room"],
    bits: Int[np.ndarray, "room"],
    out: Float[np.ndarray, "token head dim"],
) -> None:
    """Fill `out` with softmax(scale q k) v over the keys that each row sees (the last `window` ones; 0: all).

    `scores` and `bits` are scratch for at least as many tokens as the longest context.
    """
    for s in range(len(context)):
        first, last = int(query_start[s]), int(query_start[s + 1])
        for t in range(first, last):
            stop = int(context[s]) - (last - 1 - t)
            start = max(0, stop - window) if window > 0 else 0
            score_rows(query[t], keys, table[s], start, stop, scale, scores)
            for h in range(query.shape[1]):
                exponentials(scores[h], stop - start, bits)
            attend_rows(scores, values, table[s], start, stop, out[t])


def score_rows(
    query: Float[np.ndarray, "head dim"],
    keys: Float[np.ndarray, "block inside kv_head dim"],
    table: Int[np.ndarray, "held"],
    start: int,
    stop: int,
    scale: float,
    scores: Float[np.ndarray, "head room"],
) -> None:
    """Fill `scores` with scale * q . k of the keys start .. stop - 1, from column 0 on; each key is read once."""
    heads, dim = query.shape
    inside, shared = keys.shape[1], keys.shape[2]
    group = heads // shared
    factor = np.float32(scale)
    j = start
    while j + 4 <= stop:  # four at a time: blocks lie anywhere, and so four reads are under way at once
        b0, b1, b2, b3 = (
            table[j // inside],
            table[(j + 1) // inside],
            table[(j + 2) // inside],
            table[(j + 3) // inside],
        )
        r0, r1, r2, r3 = j % inside, (j + 1) % inside, (j + 2) % inside, (j + 3) % inside
        at = j - start
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                t0 = t1 = t2 = t3 = np.float32(0)
                for d in range(dim):
                    q = query[h, d]
                    t0 += q * keys[b0, r0, c, d]
                    t1 += q * keys[b1, r1, c, d]
                    t2 += q * keys[b2, r2, c, d]
                    t3 += q * keys[b3, r3, c, d]
                scores[h, at] = t0 * factor
                scores[h, at + 1] = t1 * factor
                scores[h, at + 2] = t2 * factor
                scores[h, at + 3] = t3 * factor
        j += 4
    for k in range(j, stop):
        block, row = table[k // inside], k % inside
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                total = np.float32(0)
                for d in range(dim):
                    total += query[h, d] * keys[block, row, c, d]
                scores[h, k - start] = total * factor


def exponentials(scores: Float[np.ndarray, "room"], count: int, bits: Int[np.ndarray, "room"]) -> None:
    """Replace the first `count` scores by their softmax.

    exp(x) = 2^n 2^f with n whole and |f| <= 1/2: a polynomial for 2^f and n put into the exponent's bits, so that
    the loop runs on vectors; relative error below 2e-7 for x in [-87, 0], zero weight's worth of it beneath.
    """
    top = scores[0]
    for j in range(count):
        top = max(top, scores[j])
    for j in range(count):
        x = max((scores[j] - top) * np.float32(1.4426950408889634), np.float32(-126))
        n = np.int32(x - np.float32(0.5))
        f = x - np.float32(n)
        p = np.float32(1.5403530393381609e-4)
        p = p * f + np.float32(1.3333558146428443e-3)
        p = p * f + np.float32(9.6181291076284772e-3)
        p = p * f + np.float32(5.5504108664821580e-2)
        p = p * f + np.float32(2.4022650695910072e-1)
        p = p * f + np.float32(6.9314718055994531e-1)
        scores[j] = p * f + np.float32(1)
        bits[j] = (n + np.int32(127)) << np.int32(23)
    powers = bits.view(np.float32)
    total = np.float32(0)
    for j in range(count):
        scores[j] *= powers[j]
        total += scores[j]
    share = np.float32(1) / total
    for j in range(count):
        scores[j] *= share


def attend_rows(
    scores: Float[np.ndarray, "head room"],
    values: Float[np.ndarray, "block inside kv_head dim"],
    table: Int[np.ndarray, "held"],
    start: int,
    stop: int,
    out: Float[np.ndarray, "head dim"],
) -> None:
    """Fill `out` with the values start .. stop - 1, weighted by `scores`; each value is read once."""
    heads, dim = out.shape
    inside, shared = values.shape[1], values.shape[2]
    group = heads // shared
    for h in range(heads):
        for d in range(dim):
            out[h, d] = np.float32(0)
    j = start
    while j + 4 <= stop:
        b0, b1, b2, b3 = (
            table[j // inside],
            table[(j + 1) // inside],
            table[(j + 2) // inside],
            table[(j + 3) // inside],
        )
        r0, r1, r2, r3 = j % inside, (j + 1) % inside, (j + 2) % inside, (j + 3) % inside
        at = j - start
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                w0, w1, w2, w3 = scores[h, at], scores[h, at + 1], scores[h, at + 2], scores[h, at + 3]
                for d in range(dim):
                    early = w0 * values[b0, r0, c, d] + w1 * values[b1, r1, c, d]
                    out[h, d] += early + (w2 * values[b2, r2, c, d] + w3 * values[b3, r3, c, d])
        j += 4
    for k in range(j, stop):
        block, row = table[k // inside], k % inside
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                weight = scores[h, k - start]
                for d in range(dim):
                    out[h, d] += weight * values[block, row, c, d]
