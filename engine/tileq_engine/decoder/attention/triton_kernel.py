"""Paged attention in Triton: prefill chunks and decodes of one flat batch over blocks of any size.

A program takes one tile of one sequence's query rows and one KV head; the query heads that share it lie in the same
tile, so keys and values are read once for all of them. The running softmax goes over the keys in tiles of fixed size:
a row's result does not depend on the rest of the batch.
"""

from __future__ import annotations

__all__ = ["paged_kernel"]

import inspect

import triton
import triton.language as tl


def _paged_kernel(
    query: tl.tensor,
    keys: tl.tensor,
    values: tl.tensor,
    out: tl.tensor,
    table: tl.tensor,
    query_start: tl.tensor,
    context: tl.tensor,
    sequences: tl.tensor,
    scale: tl.tensor,
    query_stride: tl.tensor,
    slot_stride: tl.tensor,
    table_stride: tl.tensor,
    WINDOW: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    DIM_TILE: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    QUERIES: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    tile = tl.program_id(0)
    shared = tl.program_id(1)
    # the sequence of this tile: sequence s owns tiles from query_start[s] // QUERIES + s on
    low = 0
    high = sequences
    while high - low > 1:
        middle = (low + high) // 2
        if tl.load(query_start + middle) // QUERIES + middle <= tile:
            low = middle
        else:
            high = middle
    first = tl.load(query_start + low)
    count = tl.load(query_start + low + 1) - first
    begin = (tile - (first // QUERIES + low)) * QUERIES
    if begin < count:
        held = tl.load(context + low)
        rows = tl.arange(0, ROWS)
        token = begin + rows // GROUP
        head = shared * GROUP + rows % GROUP
        inside = (rows < QUERIES * GROUP) & (token < count)
        dims = tl.arange(0, DIM_TILE)
        real = dims < DIM
        place = (first + token)[:, None] * query_stride + head[:, None] * DIM + dims[None, :]
        mask = inside[:, None] & real[None, :]
        q = tl.load(query + place, mask=mask, other=0.0)
        position = held - count + token
        stop = tl.minimum(held, held - count + begin + QUERIES)
        start = 0
        if WINDOW > 0:
            start = tl.maximum(held - count + begin - WINDOW + 1, 0) // KEYS * KEYS
        top = tl.full([ROWS], -1e30, tl.float32)
        total = tl.zeros([ROWS], tl.float32)
        sums = tl.zeros([ROWS, DIM_TILE], tl.float32)
        for at in range(start, stop, KEYS):
            j = at + tl.arange(0, KEYS)
            there = j < stop
            block = tl.load(table + low * table_stride + j // BLOCK_TOKENS, mask=there, other=0).to(tl.int64)
            slot = (block * BLOCK_TOKENS + j % BLOCK_TOKENS) * slot_stride + shared * DIM
            both = there[:, None] & real[None, :]
            k = tl.load(keys + slot[:, None] + dims[None, :], mask=both, other=0.0)
            v = tl.load(values + slot[:, None] + dims[None, :], mask=both, other=0.0)
            seen = there[None, :] & (j[None, :] <= position[:, None])
            if WINDOW > 0:
                seen = seen & (j[None, :] > position[:, None] - WINDOW)
            score = tl.where(seen, tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale, -1e30)
            higher = tl.maximum(top, tl.max(score, 1))
            weight = tl.where(seen, tl.exp(score - higher[:, None]), 0.0)
            shrink = tl.exp(top - higher)
            total = total * shrink + tl.sum(weight, 1)
            sums = sums * shrink[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
            top = higher
        result = sums / tl.where(total > 0, total, 1.0)[:, None]
        target = (first + token)[:, None] * (HEADS * DIM) + head[:, None] * DIM + dims[None, :]
        tl.store(out + target, result.to(out.dtype.element_ty), mask=mask)


# unwrapped: triton reads the source of the function, which a checking hook may have wrapped
paged_kernel = triton.jit(inspect.unwrap(_paged_kernel))
