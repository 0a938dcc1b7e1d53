"""Lengths that are whole multiples of a base, e.g. of a tile or a cache block."""

from __future__ import annotations

__all__ = ["MultipleOf"]

from dataclasses import dataclass, field

import numpy as np

from tileq_theory.errors import InputError
from tileq_theory.lengths.base import LengthLaw
from tileq_theory.lengths.blocks import BlockLaw, UniformBlocks
from tileq_theory.lengths.checks import LARGEST_TOKENS, token_count

LARGEST_FACTOR = 2**20


@dataclass(frozen=True, slots=True)
class MultipleOf(BlockLaw):
    """X = base * Y, with Y of a bounded law.

    Parameters
    ----------
    base
        Tokens of one unit, a whole number of at least 1.
    law
        Law of the number of units Y, at most 2^20.

    Raises
    ------
    InputError
        When `law` is unbounded or longer than 2^20 units; censor it first (`cap=`, `high=` or `Clipped`).

    Examples
    --------
    RAD's reference prompts, 128 * U{1..8} (arXiv 2508.01002):

    >>> from tileq_theory.lengths import Uniform
    >>> MultipleOf(128, Uniform(1, 8)).mean()
    576.0
    """

    base: int
    law: LengthLaw
    _blocks: UniformBlocks = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", token_count("base", self.base))
        if self.law.longest > LARGEST_FACTOR:
            raise InputError(f"law of a multiple reaches {self.law.longest:g}; expected at most {LARGEST_FACTOR}")
        if self.base * self.law.longest > LARGEST_TOKENS:
            raise InputError(f"{self.base} x {self.law.longest:g} tokens; expected at most 2^52")
        units = np.arange(1, int(self.law.longest) + 1)
        survival = self.law.survival(np.arange(int(self.law.longest) + 1, dtype=float))
        mass = np.maximum(survival[:-1] - survival[1:], 0.0)
        keep = mass > 0
        values = (self.base * units)[keep]
        object.__setattr__(self, "_blocks", UniformBlocks(values, values, mass[keep] / mass.sum()))

    @property
    def blocks(self) -> UniformBlocks:
        """One block of one value for each number of units."""
        return self._blocks

    def describe(self) -> str:
        """Return one short line."""
        return f"{self.base} x ({self.law.describe()})"
