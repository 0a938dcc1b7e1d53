r"""What a trace's block identities say of a cache that sees a part of the requests: replicas behind a router.

A router that looks at no prefix sends every request to a given node with probability p, whatever it did with those
before. A block is found there if one of the earlier requests that hold it came to the node, and its last one did within
the reach of the cache. Let A_1 < A_2 < ... be the ages of the references to the block before this one, on the clock of
all touches (`references`), and q = 1 - p:

    P(age at the node <= T) = sum over i with A_i <= T of p q^(i-1)

In an infinite cache a block held by c requests before is found with probability 1 - q^c. The node's own clock runs p
times as fast as that of all touches, so its working set in a window of T touches of all is

    W(T) = p times the integral from 0 to T of P(age at the node > u) du,     W(T_C) = C

(the law of `reuse`, thinned; at p = 1 it is that). Hits are a prefix of each chain still, since a request takes all of
its blocks to one node. What a request finds is a mean over the router's draws, exact for independent ones.
"""

from __future__ import annotations

__all__ = ["SplitReuse"]

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.prefix_cache.references import Touches, touches_of

_RARE = 1e-9  # probability below which further references ago are left out
_BINS = 4000


@dataclass(frozen=True, slots=True, eq=False)
class SplitReuse:
    """Block references of a trace of which a node is sent the share p, request by request.

    Parameters
    ----------
    touches
        The trace's references in the order of touches.
    offsets, block_tokens, prompt_tokens
        As in `Reuse`.
    share
        p, in (0, 1].
    windows, filled
        Windows in touches of all requests, and the different blocks that the node touches in them: W.

    Examples
    --------
    Two conversations of two requests each, on two replicas: a follow-up finds its past with probability 1/2.

    >>> ids, edges = np.array([1, 5, 1, 2, 5, 6]), np.array([0, 1, 2, 4, 6])
    >>> split = SplitReuse.of_blocks(ids, edges, 16, np.array([16, 16, 32, 32]), share=0.5)
    >>> split.hit_tokens_within(float("inf")).tolist()
    [0.0, 0.0, 8.0, 8.0]
    """

    touches: Touches
    offsets: Int[np.ndarray, "edge"]
    block_tokens: int
    prompt_tokens: Int[np.ndarray, "request"]
    share: float
    windows: Float[np.ndarray, "knot"]
    filled: Float[np.ndarray, "knot"]

    @classmethod
    def of_blocks(
        cls,
        ids: Int[np.ndarray, "block"],
        offsets: Int[np.ndarray, "edge"],
        block_tokens: int,
        prompt_tokens: Int[np.ndarray, "request"],
        *,
        share: float,
    ) -> SplitReuse:
        """Return the split reuse of requests in order of arrival; request i holds `ids[offsets[i]:offsets[i + 1]]`."""
        if not 0 < positive("share", share) <= 1:
            raise InputError(f"share is {share!r}; expected a share of the requests above 0 and at most 1")
        touches = touches_of(ids, np.asarray(offsets, dtype=np.int64))
        knots = np.unique(np.rint(np.geomspace(1, ids.size + 1, _BINS)).astype(np.int64))
        mass = np.zeros(knots.size)
        own = np.arange(ids.size)
        for again, before, chance in _earlier(touches.previous, share):
            mass += chance * np.bincount(np.searchsorted(knots, own[again] - before), minlength=knots.size)
        beyond = 1 - np.concatenate([[0.0], np.cumsum(mass)]) / ids.size
        edges = np.concatenate([[0.0], knots.astype(float)])
        grown = np.concatenate([[0.0], np.cumsum(np.diff(edges) * (beyond[1:] + beyond[:-1]) / 2)])
        prompts = np.asarray(prompt_tokens, dtype=np.int64)
        edge = np.asarray(offsets, dtype=np.int64)
        return cls(touches, edge, positive_int("block_tokens", block_tokens), prompts, share, edges, share * grown)

    def window(self, cache_blocks: float, *, extra_per_touch: float = 0.0) -> float:
        """Return T_C in touches of all requests; inf where the node's share of the trace never fills C blocks.

        `extra_per_touch` is memory that others take with every touch, blocks, as in `Reuse.window`.
        """
        blocks = nonnegative("cache_blocks", cache_blocks)
        extra = self.share * nonnegative("extra_per_touch", extra_per_touch)
        filled = self.filled + extra * self.windows
        return math.inf if blocks > filled[-1] else float(np.interp(blocks, filled, self.windows))

    def hit_tokens_within(self, window: float) -> Float[np.ndarray, "request"]:
        """Return the mean tokens that each request finds of what was touched at most T touches of all ago."""
        found = np.zeros(self.touches.begin.size)
        for again, before, chance in _earlier(self.touches.previous, self.share):
            found[again] += chance * (self.touches.begin[again] - before <= window)
        placed = np.empty_like(found)
        placed[self.touches.place] = found
        total = np.concatenate([[0.0], np.cumsum(placed)])
        tokens = (total[self.offsets[1:]] - total[self.offsets[:-1]]) * self.block_tokens
        return np.asarray(np.minimum(tokens, np.maximum(self.prompt_tokens - 1, 0)))


def _earlier(previous: Int[np.ndarray, "touch"], share: float) -> Iterator[tuple[np.ndarray, np.ndarray, float]]:
    """Yield, for i = 1, 2, ..., the touches with an i-th reference before them, where it stands, and p q^(i-1)."""
    again = np.flatnonzero(previous >= 0)
    before = previous[again]
    chance = share
    while again.size and chance > _RARE * share:
        yield again, before, chance
        goes_on = previous[before] >= 0
        again, before = again[goes_on], previous[before[goes_on]]
        chance *= 1 - share
