"""Mixtures of length laws."""

from __future__ import annotations

__all__ = ["MixedBlocks", "MixtureLaw", "mixed", "smallest_reaching"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError
from tileq_theory.lengths.base import LengthLaw
from tileq_theory.lengths.blocks import BlockLaw, UniformBlocks
from tileq_theory.lengths.checks import shares_of


def smallest_reaching(
    survival: Callable[[Float[np.ndarray, "p"]], Float[np.ndarray, "p"]],
    probability: Float[np.ndarray, "p"],
    low: Float[np.ndarray, "p"],
    high: Float[np.ndarray, "p"],
) -> Float[np.ndarray, "p"]:
    """Return the smallest whole k in [low, high] with 1 - S(k) >= p (high where none), by bisection."""
    low, high = low - 1.0, high.copy()  # 1 - S(low) < p <= 1 - S(high)
    while bool((high - low > 1).any()):
        middle = np.floor((low + high) / 2)
        reached = survival(middle) <= 1 - probability
        open_ = high - low > 1
        high = np.where(open_ & reached, middle, high)
        low = np.where(open_ & ~reached, middle, low)
    return high


@dataclass(frozen=True, slots=True, init=False)
class MixtureLaw(LengthLaw):
    """Law of a length drawn from law i with probability shares[i]; its moments are the mean of theirs.

    Parameters
    ----------
    laws
        The laws, at least one.
    shares
        Their shares, 0 or more, not all 0; scaled to sum 1.

    Raises
    ------
    InputError
        For another number of shares than of laws, or shares outside their domain.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed
    >>> MixtureLaw([Fixed(100), Fixed(300)], [3, 1]).mean()
    150.0
    """

    laws: tuple[LengthLaw, ...]
    shares: tuple[float, ...]

    def __init__(self, laws: Sequence[LengthLaw], shares: Sequence[float]) -> None:
        if not laws:
            raise InputError("a mixture of no laws was given; expected at least one")
        weights = shares_of(shares, len(laws))
        # a law of share 0 must not make its longest length the mixture's
        present = [(law, share) for law, share in zip(laws, weights, strict=True) if share > 0]
        object.__setattr__(self, "laws", tuple(law for law, _ in present))
        object.__setattr__(self, "shares", tuple(share for _, share in present))

    def _mean_of(self, values: Sequence[float]) -> float:
        """Return sum share_i value_i, exactly rounded: the order of the laws does not matter."""
        return math.fsum(share * value for share, value in zip(self.shares, values, strict=True))

    def mean(self) -> float:
        """Return E[X], tokens."""
        return self._mean_of([law.mean() for law in self.laws])

    def second_moment(self) -> float:
        """Return E[X^2], tokens squared."""
        return self._mean_of([law.second_moment() for law in self.laws])

    def chunks(self, chunk_tokens: int) -> float:
        """Return E[ceil(X/s)]."""
        return self._mean_of([law.chunks(chunk_tokens) for law in self.laws])

    def chunk_memory(self, chunk_tokens: int) -> float:
        """Return E[s + 2s + ... + X]."""
        return self._mean_of([law.chunk_memory(chunk_tokens) for law in self.laws])

    def zero_share(self) -> float:
        """Return P(X = 0)."""
        return self._mean_of([law.zero_share() for law in self.laws])

    def tail_sums(self, step: int, first: int = 0, last: float = math.inf) -> tuple[float, float]:
        """Return the shares' mean of the laws' tail sums."""
        sums = [law.tail_sums(step, first, last) for law in self.laws]
        return self._mean_of([s[0] for s in sums]), self._mean_of([s[1] for s in sums])

    def survival(self, tokens: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return P(X > k) at each k."""
        return np.asarray(sum(share * law.survival(tokens) for share, law in zip(self.shares, self.laws, strict=True)))

    @property
    def longest(self) -> float:
        """The longest of the laws' longest lengths."""
        return max(law.longest for law in self.laws)

    @property
    def shortest(self) -> float:
        """The shortest of the laws' shortest lengths."""
        return min(law.shortest for law in self.laws)

    def quantile(self, probability: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
        """Return the smallest k with P(X <= k) >= p; it lies between the laws' own."""
        own = np.array([law.quantile(probability) for law in self.laws])
        low, high = own.min(axis=0), own.max(axis=0)
        bounded = np.isfinite(high)
        result = np.asarray(high, dtype=float).copy()
        result[bounded] = smallest_reaching(self.survival, probability[bounded], low[bounded], high[bounded])
        return result

    def sample(self, rng: np.random.Generator, size: int) -> Int[np.ndarray, "request"]:
        """Return `size` independent draws, int64."""
        at = rng.choice(len(self.laws), size, p=np.array(self.shares) / sum(self.shares))
        drawn = np.empty(size, dtype=np.int64)
        for i, law in enumerate(self.laws):
            chosen = at == i
            drawn[chosen] = law.sample(rng, int(chosen.sum()))
        return drawn

    def describe(self) -> str:
        """Return one short line."""
        return f"mixture of {len(self.laws)} laws (mean {self.mean():.6g})"


@dataclass(frozen=True, slots=True, eq=False)
class MixedBlocks(BlockLaw):
    """A mixture of finite laws, laid out flat: the same law as `MixtureLaw`, its moments in one pass.

    Parameters
    ----------
    flat
        The blocks of all parts, their weights multiplied by the shares.
    parts
        Number of laws mixed.
    """

    flat: UniformBlocks
    parts: int

    @property
    def blocks(self) -> UniformBlocks:
        """The blocks of all parts."""
        return self.flat

    def describe(self) -> str:
        """Return one short line."""
        return f"mixture of {self.parts} laws (mean {self.mean():.6g})"


def mixed(laws: Sequence[LengthLaw], shares: Sequence[float]) -> LengthLaw:
    """Return the mixture of the laws: flat where all are finite, `MixtureLaw` otherwise."""
    mixture = MixtureLaw(laws, shares)
    finite = [law for law in mixture.laws if isinstance(law, BlockLaw)]
    if len(finite) < len(mixture.laws):
        return mixture
    blocks = [law.blocks for law in finite]
    weights = [share * b.weight for share, b in zip(mixture.shares, blocks, strict=True)]
    flat = UniformBlocks(
        np.concatenate([b.low for b in blocks]),
        np.concatenate([b.high for b in blocks]),
        np.concatenate(weights),
    )
    return MixedBlocks(flat, len(finite))
