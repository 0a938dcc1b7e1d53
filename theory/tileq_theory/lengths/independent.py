"""Prompt and output drawn independently."""

from __future__ import annotations

__all__ = ["Independent"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tileq_theory.errors import InputError
from tileq_theory.lengths.base import JointLaw, LengthLaw


@dataclass(frozen=True, slots=True)
class Independent(JointLaw):
    """(P, O) with P and O independent: E[P O] = E[P] E[O].

    Parameters
    ----------
    prompt, output
        Laws of the two lengths, both of at least 1 token.

    Examples
    --------
    Nie et al.'s 1:1 workload (arXiv 2605.04595), E[g] with chunks of 512 tokens:

    >>> from tileq_theory.lengths import Uniform
    >>> law = Independent(Uniform(10, 1600), Uniform(10, 1600))
    >>> round(law.demand(chunk_tokens=512, convention="paper", counting="fluid").memory_iterations, 3)
    1079151.333
    """

    prompt: LengthLaw
    output: LengthLaw

    def __post_init__(self) -> None:
        for name in ("prompt", "output"):
            if getattr(self, name).zero_share() > 0:
                raise InputError(f"{name} law allows a length of 0; expected lengths of at least 1 token")

    @property
    def prompt_law(self) -> LengthLaw:
        """Marginal law of the prompt length."""
        return self.prompt

    @property
    def output_law(self) -> LengthLaw:
        """Marginal law of the output length."""
        return self.output

    def mean_product(self) -> float:
        """Return E[P] E[O]."""
        return self.prompt.mean() * self.output.mean()

    @property
    def longest_context(self) -> float:
        """Sum of the two longest lengths."""
        return self.prompt.longest + self.output.longest

    def sample(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return (prompt, output) lengths of `size` independent requests, int64."""
        return self.prompt.sample(rng, size), self.output.sample(rng, size)

    def describe(self) -> str:
        """Return one short line."""
        return f"prompt {self.prompt.describe()}; output {self.output.describe()}"
