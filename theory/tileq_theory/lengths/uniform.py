"""Whole numbers of a range, all equally likely."""

from __future__ import annotations

__all__ = ["Uniform"]

from dataclasses import dataclass

import numpy as np

from tileq_theory.errors import InputError
from tileq_theory.lengths.blocks import BlockLaw, UniformBlocks
from tileq_theory.lengths.checks import token_count


@dataclass(frozen=True, slots=True)
class Uniform(BlockLaw):
    """P(X = k) = 1/(high - low + 1) for k = low, ..., high, both ends included.

    Parameters
    ----------
    low, high
        Ends of the range, tokens, whole numbers with 1 <= low <= high.

    Examples
    --------
    >>> Uniform(10, 1600).mean()
    805.0
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", token_count("low", self.low))
        object.__setattr__(self, "high", token_count("high", self.high))
        if self.low > self.high:
            raise InputError(f"uniform range is {self.low}..{self.high}; expected low <= high")

    @property
    def blocks(self) -> UniformBlocks:
        """One block."""
        return UniformBlocks(np.array([self.low]), np.array([self.high]), np.ones(1))

    def describe(self) -> str:
        """Return one short line."""
        return f"uniform {self.low}..{self.high} (mean {self.mean():g})"
