"""One length for every request."""

from __future__ import annotations

__all__ = ["Fixed"]

from dataclasses import dataclass

import numpy as np

from tileq_theory.lengths.blocks import BlockLaw, UniformBlocks
from tileq_theory.lengths.checks import token_count


@dataclass(frozen=True, slots=True)
class Fixed(BlockLaw):
    """X = tokens.

    Parameters
    ----------
    tokens
        The length, a whole number of at least 1.

    Examples
    --------
    >>> Fixed(512).chunks(128)
    4.0
    """

    tokens: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", token_count("tokens", self.tokens))

    @property
    def blocks(self) -> UniformBlocks:
        """One block of one value."""
        at = np.array([self.tokens], dtype=np.int64)
        return UniformBlocks(at, at, np.ones(1))

    def describe(self) -> str:
        """Return one short line."""
        return f"fixed {self.tokens}"
