"""The blocks of prompts as paths in one tree: what a prefix cache looks up."""

from __future__ import annotations

__all__ = ["BlockPaths"]

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_theory.errors import InputError, positive_int, sequence


@dataclass(frozen=True, slots=True, eq=False)
class BlockPaths:
    """Request i holds the nodes `nodes[offsets[i]:offsets[i + 1]]`, one a full block of its tokens, first block first.

    A node stands for a block and all that precedes it: requests share a block exactly when they share its node.
    `parent[node]` is the node before it, -1 for a first block; nodes are 0, 1, ... without a gap. A path covers the
    prompt, and may go on over the output, whose blocks another request's prompt can then begin with.
    """

    offsets: Int[np.ndarray, "edge"]
    nodes: Int[np.ndarray, "block"]
    parent: Int[np.ndarray, "node"]
    block_tokens: int

    @classmethod
    def of(
        cls,
        ids: Int[np.ndarray, "block"],
        offsets: Int[np.ndarray, "edge"],
        block_tokens: int,
        *,
        full_blocks: Int[np.ndarray, "request"] | None = None,
    ) -> BlockPaths:
        """Build from the identities of blocks, chained by their prefix or not: here they are chained (again).

        Parameters
        ----------
        ids, offsets
            Request i holds `ids[offsets[i]:offsets[i + 1]]`.
        block_tokens
            Tokens of one of these blocks.
        full_blocks
            How many of a request's blocks are full, where its list may end with a partly filled one (a trace hashes
            the last tokens of a prompt too): the others are left out, as no engine shares them.

        Examples
        --------
        >>> paths = BlockPaths.of(np.array([7, 8, 7, 9, 8]), np.array([0, 2, 4, 5]), 16)
        >>> paths.nodes.tolist(), paths.parent.tolist()
        ([0, 2, 0, 3, 1], [-1, -1, 0, 0])
        """
        size = positive_int("block_tokens", block_tokens)
        ids, edges = _whole("block ids", ids), _whole("block offsets", offsets)
        if len(edges) < 1 or edges[0] != 0 or edges[-1] != len(ids) or np.any(np.diff(edges) < 0):
            raise InputError(
                f"block offsets end at {edges[-1] if len(edges) else None} for {len(ids)} block ids; expected "
                "0 = offsets[0] <= ... <= offsets[-1] = number of ids, one more than there are requests"
            )
        lengths = np.diff(edges)
        if full_blocks is not None:
            full_blocks = _whole("full_blocks", full_blocks)
            if full_blocks.shape != lengths.shape:
                raise InputError(f"full_blocks has {len(full_blocks)} numbers; expected {len(lengths)}, one a request")
            ids, lengths = _shortened(ids, edges, np.minimum(lengths, full_blocks))
            edges = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        nodes, parent = _chained(ids, edges)
        return cls(edges, nodes, parent, size)

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[Hashable]], block_tokens: int) -> BlockPaths:
        """Build from one list of hashes a request, of any kind that can be compared.

        Examples
        --------
        >>> BlockPaths.from_lists([["a", "b"], ["a"], []], 16).nodes.tolist()
        [0, 1, 0]
        """
        rows = sequence("lists of blocks", lists, "lists of hashes, one a request")
        lists = [sequence(f"blocks of request {i}", row, "hashes") for i, row in enumerate(rows)]
        known: dict[Hashable, int] = {}
        ids = np.array([known.setdefault(h, len(known)) for row in lists for h in row], dtype=np.int64)
        edges = np.cumsum([0, *(len(row) for row in lists)], dtype=np.int64)
        return cls.of(ids, edges, block_tokens)

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int[np.ndarray, "request"]:
        """Nodes of each request."""
        return np.diff(self.offsets)

    def path(self, request: int) -> Int[np.ndarray, "own"]:
        """Return the nodes of one request."""
        return self.nodes[self.offsets[request] : self.offsets[request + 1]]

    def take(self, rows: Any) -> BlockPaths:
        """Return the paths of the named requests (indices, or a slice), in that order; nodes keep their numbers."""
        chosen = np.arange(len(self))[rows]
        lengths = self.lengths[chosen]
        edges = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
        start = np.repeat(self.offsets[:-1][chosen] - edges[:-1], lengths)
        return BlockPaths(edges, self.nodes[start + np.arange(int(edges[-1]))], self.parent, self.block_tokens)


def _whole(name: str, values: Any) -> Int[np.ndarray, "n"]:
    """Return the values as one row of int64; anything else raises `InputError`."""
    try:
        array = np.asarray(values)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise TypeError
        return array.astype(np.int64)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {values!r}; expected one row of whole numbers") from None


def _shortened(
    ids: Int[np.ndarray, "block"], edges: Int[np.ndarray, "edge"], lengths: Int[np.ndarray, "request"]
) -> tuple[Int[np.ndarray, "kept"], Int[np.ndarray, "request"]]:
    """Return the first `lengths` ids of each request."""
    depth = np.arange(len(ids)) - np.repeat(edges[:-1], np.diff(edges))
    return ids[depth < np.repeat(lengths, np.diff(edges))], lengths


def _chained(
    ids: Int[np.ndarray, "block"], edges: Int[np.ndarray, "edge"]
) -> tuple[Int[np.ndarray, "block"], Int[np.ndarray, "node"]]:
    """Return the node of every block, and every node's parent: equal (parent, id) pairs, depth by depth, are one node.

    Nodes are numbered by depth, then parent, then id.
    """
    nodes = np.empty(len(ids), dtype=np.int64)
    parents: list[np.ndarray] = []
    count, depth, lengths = 0, 0, np.diff(edges)
    _, dense = np.unique(ids, return_inverse=True)
    span = int(dense.max(initial=0)) + 1
    at = edges[:-1][lengths > 0]
    last = np.full(len(at), -1, dtype=np.int64)
    rest = lengths[lengths > 0]
    while len(at):
        pairs, place = np.unique((last + 1) * span + dense.reshape(-1)[at], return_inverse=True)
        nodes[at] = count + place.reshape(-1)
        parents.append(pairs // span - 1)
        last = nodes[at]
        count += len(pairs)
        depth += 1
        on = rest > depth
        at, last, rest = at[on] + 1, last[on], rest[on]
    parent = np.concatenate(parents) if parents else np.zeros(0, dtype=np.int64)
    return nodes, parent.astype(np.int64)
