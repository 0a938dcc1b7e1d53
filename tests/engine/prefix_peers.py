"""Plain counterparts of what the prefix cache does: a trie of tuples, a cache as an ordered dictionary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

Path = Sequence[object]


def prefixes(path: Path) -> list[tuple[object, ...]]:
    """Every prefix of a path: the blocks, each named by all that precedes it."""
    return [tuple(path[: k + 1]) for k in range(len(path))]


def plain_lru(paths: Sequence[Path], most: int) -> list[int]:
    """Leading blocks of each path found in a cache of `most` blocks that gives up the least recently used."""
    cache: OrderedDict[tuple[object, ...], None] = OrderedDict()
    found = []
    for path in paths:
        nodes = prefixes(path)
        hits = 0
        while hits < len(nodes) and nodes[hits] in cache:
            hits += 1
        found.append(hits)
        for node in reversed(nodes):
            cache[node] = None
            cache.move_to_end(node)
        while len(cache) > most:
            cache.popitem(last=False)
    return found


def backward_distances(paths: Sequence[np.ndarray]) -> np.ndarray:
    """References since a block's last one, for each reference in turn (deepest block first); -1 for the first."""
    last: dict[int, int] = {}
    out = []
    for path in paths:
        for node in reversed(path.tolist()):
            now = len(out)
            out.append(now - last[node] if node in last else -1)
            last[node] = now
    return np.array(out)


def working_set_hit_share(distances: np.ndarray, blocks: float) -> float:
    """Hit share of an LRU cache by Denning's working set: C = sum_{u < T} P(distance > u), hits = P(distance <= T).

    Che's approximation is this law where references of a block are a Poisson process of its own.
    """
    n = distances.size
    known = np.bincount(distances[distances > 0], minlength=n + 1)
    within = np.cumsum(known) / n  # P(distance <= u)
    size = np.concatenate([[0.0], np.cumsum(1.0 - within)])  # of the window T = 0, 1, ...
    window = int(np.searchsorted(size, blocks)) - 1
    return float(within[min(max(window, 0), n)])


def che_hit_share(popularity: np.ndarray, blocks: float) -> float:
    """Che's approximation, independent references: C = sum_b 1 - exp(-p_b T), hits = sum_b p_b (1 - exp(-p_b T))."""
    low, high = 0.0, 1.0
    while (1 - np.exp(-popularity * high)).sum() < blocks:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if (1 - np.exp(-popularity * middle)).sum() < blocks else (low, middle)
    return float(popularity @ (1 - np.exp(-popularity * low)))
