r"""What a trace's block identities say of a prefix cache: hits in the limit of an infinite cache, and of a finite one.

**Infinite cache.** Only first references miss: hit share 1 - (different blocks)/(references).

**Finite cache.** Let age be the number of touches since a block's last one (`references`). Of a window of T touches the
mean number of different blocks W(T) grows by the touches whose block does not come again inside it,

    W(T + 1) - W(T) = P(age > T),     W(T) = sum over u < T of P(age > u)

(Denning and Schwartz, Comm. ACM 15(3), 1972). A least-recently-used cache of C blocks holds the C different blocks
touched last; it reaches back T_C touches with W(T_C) = C, and what is younger hits:

    hit share = P(age <= T_C)

(Fagin, J. Comp. Syst. Sci. 14, 1977, for independent references, in the limit). T_C is Che's *characteristic time*:
for Poisson references of rate p_i the same two lines read C = sum_i (1 - exp(-p_i T)), hit = sum_i p_i (1 - exp(-p_i
T)), which is Che's approximation (`che`). The law of ages carries what that form cannot: blocks of a conversation are
popular for minutes and then never again, and first references miss for ever.

What is assumed: the trace is stationary on the clock of touches, and the number of different blocks in a window of T is
close to its mean. Neither independence nor Poisson arrivals. `lru_hit_share` is the exact answer for the trace as
recorded.
"""

from __future__ import annotations

__all__ = ["Reuse"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError, nonnegative, positive_int, row_of_numbers
from tileq_theory.prefix_cache.references import NEVER, touches_of
from tileq_theory.prefix_cache.stack import stack_distances


@dataclass(frozen=True, slots=True, eq=False)
class Reuse:
    """Ages of the block references of a trace.

    Parameters
    ----------
    age
        Touches since the chain up to this block was last held whole, in the trace's order; `NEVER` where never.
    distance
        Stack distance likewise: different blocks touched since.
    offsets
        Request i holds the references `offsets[i]:offsets[i + 1]`.
    block_tokens
        Tokens of a block.
    prompt_tokens
        Prompt length of each request.
    window_ages
        Ages at the touch of all references, ascending, without the first ones: the law behind W.

    Examples
    --------
    Three requests share a first block, two of them a second one:

    >>> reuse = Reuse.of_blocks(np.array([1, 2, 1, 2, 3, 1, 4]), np.array([0, 2, 5, 7]), 16, np.array([32, 48, 32]))
    >>> round(reuse.infinite_hit_share, 4), reuse.hit_tokens(None).tolist()
    (0.4286, [0, 32, 16])
    """

    age: Int[np.ndarray, "reference"]
    distance: Int[np.ndarray, "reference"]
    offsets: Int[np.ndarray, "edge"]
    block_tokens: int
    prompt_tokens: Int[np.ndarray, "request"]
    window_ages: Int[np.ndarray, "again"]

    @classmethod
    def of_blocks(
        cls,
        ids: Int[np.ndarray, "block"],
        offsets: Int[np.ndarray, "edge"],
        block_tokens: int,
        prompt_tokens: Int[np.ndarray, "request"],
    ) -> Reuse:
        """Return the reuse of requests in order of arrival; request i holds the chain `ids[offsets[i]:offsets[i + 1]]`.

        Raises
        ------
        InputError
            No blocks at all, arrays that do not belong together, or a chain that holds a block twice.
        """
        ids, offsets = row_of_numbers("ids", ids, whole=True), row_of_numbers("offsets", offsets, whole=True)
        prompt_tokens = row_of_numbers("prompt_tokens", prompt_tokens, whole=True)
        if ids.size == 0:
            raise InputError("no block identities given; expected at least one request with a block")
        if prompt_tokens.size != offsets.size - 1:
            raise InputError(
                f"{prompt_tokens.size} prompts and {offsets.size - 1} chains of blocks given; expected as many"
            )
        touches = touches_of(ids, offsets)
        size = positive_int("block_tokens", block_tokens)
        age, distance = np.empty(ids.size, np.int64), np.empty(ids.size, np.int64)
        age[touches.place] = touches.arrival_age
        distance[touches.place] = stack_distances(touches)
        own = touches.touch_age
        again = np.sort(own[own != NEVER])
        edges = np.asarray(offsets, dtype=np.int64)
        return cls(_along(age, edges), _along(distance, edges), edges, size, prompt_tokens.astype(np.int64), again)

    @property
    def references(self) -> int:
        """Number of block references."""
        return self.age.size

    @property
    def requests(self) -> int:
        """Number of requests."""
        return self.offsets.size - 1

    @property
    def infinite_hit_share(self) -> float:
        """Share of block references that a cache of any size would serve."""
        return float(np.mean(self.age != NEVER))

    def working_set(self, window: float) -> float:
        """Return W(T), the mean number of different blocks in a window of T touches (T may be a fraction)."""
        span = min(nonnegative("window", window), float(self.references))
        inside = self.window_ages[: np.searchsorted(self.window_ages, span)]
        # the sum of P(age > u) over whole u < T, and its linear continuation between whole T
        return span - float((span - inside).sum()) / self.references

    def window(self, cache_blocks: float, *, extra_per_touch: float = 0.0) -> float:
        """Return the characteristic time T_C, touches: W(T) + extra T = C; inf where the trace never fills C blocks.

        `extra_per_touch` is memory that others take with every touch (output tokens kept beside the prompts), blocks.
        """
        blocks, extra = nonnegative("cache_blocks", cache_blocks), nonnegative("extra_per_touch", extra_per_touch)
        knots = np.concatenate([[0.0], np.unique(self.window_ages).astype(float), [float(self.references)]])
        at = np.searchsorted(self.window_ages, knots)
        sums = np.concatenate([[0.0], np.cumsum(self.window_ages, dtype=float)])[at]
        filled = knots - (knots * at - sums) / self.references + extra * knots
        if blocks > filled[-1]:
            return float("inf")
        return float(np.interp(blocks, filled, knots))

    def hit_share(self, cache_blocks: float) -> float:
        """Return the share of block references that a cache of C blocks serves, by the working-set law."""
        return float(np.mean(self._within(cache_blocks)))

    def hit_blocks(self, cache_blocks: float | None = None) -> Int[np.ndarray, "request"]:
        """Return the leading blocks of each request that are found (None: in an infinite cache)."""
        return self._per_request(self.age != NEVER if cache_blocks is None else self._within(cache_blocks))

    def hit_tokens(self, cache_blocks: float | None = None) -> Int[np.ndarray, "request"]:
        """Return the prompt tokens of each request that are found; the last token is always computed."""
        return self._tokens(self.hit_blocks(cache_blocks))

    def hit_tokens_within(self, window: float) -> Int[np.ndarray, "request"]:
        """Return the tokens of each request whose blocks were touched at most T touches ago."""
        return self._tokens(self._per_request(self.age <= min(window, NEVER - 1)))

    def shared_tokens(self, window: float) -> Float[np.ndarray, "request"]:
        """Return the tokens of each request that others of a window of T touches hold too, counted to hold them once.

        The requests of a window of T touches hold W(T) different blocks, T - W(T) fewer than they name. Of a block of
        age a the part (1 - a/T)^+ is saved, the share of places in the window that have its last touch before them in
        it.
        """
        if window <= 0:
            return np.zeros(self.requests)
        saved = np.maximum(1.0 - self.age / window, 0.0)
        total = np.concatenate([[0.0], np.cumsum(saved)])
        return np.asarray((total[self.offsets[1:]] - total[self.offsets[:-1]]) * self.block_tokens)

    def lru_hit_share(self, cache_blocks: int) -> float:
        """Return the exact share of references that a least-recently-used cache of C blocks serves on this trace."""
        return float(np.mean(self.distance < cache_blocks))

    def lru_hit_blocks(self, cache_blocks: int) -> Int[np.ndarray, "request"]:
        """Return the leading blocks of each request that such a cache holds at its arrival, exactly."""
        return self._per_request(self.distance < cache_blocks)

    def curve(self, cache_blocks: Float[np.ndarray, "size"]) -> Float[np.ndarray, "size"]:
        """Return the hit share at many cache sizes."""
        return np.array([self.hit_share(float(blocks)) for blocks in cache_blocks])

    def _within(self, cache_blocks: float) -> np.ndarray:
        inside: np.ndarray = self.age <= min(self.window(cache_blocks), NEVER - 1)
        return inside

    def _per_request(self, hit: np.ndarray) -> np.ndarray:
        # hits are a prefix of each chain, so that counting them is enough
        total = np.concatenate([[0], np.cumsum(hit, dtype=np.int64)])
        found: np.ndarray = total[self.offsets[1:]] - total[self.offsets[:-1]]
        return found

    def _tokens(self, blocks: np.ndarray) -> np.ndarray:
        tokens: np.ndarray = np.minimum(blocks * self.block_tokens, np.maximum(self.prompt_tokens - 1, 0))
        return tokens


def _along(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the largest value so far along each chain: a block is of use only where all before it are there."""
    rank, row = np.unique(values, return_inverse=True)
    step = rank.size
    shifted = row + step * np.repeat(np.arange(edges.size - 1), np.diff(edges))
    found: np.ndarray = rank[
        np.maximum.accumulate(shifted) - step * np.repeat(np.arange(edges.size - 1), np.diff(edges))
    ]
    return found
