"""Paged attention on the CPU, as plain functions that `paged` compiles.

Each query row reads the blocks of its own sequence and nothing else, in one fixed order: the work is the sum of the
contexts, and a row's result does not depend on what else is in the batch or how its prompt was cut into chunks. Blocks
lie anywhere, so that the processor cannot guess what is read next: the keys and values of the tokens ahead are asked
for while the ones before them are worked on.
"""

from __future__ import annotations

__all__ = ["attend_rows", "exponentials", "fetch_row", "find_rows", "paged_attention", "score_rows"]

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.compile_module import prefetch


def find_rows(
    table: Int[np.ndarray, "seq held"],
    context: Int[np.ndarray, "seq"],
    inside: int,
    first: Int[np.ndarray, "seq"],
    rows: Int[np.ndarray, "room"],
) -> None:
    """Write the slots of each sequence's tokens to `rows`, one sequence after the other, and where each begins."""
    at = 0
    for s in range(len(context)):
        first[s] = at
        left = int(context[s])
        for b in range(-(-left // inside)):
            for r in range(min(inside, left)):
                rows[at + r] = table[s, b] * inside + r
            at += min(inside, left)
            left -= inside


def paged_attention(
    query: Float[np.ndarray, "token head dim"],
    keys: Float[np.ndarray, "slot kv_head dim"],
    values: Float[np.ndarray, "slot kv_head dim"],
    query_start: Int[np.ndarray, "start"],
    context: Int[np.ndarray, "seq"],
    first: Int[np.ndarray, "seq"],
    rows: Int[np.ndarray, "room"],
    scale: float,
    window: int,
    scores: Float[np.ndarray, "head longest"],
    bits: Int[np.ndarray, "longest"],
    out: Float[np.ndarray, "token head dim"],
) -> None:
    """Fill `out` with softmax(scale q k) v over the keys that each row sees (the last `window` ones; 0: all).

    `first` and `rows` are as `find_rows` leaves them; `scores` and `bits` are scratch for the longest context.
    """
    for s in range(len(context)):
        fresh = int(query_start[s + 1]) - int(query_start[s])
        then = min(s + 1, len(context) - 1)  # the sequence that comes next
        seen = int(context[then]) - int(query_start[then + 1]) + int(query_start[then]) + 1
        skipped = max(0, seen - window) if window > 0 else 0
        for t in range(fresh):
            stop = int(context[s]) - (fresh - 1 - t)
            start = max(0, stop - window) if window > 0 else 0
            at, count, row = int(first[s]) + start, stop - start, int(query_start[s]) + t
            ahead = 16 if t == 0 else 0  # the rows after the first find everything in the caches
            score_rows(query[row], keys, values, rows, at, count, scale, ahead, scores)
            for h in range(query.shape[1]):
                exponentials(scores[h], count, bits)
            attend_rows(
                scores, keys, values, rows, at, count, int(first[then]) + skipped, seen - skipped, ahead, out[row]
            )


def fetch_row(pool: Float[np.ndarray, "slot kv_head dim"], slot: int) -> None:
    """Ask for the row of a token."""
    size = pool.shape[1] * pool.shape[2]
    for d in range(0, size, 16):
        prefetch(pool, slot * size + d)


def score_rows(
    query: Float[np.ndarray, "head dim"],
    keys: Float[np.ndarray, "slot kv_head dim"],
    values: Float[np.ndarray, "slot kv_head dim"],
    rows: Int[np.ndarray, "room"],
    first: int,
    count: int,
    scale: float,
    ahead: int,
    scores: Float[np.ndarray, "head longest"],
) -> None:
    """Fill `scores` with scale * q . k of `count` keys, those at rows[first] and after; each key is read once.

    Keys `ahead` tokens ahead are asked for (0: none), after the last of them the first values.
    """
    heads, dim = query.shape
    shared = keys.shape[1]
    group = heads // shared
    factor = np.float32(scale)
    for j in range(count, ahead):  # fewer keys than that: the values follow at once
        if j - count < count:
            fetch_row(values, int(rows[first + j - count]))
    j = 0
    while j + 4 <= count:  # four at a time: blocks lie anywhere, and so four reads are under way at once
        if ahead > 0:
            for k in range(j + ahead, j + ahead + 4):
                if k < count:
                    fetch_row(keys, int(rows[first + k]))
                elif k < 2 * count:
                    fetch_row(values, int(rows[first + k - count]))
        s0, s1, s2, s3 = rows[first + j], rows[first + j + 1], rows[first + j + 2], rows[first + j + 3]
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                t0 = t1 = t2 = t3 = np.float32(0)
                for d in range(dim):
                    q = query[h, d]
                    t0 += q * keys[s0, c, d]
                    t1 += q * keys[s1, c, d]
                    t2 += q * keys[s2, c, d]
                    t3 += q * keys[s3, c, d]
                scores[h, j] = t0 * factor
                scores[h, j + 1] = t1 * factor
                scores[h, j + 2] = t2 * factor
                scores[h, j + 3] = t3 * factor
        j += 4
    for k in range(j, count):
        slot = rows[first + k]
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                total = np.float32(0)
                for d in range(dim):
                    total += query[h, d] * keys[slot, c, d]
                scores[h, k] = total * factor


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
    scores: Float[np.ndarray, "head longest"],
    keys: Float[np.ndarray, "slot kv_head dim"],
    values: Float[np.ndarray, "slot kv_head dim"],
    rows: Int[np.ndarray, "room"],
    first: int,
    count: int,
    then: int,
    most: int,
    ahead: int,
    out: Float[np.ndarray, "head dim"],
) -> None:
    """Fill `out` with `count` values, those at rows[first] and after, weighted by `scores`; each value is read once.

    Values `ahead` tokens ahead are asked for (0: none), after the last of them the keys at rows[then] and after, `most`
    at the most: those of the sequence that comes next.
    """
    heads, dim = out.shape
    shared = values.shape[1]
    group = heads // shared
    for h in range(heads):
        for d in range(dim):
            out[h, d] = np.float32(0)
    j = 0
    while j + 4 <= count:
        if ahead > 0:
            for k in range(j + ahead, j + ahead + 4):
                if k < count:
                    fetch_row(values, int(rows[first + k]))
                elif k < count + most:
                    fetch_row(keys, int(rows[then + k - count]))
        s0, s1, s2, s3 = rows[first + j], rows[first + j + 1], rows[first + j + 2], rows[first + j + 3]
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                w0, w1, w2, w3 = scores[h, j], scores[h, j + 1], scores[h, j + 2], scores[h, j + 3]
                for d in range(dim):
                    early = w0 * values[s0, c, d] + w1 * values[s1, c, d]
                    out[h, d] += early + (w2 * values[s2, c, d] + w3 * values[s3, c, d])
        j += 4
    for k in range(j, count):
        slot = rows[first + k]
        for c in range(shared):
            for h in range(c * group, (c + 1) * group):
                weight = scores[h, k]
                for d in range(dim):
                    out[h, d] += weight * values[slot, c, d]
    if ahead > 0 and count < ahead:  # the loops above have asked for what lies between
        for k in range(min(ahead - count, most)):
            fetch_row(keys, int(rows[then + k]))
