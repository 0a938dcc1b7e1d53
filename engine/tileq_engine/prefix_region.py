"""The prefix tree's part of the array P: paths of the requests, nodes of the tree, and where they begin."""

from __future__ import annotations

__all__ = ["ROW", "SAVED", "prefix_region"]

import numpy as np
from jaxtyping import Int

from tileq_engine.prefix_blocks import BlockPaths
from tileq_theory.errors import InputError

ROW, NODE = 6, 5  # integers of a request and of a node (`prefix_tree`)
SAVED = 5  # place of the hit tokens among those of a request


def prefix_region(
    blocks: BlockPaths, start: int, kv_block_tokens: int, capacity: int | None = None
) -> tuple[Int[np.ndarray, "integer"], dict[str, float]]:
    """Return the integers that follow the first `start` of P, and the scalars that say so; the tree is empty.

    `capacity` is the number of request records when it is larger than the number of paths.

    Raises
    ------
    InputError
        Unless a hashed block is a whole number of KV blocks.
    """
    if blocks.block_tokens % kv_block_tokens:
        raise InputError(
            f"the requests' blocks have {blocks.block_tokens} tokens and the cache's block_tokens is "
            f"{kv_block_tokens}; expected a hashed block to be a whole number of KV blocks"
        )
    rows = np.zeros((max(capacity or 0, len(blocks)), ROW), dtype=np.int64)
    paths = start + rows.size
    rows[: len(blocks), 0] = paths + blocks.offsets[:-1]
    rows[: len(blocks), 1] = blocks.lengths
    nodes = np.zeros((len(blocks.parent), NODE), dtype=np.int64)
    nodes[:, 0] = -1
    nodes[:, 4] = blocks.parent
    scalars: dict[str, float] = {
        "tree": start,
        "nodes": paths + len(blocks.nodes),
        "node_count": len(nodes),
        "node_blocks": blocks.block_tokens // kv_block_tokens,
        "node_tokens": blocks.block_tokens,
        "idle_first": -1,
        "idle_last": -1,
    }
    return np.concatenate([rows.reshape(-1), blocks.nodes, nodes.reshape(-1)]), scalars
