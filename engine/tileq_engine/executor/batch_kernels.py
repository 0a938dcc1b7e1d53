"""Build a flat batch and deliver its tokens, as plain functions that `batch_building` compiles.

In numpy each is a dozen calls on arrays of some dozen numbers. After a forward, which leaves the caches full of
weights, what costs is the code and the pages that are touched for the first time again, not the work.
"""

from __future__ import annotations

__all__ = ["deliver_tokens", "fill_batch", "measure_batch"]

import numpy as np
from jaxtyping import Int


def measure_batch(
    ids: Int[np.ndarray, "member"],
    prefill: Int[np.ndarray, "member"],
    decode: Int[np.ndarray, "member"],
    context: Int[np.ndarray, "member"],
    length: Int[np.ndarray, "request"],
    row_of: Int[np.ndarray, "request_with_row"],
    room: Int[np.ndarray, "row"],
    need: Int[np.ndarray, "4"],
    short: Int[np.ndarray, "member"],
) -> None:
    """Write to `need`: tokens in all, the longest context after, members that get a token, members short of blocks.

    The places of those that are short go to `short`: they have no row yet, or their row has no room.
    """
    total = longest = wanted = lacking = 0
    for k in range(len(ids)):
        i = ids[k]
        fresh = prefill[k] + decode[k]
        after = context[k] + fresh
        total += fresh
        longest = max(longest, after)
        if after == length[i]:
            wanted += 1
        row = row_of[i] if i < len(row_of) else -1
        if row < 0 or after > room[row]:
            short[lacking] = k
            lacking += 1
    need[0] = total
    need[1] = longest
    need[2] = wanted
    need[3] = lacking


def fill_batch(
    ids: Int[np.ndarray, "member"],
    prefill: Int[np.ndarray, "member"],
    decode: Int[np.ndarray, "member"],
    context: Int[np.ndarray, "member"],
    flat: Int[np.ndarray, "known"],
    offset: Int[np.ndarray, "request"],
    length: Int[np.ndarray, "request"],
    prompt: Int[np.ndarray, "request"],
    row_of: Int[np.ndarray, "request_with_row"],
    table: Int[np.ndarray, "row block"],
    block_tokens: int,
    per_token: Int[np.ndarray, "3 token"],
    per_out: Int[np.ndarray, "4 out"],
    query_start: Int[np.ndarray, "bound"],
    after: Int[np.ndarray, "member"],
    block_table: Int[np.ndarray, "member block"],
) -> None:
    """Fill in a batch whose members all have their blocks.

    `per_token` are ids, positions and slots; `per_out` are last row, member, request and tokens given before of each
    member that gets a token.
    """
    at = out = 0
    query_start[0] = 0
    for k in range(len(ids)):
        i = ids[k]
        row = row_of[i]
        stop = context[k] + prefill[k] + decode[k]
        for position in range(context[k], stop):
            per_token[0, at] = flat[offset[i] + position]
            per_token[1, at] = position
            per_token[2, at] = table[row, position // block_tokens] * block_tokens + position % block_tokens
            at += 1
        query_start[k + 1] = at
        after[k] = stop
        held = -(-stop // block_tokens)
        for b in range(block_table.shape[1]):
            block_table[k, b] = table[row, b] if b < held else 0
        if stop == length[i]:
            per_out[0, out] = at - 1
            per_out[1, out] = k
            per_out[2, out] = i
            per_out[3, out] = length[i] - prompt[i]
            out += 1


def deliver_tokens(
    requests: Int[np.ndarray, "out"],
    tokens: Int[np.ndarray, "out"],
    flat: Int[np.ndarray, "known"],
    offset: Int[np.ndarray, "request"],
    length: Int[np.ndarray, "request"],
) -> None:
    """Append one token to the history of each request."""
    for k in range(len(requests)):
        i = requests[k]
        flat[offset[i] + length[i]] = tokens[k]
        length[i] += 1
