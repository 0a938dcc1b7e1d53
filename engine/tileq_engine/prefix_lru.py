"""One pass of a cache of blocks over the paths of a trace: what a prefix cache would find, without any scheduling."""

from __future__ import annotations

__all__ = ["lru_pass"]

from typing import Any


def lru_pass(edges: Any, nodes: Any, after: Any, ahead: Any, kept: Any, found: Any, most: int) -> Any:
    """Write to `found` how many leading blocks of each request a cache of `most` blocks holds; return how many it gave up.

    The least recently used block goes first. A request's blocks are used together, its last one first of all, so that
    a block is never given up before those that follow it. `after` and `ahead` have one place more than there are
    nodes, the ends of the list, and `kept` is all 0.
    """
    end = len(after) - 1
    after[end] = end
    ahead[end] = end
    count = 0
    lost = 0
    for i in range(len(edges) - 1):
        k = edges[i]
        while k < edges[i + 1] and kept[nodes[k]] == 1:
            k += 1
        found[i] = k - edges[i]
        for j in range(edges[i + 1] - 1, edges[i] - 1, -1):
            node = nodes[j]
            if kept[node] == 1:
                after[ahead[node]] = after[node]
                ahead[after[node]] = ahead[node]
            else:
                kept[node] = 1
                count += 1
            ahead[node] = ahead[end]
            after[node] = end
            after[ahead[end]] = node
            ahead[end] = node
        while count > most:
            node = after[end]
            after[end] = after[node]
            ahead[after[node]] = end
            kept[node] = 0
            count -= 1
            lost += 1
    return lost
