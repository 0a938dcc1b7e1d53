r"""What a prefix cache finds in a trace, by itself: every request is looked up when it comes, nothing is scheduled.

The share of blocks found in an unbounded cache says what a trace has to share, that of a bounded one what memory
brings of it; `tileq_theory.prefix_cache` predicts both. The engine's own share (`EngineConfig.prefix_cache`) is lower:
there residents hold memory, blocks enter when they are computed, and the last token of a prompt is always computed.
"""

from __future__ import annotations

__all__ = ["HitRate", "hit_rate"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.prefix_blocks import BlockPaths
from tileq_theory.errors import InputError, positive_int


@dataclass(frozen=True, slots=True, eq=False)
class HitRate:
    """Blocks found of each request.

    Parameters
    ----------
    found
        Leading blocks of each request that were cached when it came.
    asked
        Blocks of each request.
    evicted
        Blocks given up in all.
    block_tokens
        Tokens of a block.
    """

    found: Int[np.ndarray, "request"]
    asked: Int[np.ndarray, "request"]
    evicted: int
    block_tokens: int

    @property
    def share(self) -> float:
        """Share of all blocks that were found; 0 where there are none."""
        asked = int(self.asked.sum())
        return int(self.found.sum()) / asked if asked else 0.0

    @property
    def hit_tokens(self) -> int:
        """Tokens found."""
        return int(self.found.sum()) * self.block_tokens


def hit_rate(trace: Any, cache_tokens: int | None = None) -> HitRate:
    """Return what a cache of `cache_tokens` tokens (None: unbounded) finds in a trace of block identities.

    Parameters
    ----------
    trace
        `BlockPaths`, or whatever has blocks: a trace read from a file (its partly filled last blocks count as blocks),
        `Requests`.
    cache_tokens
        Whole blocks of it are used; the least recently used block is given up, the end of a prefix before its
        beginning.

    Raises
    ------
    InputError
        Where the trace has no block identities, or the cache holds no block.

    Examples
    --------
    >>> paths = BlockPaths.from_lists([["a", "b"], ["a", "c"], ["a", "b"]], 16)
    >>> hit_rate(paths).found.tolist(), hit_rate(paths, 32).found.tolist()
    ([0, 1, 2], [0, 1, 1])
    """
    from tileq_engine.compile import entry_point

    paths = _paths(trace)
    most = len(paths.parent)
    if cache_tokens is not None:
        most = positive_int("cache_tokens", cache_tokens) // paths.block_tokens
        if most == 0:
            raise InputError(
                f"cache_tokens is {cache_tokens}; expected at least a block of {paths.block_tokens} tokens"
            )
    after, ahead = (np.zeros(len(paths.parent) + 1, dtype=np.int64) for _ in range(2))
    kept, found = (np.zeros(n, dtype=np.int64) for n in (len(paths.parent), len(paths)))
    lost = entry_point("lru_pass")(paths.offsets, paths.nodes, after, ahead, kept, found, most)
    return HitRate(found, paths.lengths, int(lost), paths.block_tokens)


def _paths(trace: Any) -> BlockPaths:
    if isinstance(trace, BlockPaths):
        return trace
    blocks = getattr(trace, "blocks", None)
    if blocks is None:
        raise InputError(
            f"{getattr(trace, 'source', type(trace).__name__)} has no block identities; expected a trace with hash_ids "
            "(Mooncake's or Bailian's), or requests with blocks"
        )
    return blocks if isinstance(blocks, BlockPaths) else BlockPaths.of(blocks.ids, blocks.offsets, blocks.block_tokens)
