r"""The two contracts of a length law: one length, and a (prompt, output) pair.

Lengths are whole numbers of tokens. A law knows its moments exactly: by a closed form where it has one, by an
exact sum over its support where it has not, from the data where it is empirical. Nothing is estimated by drawing.

Every moment that the demand of `tileq_theory.demand` needs is a weighted sum of the survival function
S(k) = P(X > k) on the grid 0, s, 2s, ..., because ceil(X/s) > j exactly when X > j s:

    E[X]                     = sum_{k >= 0} S(k)
    E[X^2]                   = sum_{k >= 0} (2k + 1) S(k)
    E[ceil(X/s)]             = sum_{j >= 0} S(js)
    E[s m (m - 1)/2 + X]     = s sum_{j >= 1} j S(js) + E[X],   m = ceil(X/s)

so a law has to know two sums, `tail_sums`, and the rest follows.
"""

from __future__ import annotations

__all__ = ["ChunkMoments", "JointLaw", "LengthLaw"]

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, positive_int
from tileq_theory.lengths.checks import chunk_size


class LengthLaw(ABC):
    """Law of one length X in whole tokens, X >= 1."""

    __slots__ = ()

    @abstractmethod
    def survival(self, tokens: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k"]:
        """Return P(X > k) at each k."""

    @abstractmethod
    def tail_sums(self, step: int, first: int = 0, last: float = math.inf) -> tuple[float, float]:
        """Return the sums of S(j*step) and of j*S(j*step) over the whole j with first <= j < last."""

    @property
    @abstractmethod
    def longest(self) -> float:
        """Essential supremum of X, tokens (inf when unbounded)."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, size: int) -> Int[np.ndarray, "request"]:
        """Return `size` independent draws, int64."""

    @abstractmethod
    def quantile(self, probability: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
        """Return the left-continuous inverse of the distribution function at each probability in (0, 1]."""

    @abstractmethod
    def describe(self) -> str:
        """Return one short line for tables and provenance, e.g. 'uniform 10..1600 (mean 805)'."""

    @property
    def shortest(self) -> float:
        """Essential infimum of X, tokens."""
        return float(self.quantile(np.array([1e-300]))[0])

    def mean(self) -> float:
        """Return E[X], tokens."""
        return self.tail_sums(1)[0]

    def second_moment(self) -> float:
        """Return E[X^2], tokens squared."""
        zeroth, first = self.tail_sums(1)
        return 2 * first + zeroth

    def variance(self) -> float:
        """Return Var X, tokens squared (0 where rounding would make it negative)."""
        return max(self.second_moment() - self.mean() ** 2, 0.0)

    def chunks(self, chunk_tokens: int) -> float:
        """Return E[ceil(X/s)], the mean number of chunks of at most s tokens."""
        return self.tail_sums(chunk_size(chunk_tokens))[0]

    def chunk_memory(self, chunk_tokens: int) -> float:
        """Return E[s + 2s + ... + X] = E[s m (m - 1)/2 + X], m = ceil(X/s)."""
        step = chunk_size(chunk_tokens)
        return step * self.tail_sums(step)[1] + self.mean()

    def least_memory(self, chunk_tokens: int) -> float:
        """Return E[X + (X - s)^+ + (X - 2s)^+ + ...], the least KV that chunks of at most s tokens hold.

        The remainder goes first: X - (m - 1)s, ..., X - s, X; E[(X - a)^+] = sum over k >= a of S(k).
        """
        step = positive_int("chunk_tokens", chunk_tokens, math.inf)
        total, term, start = 0.0, math.inf, 0
        while start < self.longest and term > 1e-17 * total:
            term = self.tail_sums(1, first=start)[0]
            total += term
            start += step
        return total

    def zero_share(self) -> float:
        """Return P(X = 0); it separates E[max(X - 1, 0)] from E[X] - 1. Every law of this package has X >= 1."""
        return 0.0


@dataclass(frozen=True, slots=True)
class ChunkMoments:
    """The two moments of a request that depend on the chunk size, at many chunk sizes.

    Parameters
    ----------
    chunk_tokens
        Chunk sizes s, tokens.
    memory_iterations
        g at each s, KV tokens held summed over iterations.
    slot_iterations
        u at each s, iterations taken part in.
    """

    chunk_tokens: Int[np.ndarray, "chunk"]
    memory_iterations: Float[np.ndarray, "chunk"]
    slot_iterations: Float[np.ndarray, "chunk"]


class JointLaw(ABC):
    """Joint law of prompt and output lengths (P, O) of one request class, P >= 1 and O >= 1.

    Only one number of the demand is not a matter of the two marginals: E[P O], `mean_product`.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def prompt_law(self) -> LengthLaw:
        """Marginal law of the prompt length P."""

    @property
    @abstractmethod
    def output_law(self) -> LengthLaw:
        """Marginal law of the output length O."""

    @abstractmethod
    def mean_product(self) -> float:
        """Return E[P O], tokens squared."""

    @property
    @abstractmethod
    def longest_context(self) -> float:
        """Essential supremum of P + O, tokens (inf when unbounded)."""

    @abstractmethod
    def sample(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return (prompt, output) lengths of `size` independent requests, int64."""

    @abstractmethod
    def describe(self) -> str:
        """Return one short line for tables and provenance."""

    def correlation(self) -> float:
        """Return Pearson's correlation of P and O; 0 where either does not vary."""
        spread = self.prompt_law.variance() * self.output_law.variance()
        if spread <= 0:
            return 0.0
        covariance = self.mean_product() - self.prompt_law.mean() * self.output_law.mean()
        return max(-1.0, min(1.0, covariance / math.sqrt(spread)))

    def demand(
        self,
        *,
        chunk_tokens: int,
        convention: TokenConvention = "engine",
        counting: ChunkCounting = "whole",
    ) -> Demand:
        """Return the exact moments P, D, G, A, g, u of `tileq_theory.demand` for this law.

        Parameters
        ----------
        chunk_tokens
            s, tokens of a prefill chunk, a whole number of at least 1.
        convention
            "engine": O - 1 decode steps; "paper": O.
        counting
            "whole": ceil(P/s) chunks; "fluid": P/s, the form that Nie et al. print; "least": the remainder first.

        Raises
        ------
        InputError
            For a chunk, convention or counting outside its domain.
        """
        chunk = positive_int("chunk_tokens", chunk_tokens, math.inf)
        decode, kv_read = self._decode_moments(convention)
        prompt, prompt_square = self.prompt_law.mean(), self.prompt_law.second_moment()
        chunks, memory = self._chunk_moments(chunk, counting)
        return Demand(
            prefill_tokens=prompt,
            decode_tokens=decode,
            kv_read_tokens=kv_read,
            attention_pairs=(prompt_square + prompt) / 2,
            memory_iterations=kv_read + memory,
            slot_iterations=chunks + decode,
            longest_prompt_tokens=self.prompt_law.longest,
            longest_context_tokens=self.longest_context,
            shortest_context_tokens=self.prompt_law.shortest + 1,
        )

    def demand_by_chunk(
        self,
        chunk_tokens: Int[np.ndarray, "chunk"],
        *,
        convention: TokenConvention = "engine",
        counting: ChunkCounting = "whole",
    ) -> ChunkMoments:
        """Return g and u at every chunk size of an array; what does not depend on the chunk is computed once."""
        decode, kv_read = self._decode_moments(convention)
        sizes = [chunk_size(int(s)) for s in chunk_tokens]
        law, mean = self.prompt_law, self.prompt_law.mean()
        if counting == "whole":
            tails = [law.tail_sums(s) for s in sizes]
            pairs = [(chunks, s * later + mean) for s, (chunks, later) in zip(sizes, tails, strict=True)]
        else:
            pairs = [self._chunk_moments(s, counting) for s in sizes]
        moments = np.array(pairs, dtype=float).reshape(-1, 2)
        return ChunkMoments(np.array(sizes, dtype=np.int64), kv_read + moments[:, 1], decode + moments[:, 0])

    def _decode_moments(self, convention: TokenConvention) -> tuple[float, float]:
        """Return E[D] and G = E[D P + D (D + 1)/2]."""
        output, square, product = self.output_law.mean(), self.output_law.second_moment(), self.mean_product()
        if convention == "paper":
            return output, product + (square + output) / 2
        if convention == "engine":  # D = O - 1 and O >= 1: D (D + 1)/2 = (O^2 - O)/2
            decode = max(output - 1, 0.0)
            return decode, max(product - self.prompt_law.mean(), 0.0) + max(square - output, 0.0) / 2
        raise InputError(f"token convention is {convention!r}; expected 'engine' or 'paper'")

    def _chunk_moments(self, chunk: int, counting: ChunkCounting) -> tuple[float, float]:
        """Return E[m] and the KV held over the prefill iterations."""
        law = self.prompt_law
        if counting == "whole":
            return law.chunks(chunk), law.chunk_memory(chunk)
        if counting == "least":
            return law.chunks(chunk), law.least_memory(chunk)
        if counting == "fluid":
            return law.mean() / chunk, (law.mean() + law.second_moment() / chunk) / 2
        raise InputError(f"chunk counting is {counting!r}; expected 'whole', 'fluid' or 'least'")
