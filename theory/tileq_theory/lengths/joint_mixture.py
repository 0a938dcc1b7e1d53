"""Mixtures of joint laws."""

from __future__ import annotations

__all__ = ["JointMixture"]

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tileq_theory.errors import InputError
from tileq_theory.lengths.base import JointLaw, LengthLaw
from tileq_theory.lengths.checks import shares_of
from tileq_theory.lengths.mixture import mixed


@dataclass(frozen=True, slots=True, init=False)
class JointMixture(JointLaw):
    """Law of a pair drawn from joint law i with probability shares[i].

    A mixture of independent pairs is correlated; with enough parts it comes as close as wanted to any joint law,
    which is how the named workloads are stored.

    Parameters
    ----------
    laws
        The joint laws, at least one.
    shares
        Their shares, 0 or more, not all 0; scaled to sum 1.

    Raises
    ------
    InputError
        For another number of shares than of laws, or shares outside their domain.

    Examples
    --------
    >>> from tileq_theory.lengths import Fixed, Independent
    >>> short, long = Independent(Fixed(10), Fixed(1)), Independent(Fixed(30), Fixed(3))
    >>> JointMixture([short, long], [1, 1]).mean_product()
    50.0
    """

    laws: tuple[JointLaw, ...]
    shares: tuple[float, ...]
    _prompt: LengthLaw
    _output: LengthLaw

    def __init__(self, laws: Sequence[JointLaw], shares: Sequence[float]) -> None:
        if not laws:
            raise InputError("a mixture of no laws was given; expected at least one")
        weights = shares_of(shares, len(laws))
        present = [(law, share) for law, share in zip(laws, weights, strict=True) if share > 0]
        kept = [law for law, _ in present]
        scaled = [share for _, share in present]
        object.__setattr__(self, "laws", tuple(kept))
        object.__setattr__(self, "shares", tuple(scaled))
        object.__setattr__(self, "_prompt", mixed([law.prompt_law for law in kept], scaled))
        object.__setattr__(self, "_output", mixed([law.output_law for law in kept], scaled))

    @property
    def prompt_law(self) -> LengthLaw:
        """Marginal law of the prompt length."""
        return self._prompt

    @property
    def output_law(self) -> LengthLaw:
        """Marginal law of the output length."""
        return self._output

    def mean_product(self) -> float:
        """Return E[P O], the mean of the parts' own."""
        return math.fsum(share * law.mean_product() for share, law in zip(self.shares, self.laws, strict=True))

    @property
    def longest_context(self) -> float:
        """The longest of the parts' longest contexts."""
        return max(law.longest_context for law in self.laws)

    def sample(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return (prompt, output) lengths of `size` independent requests, int64."""
        at = rng.choice(len(self.laws), size, p=np.array(self.shares) / sum(self.shares))
        prompts, outputs = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        for i, law in enumerate(self.laws):
            chosen = at == i
            prompts[chosen], outputs[chosen] = law.sample(rng, int(chosen.sum()))
        return prompts, outputs

    def describe(self) -> str:
        """Return one short line."""
        means = f"mean prompt {self._prompt.mean():.6g}, output {self._output.mean():.6g}"
        return f"mixture of {len(self.laws)} parts ({means}, correlation {self.correlation():.3f})"
