r"""The two contracts of a length law: one length, and a (prompt, output) pair.

Lengths are whole numbers of tokens. A law knows its moments exactly: by a closed form where it has one, by an
exact sum over its support where it has not, from the data where it is empirical. Nothing is estimated by drawing.
"""

from __future__ import annotations

__all__ = ["JointLaw", "LengthLaw"]

from abc import ABC, abstractmethod

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand


class LengthLaw(ABC):
    """Law of one length X in whole tokens, X >= 1 (0 only where a law says so)."""

    @abstractmethod
    def mean(self) -> float:
        """Return E[X], tokens."""

    @abstractmethod
    def second_moment(self) -> float:
        """Return E[X^2], tokens squared."""

    @abstractmethod
    def chunks(self, chunk_tokens: int) -> float:
        """Return E[ceil(X/s)], the mean number of chunks of at most s tokens."""

    @abstractmethod
    def chunk_memory(self, chunk_tokens: int) -> float:
        """Return E[s + 2s + ... + X] = E[s m (m - 1)/2 + X], m = ceil(X/s)."""

    @abstractmethod
    def zero_share(self) -> float:
        """Return P(X = 0); it separates E[max(X - 1, 0)] from E[X] - 1."""

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


class JointLaw(ABC):
    """Joint law of prompt and output lengths (P, O) of one request class."""

    @abstractmethod
    def demand(
        self,
        *,
        chunk_tokens: int,
        convention: TokenConvention = "engine",
        counting: ChunkCounting = "whole",
    ) -> Demand:
        """Return the exact moments P, D, G, A, g, u of `tileq_theory.demand` for this law."""

    @abstractmethod
    def sample(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return (prompt, output) lengths of `size` independent requests, int64."""

    @abstractmethod
    def describe(self) -> str:
        """Return one short line for tables and provenance."""
