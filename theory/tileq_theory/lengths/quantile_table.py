r"""A law given by a few of its quantiles."""

from __future__ import annotations

__all__ = ["QuantileTable"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError
from tileq_theory.lengths.blocks import BlockLaw, UniformBlocks
from tileq_theory.lengths.checks import LARGEST_TOKENS, Numbers, vector


@dataclass(frozen=True, slots=True, eq=False, init=False)
class QuantileTable(BlockLaw):
    r"""X = nearest whole number of Q(U), Q piecewise linear through the points (p_i, t_i), U uniform on (0, 1).

    Between two points Q(U) is uniform on (t_i, t_{i+1}), so its rounding is an atom at either end and an integer
    uniform between: the moments are closed forms, exact for the table.

    Parameters
    ----------
    probabilities
        p_0 = 0 < p_1 < ... < p_n = 1.
    tokens
        t_0 <= t_1 <= ... <= t_n, tokens, at least 1; fractions are allowed (a mean can be met exactly with them).

    Raises
    ------
    InputError
        When the probabilities do not rise from 0 to 1, or the tokens fall or are below 1.

    Examples
    --------
    >>> QuantileTable([0, 0.5, 1], [100, 200, 1000]).mean()
    375.0
    """

    probabilities: Float[np.ndarray, "knot"]
    tokens: Float[np.ndarray, "knot"]
    _blocks: UniformBlocks

    def __init__(self, probabilities: Numbers, tokens: Numbers) -> None:
        p, t = vector("probabilities", probabilities), vector("tokens", tokens)
        if p.size != t.size or p.size < 2:
            raise InputError(f"{p.size} probabilities and {t.size} tokens given; expected as many, at least 2")
        if p[0] != 0 or p[-1] != 1 or (np.diff(p) <= 0).any():
            raise InputError("probabilities of a quantile table must rise strictly from 0 to 1")
        if t[0] < 1 or t[-1] > LARGEST_TOKENS or (np.diff(t) < 0).any():
            raise InputError("tokens of a quantile table must be 1 or more and never fall")
        object.__setattr__(self, "probabilities", p)
        object.__setattr__(self, "tokens", t)
        object.__setattr__(self, "_blocks", self._split())

    @property
    def blocks(self) -> UniformBlocks:
        """Two atoms and one integer uniform for each pair of neighbouring points."""
        return self._blocks

    def _split(self) -> UniformBlocks:
        """Return the blocks: the law of the rounding of a uniform variable on each (t_i, t_{i+1})."""
        weight = np.diff(self.probabilities)
        start, stop = self.tokens[:-1], self.tokens[1:]
        low, high = np.floor(start + 0.5), np.floor(stop + 0.5)
        width = stop - start
        whole = (low == high) | (width == 0)
        scale = np.divide(weight, width, out=np.zeros_like(weight), where=~whole)
        at_low = np.where(whole, weight, scale * (low + 0.5 - start))
        at_high = np.where(whole, 0.0, scale * (stop - high + 0.5))
        between = np.where(whole, 0.0, scale * np.maximum(high - low - 1, 0))
        lows = np.concatenate([low, high, low + 1]).astype(np.int64)
        highs = np.concatenate([low, high, high - 1]).astype(np.int64)
        weights = np.concatenate([at_low, at_high, between])
        keep = weights > 0
        return UniformBlocks(lows[keep], highs[keep], weights[keep])

    def describe(self) -> str:
        """Return one short line."""
        return f"quantile table of {self.tokens.size} points (mean {self.mean():.6g})"
