r"""Finite laws as mixtures of integer uniforms: the common core of the fixed, uniform, empirical and tabulated laws.

A block is the uniform law on the whole numbers low..high. With N = high - low + 1 its moments are

    E[X] = (low + high)/2,    E[X^2] = E[X]^2 + (N^2 - 1)/12

and its chunk counts m = ceil(X/s) are again uniform except in the first and the last chunk, so E[m] and
E[m (m - 1)/2] are sums of three positive terms, without cancellation whatever the size of the numbers.
"""

from __future__ import annotations

__all__ = ["BlockLaw", "UniformBlocks"]

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.lengths.base import LengthLaw
from tileq_theory.lengths.checks import chunk_size, weighted_sum


@dataclass(frozen=True, slots=True, eq=False)
class UniformBlocks:
    """Mixture of uniform laws on low..high (whole numbers), with weights that sum to 1; blocks may overlap."""

    low: Int[np.ndarray, "block"]
    high: Int[np.ndarray, "block"]
    weight: Float[np.ndarray, "block"]

    def size(self) -> Float[np.ndarray, "block"]:
        """Return the number of values of each block."""
        return np.asarray(self.high - self.low + 1, dtype=float)

    def power_moments(self) -> tuple[float, float]:
        """Return E[X] and E[X^2]."""
        centre = (self.low.astype(float) + self.high) / 2
        square = centre**2 + (self.size() ** 2 - 1) / 12
        return weighted_sum(self.weight, centre), weighted_sum(self.weight, square)

    def chunk_moments(self, step: int) -> tuple[float, float]:
        """Return E[m] and E[m (m - 1)/2] for m = ceil(X/step)."""
        first = -(-self.low // step)
        last = -(-self.high // step)
        in_first = np.minimum(first * step, self.high) - self.low + 1.0
        in_last = np.where(last > first, self.high - (last - 1.0) * step, 0.0)
        middle = np.maximum(last - first - 1.0, 0.0)  # whole chunks between, `step` values each
        centre = (first + last) / 2.0
        a, b = first.astype(float), last.astype(float)
        count = in_first * a + step * middle * centre + in_last * b
        pairs = (
            in_first * a * (a - 1)
            + step * middle * (centre * (centre - 1) + np.maximum(middle**2 - 1, 0.0) / 12)
            + in_last * b * (b - 1)
        ) / 2
        share = self.weight / self.size()
        return weighted_sum(share, count), weighted_sum(share, pairs)

    def clipped(self, low: int, high: float) -> UniformBlocks:
        """Return the law of min(max(X, low), high)."""
        top = int(min(high, float(max(self.high.max(), low))))
        share = self.weight / self.size()
        under = np.clip(low - self.low, 0, self.high - self.low + 1)
        over = np.clip(self.high - top, 0, self.high - self.low + 1)
        inside = (self.high - self.low + 1) - under - over
        keep = inside > 0
        atoms = [(low, float((share * under).sum())), (top, float((share * over).sum()))]
        atoms = [(value, weight) for value, weight in atoms if weight > 0]
        values = np.array([value for value, _ in atoms], dtype=np.int64)
        weights = np.array([weight for _, weight in atoms], dtype=float)
        return UniformBlocks(
            np.concatenate([np.maximum(self.low[keep], low), values]),
            np.concatenate([np.minimum(self.high[keep], top), values]),
            np.concatenate([(share * inside)[keep], weights]),
        )

    def steps(self) -> tuple[Float[np.ndarray, "edge"], Float[np.ndarray, "edge"]]:
        """Return edges e_0 < e_1 < ... and P(X < e_i): the distribution function is linear on the integers between."""
        edges = np.unique(np.concatenate([self.low, self.high + 1]))
        start, stop = np.searchsorted(edges, self.low), np.searchsorted(edges, self.high + 1)
        single = stop == start + 1
        mass = np.bincount(start[single], self.weight[single], edges.size)
        density = self.weight / self.size()
        slope = np.bincount(start[~single], density[~single], edges.size)
        slope -= np.bincount(stop[~single], density[~single], edges.size)
        widths = np.diff(edges, append=edges[-1] + 1)
        mass += np.maximum(np.cumsum(slope), 0.0) * widths
        mass[-1] = 0.0
        below = np.concatenate([[0.0], np.cumsum(mass)[:-1]])
        return edges.astype(float), below / below[-1]


class BlockLaw(LengthLaw):
    """A law that is a finite mixture of integer uniforms; its members only say which."""

    __slots__ = ()

    @property
    @abstractmethod
    def blocks(self) -> UniformBlocks:
        """The law as blocks."""

    @property
    def longest(self) -> float:
        """Essential supremum of X, tokens."""
        return float(self.blocks.high[self.blocks.weight > 0].max())

    @property
    def shortest(self) -> float:
        """Essential infimum of X, tokens."""
        return float(self.blocks.low[self.blocks.weight > 0].min())

    def mean(self) -> float:
        """Return E[X], tokens."""
        return self.blocks.power_moments()[0]

    def second_moment(self) -> float:
        """Return E[X^2], tokens squared."""
        return self.blocks.power_moments()[1]

    def chunk_memory(self, chunk_tokens: int) -> float:
        """Return E[s + 2s + ... + X]."""
        step = chunk_size(chunk_tokens)
        return step * self.blocks.chunk_moments(step)[1] + self.mean()

    def tail_sums(self, step: int, first: int = 0, last: float = math.inf) -> tuple[float, float]:
        """Return the sums of S(j*step) and j*S(j*step): the chunk moments of X clipped to first*step..last*step."""
        blocks = self.blocks
        if first > 0 or last < math.inf:
            blocks = blocks.clipped(first * step, last * step)
        count, pairs = blocks.chunk_moments(step)
        return count - first, pairs - first * (first - 1) / 2

    def survival(self, tokens: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return P(X > k) at each k."""
        edges, below = self.blocks.steps()
        return np.asarray(1 - np.interp(np.floor(tokens) + 1, edges, below))

    def quantile(self, probability: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
        """Return the smallest k with P(X <= k) >= p, to one rounding of the distribution function."""
        edges, below = self.blocks.steps()
        level = np.maximum(probability - 4e-16, 0.0)
        at = np.clip(np.searchsorted(below, level, side="left") - 1, 0, edges.size - 2)
        width, mass = edges[at + 1] - edges[at], below[at + 1] - below[at]
        part = np.divide(level - below[at], mass, out=np.zeros_like(level), where=mass > 0)
        count = np.clip(np.ceil(part * width * (1 - 4e-16)), 1, width)
        return np.asarray(edges[at] + count - 1)

    def sample(self, rng: np.random.Generator, size: int) -> Int[np.ndarray, "request"]:
        """Return `size` independent draws, int64."""
        blocks = self.blocks
        if blocks.weight.size == 1:
            return rng.integers(blocks.low[0], blocks.high[0], size, dtype=np.int64, endpoint=True)
        at = rng.choice(blocks.weight.size, size, p=blocks.weight / blocks.weight.sum())
        return rng.integers(blocks.low[at], blocks.high[at], size, dtype=np.int64, endpoint=True)
