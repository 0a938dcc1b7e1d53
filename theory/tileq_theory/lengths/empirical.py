"""Lengths as they were observed."""

from __future__ import annotations

__all__ = ["Empirical"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.lengths.blocks import BlockLaw, UniformBlocks
from tileq_theory.lengths.checks import Numbers, weights_of, whole_numbers


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Empirical(BlockLaw):
    """P(X = k) = (weight of the rows that hold k) / (weight of all rows).

    Equal values are counted once, so that moments of a million rows cost no more than those of its different lengths.

    Parameters
    ----------
    values
        Observed lengths, tokens, whole numbers of at least 1, one a row.
    weights
        Weight of each row, 0 or more; equal when left out.

    Raises
    ------
    InputError
        Naming the row that is not a whole number of at least 1, or a weight below 0.

    Examples
    --------
    >>> Empirical([100, 300, 300, 100]).mean()
    200.0
    """

    values: Int[np.ndarray, "value"]
    probabilities: Float[np.ndarray, "value"]

    def __init__(self, values: Numbers, weights: Numbers | None = None) -> None:
        rows = whole_numbers("values", values)
        share = None if weights is None else weights_of("weights", weights, rows.size)
        if rows.max() < 8 * rows.size + 4096:  # counting needs no sort
            unique, at = np.arange(int(rows.max()) + 1), rows
        else:
            unique, at = np.unique(rows, return_inverse=True)
        counts = np.bincount(at, share, unique.size)
        keep = counts > 0
        object.__setattr__(self, "values", unique[keep])
        object.__setattr__(self, "probabilities", counts[keep] / counts.sum())

    @property
    def blocks(self) -> UniformBlocks:
        """One block of one value for each different length."""
        return UniformBlocks(self.values, self.values, self.probabilities)

    def describe(self) -> str:
        """Return one short line."""
        return f"empirical, {self.values.size} different lengths (mean {self.mean():.6g})"
