"""Who belongs together among requests whose blocks are known: for routers that keep sessions on a node, and tenants."""

from __future__ import annotations

__all__ = ["session_keys", "with_tenants"]

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileq_engine.prefix_blocks import BlockPaths
    from tileq_engine.requests import Requests

_COMMON = 0.02  # a block of more than this share of the requests is a system prompt's, not a conversation's


def session_keys(blocks: BlockPaths) -> Int[np.ndarray, "request"]:
    """Return one whole number a request; requests with the same one share the first block that is not everybody's.

    On a request's path the first node that at most 2 % of the requests hold (8 of them at least) stands for its
    session; a request without such a node has a session of its own.

    Examples
    --------
    >>> from tileq_engine.prefix_blocks import BlockPaths
    >>> paths = BlockPaths.from_lists([["system", f"talk {k // 2}"] for k in range(40)] + [["system"]], 16)
    >>> keys = session_keys(paths)
    >>> len(set(keys.tolist())), bool(keys[0] == keys[1]), bool(keys[1] == keys[2])
    (21, True, False)
    """
    edges, nodes = blocks.offsets, blocks.nodes
    count = edges.size - 1
    holders = np.bincount(nodes, minlength=blocks.parent.size)
    own = holders[nodes] <= max(8, _COMMON * count)
    keys = np.arange(count, dtype=np.int64) + blocks.parent.size
    request = np.repeat(np.arange(count), np.diff(edges))
    where = np.flatnonzero(own)
    # backwards, so that the first such node of a path is written last
    keys[request[where][::-1]] = nodes[where][::-1]
    return keys


def with_tenants(requests: Requests, shares: Sequence[float], rng: np.random.Generator) -> Requests:
    """Return the requests divided among as many tenants as there are shares, whole sessions each; a class is a tenant.

    Examples
    --------
    >>> from tileq_engine.conversations import Conversations
    >>> asked = Conversations().requests(400, rate_per_s=5.0)
    >>> mine = with_tenants(asked, [0.75, 0.25], np.random.default_rng(1)).tenant
    >>> sorted(set(mine.tolist())), bool(mine.mean() < 0.5)
    ([0, 1], True)
    """
    keys = np.arange(len(requests)) if requests.blocks is None else session_keys(requests.blocks)
    known, session = np.unique(keys, return_inverse=True)
    part = np.asarray(shares, dtype=float)
    whose = rng.choice(part.size, size=known.size, p=part / part.sum()).astype(np.int64)[session.reshape(-1)]
    return requests.with_(tenant=whose, class_index=whose)
