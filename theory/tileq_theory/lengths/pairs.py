"""Pairs of lengths as a trace recorded them."""

from __future__ import annotations

__all__ = ["Pairs"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError
from tileq_theory.lengths.base import JointLaw, LengthLaw
from tileq_theory.lengths.checks import Numbers, weights_of, whole_numbers
from tileq_theory.lengths.empirical import Empirical


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Pairs(JointLaw):
    """The law of a row drawn from a trace: correlated pairs stay pairs.

    What does not depend on a chunk size is computed once, when the pairs are given; a chunk size then costs no more
    than the different prompt lengths.

    Parameters
    ----------
    prompts, outputs
        Lengths of each request, tokens, whole numbers of at least 1, as many of one as of the other.
    weights
        Weight of each row, 0 or more; equal when left out.

    Raises
    ------
    InputError
        Naming the first row that does not fit.

    Examples
    --------
    >>> Pairs([100, 300], [10, 30]).mean_product()
    5000.0
    """

    prompts: Int[np.ndarray, "row"]
    outputs: Int[np.ndarray, "row"]
    weights: Float[np.ndarray, "row"] | None
    _prompt: Empirical
    _output: Empirical
    _product: float
    _context: float

    def __init__(self, prompts: Numbers, outputs: Numbers, weights: Numbers | None = None) -> None:
        p, o = whole_numbers("prompts", prompts), whole_numbers("outputs", outputs)
        if p.size != o.size:
            raise InputError(f"{p.size} prompts and {o.size} outputs given; expected as many of one as of the other")
        share = None if weights is None else weights_of("weights", weights, p.size)
        if share is not None and (share == 0).any():
            p, o, share = p[share > 0], o[share > 0], share[share > 0]
        product = p.astype(float) * o  # a long trace of short lengths stays exact in a float
        self._set(
            prompts=p,
            outputs=o,
            weights=share,
            _prompt=Empirical(p, share),
            _output=Empirical(o, share),
            _product=float(product.mean() if share is None else (product * share).sum()),
            _context=float((p + o).max()),
        )

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def prompt_law(self) -> LengthLaw:
        """Marginal law of the prompt length."""
        return self._prompt

    @property
    def output_law(self) -> LengthLaw:
        """Marginal law of the output length."""
        return self._output

    def mean_product(self) -> float:
        """Return E[P O], tokens squared."""
        return self._product

    @property
    def longest_context(self) -> float:
        """Largest P + O of a row."""
        return self._context

    def sample(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return `size` rows drawn with replacement."""
        if self.weights is None:
            rows = rng.integers(self.prompts.size, size=size)
        else:
            rows = rng.choice(self.prompts.size, size, p=self.weights / self.weights.sum())
        return self.prompts[rows], self.outputs[rows]

    def describe(self) -> str:
        """Return one short line."""
        means = f"mean prompt {self._prompt.mean():.6g}, output {self._output.mean():.6g}"
        return f"{self.prompts.size} recorded pairs ({means}, correlation {self.correlation():.3f})"
