r"""Exact hits of a least-recently-used cache of every size at once: Mattson's stack distances.

A block is in a cache of C blocks exactly when fewer than C different blocks have been touched since its own last
touch. At the arrival of a request after `begin` touches, that number for a block last touched at position q is

    (begin - q - 1) - #{k < begin : previous(k) > q},

the touches in between less those that repeat a block touched in between (Mattson, Gecsei, Slutz, Traiger, IBM Systems
Journal 9(2), 1970; counted here with a Fenwick tree). One pass therefore gives the whole curve of hit rate over size.
"""

from __future__ import annotations

__all__ = ["stack_distances"]

import numpy as np
from jaxtyping import Int

from tileq_theory.prefix_cache.references import NEVER, Touches


def stack_distances(touches: Touches) -> Int[np.ndarray, "touch"]:
    """Return the different blocks touched since each reference's last one, `NEVER` for a first reference."""
    size = touches.previous.size
    tree = [0] * (size + 1)
    repeats = [0] * size
    previous, begin = touches.previous.tolist(), touches.begin.tolist()
    entered = inside = 0
    for here in range(size):
        while entered < begin[here]:
            if previous[entered] >= 0:
                inside += 1
                node = previous[entered] + 1
                while node <= size:
                    tree[node] += 1
                    node += node & -node
            entered += 1
        node, below = previous[here] + 1, 0
        while node > 0:
            below += tree[node]
            node -= node & -node
        repeats[here] = inside - below
    between = touches.begin - touches.previous - 1
    return np.where(touches.previous < 0, NEVER, between - np.array(repeats, dtype=np.int64))
