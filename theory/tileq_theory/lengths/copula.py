r"""Correlated prompt and output lengths: a Gaussian copula over two marginal laws.

P = F_P^{-1}(Phi(Z_1)), O = F_O^{-1}(Phi(Z_2)), with (Z_1, Z_2) standard normal of correlation rho. Only E[P O] is not
a matter of the marginals. By Mehler's expansion of the bivariate normal density

    E[P O] = sum_{n >= 0} rho^n a_n b_n,     a_n = E[P(Z) he_n(Z)],   he_n = He_n / sqrt(n!)

and since P = sum_k 1{Z > z_k} with Phi(-z_k) = P(P > k),

    a_0 = E[P],    a_n = sum_k he_{n-1}(z_k) phi(z_k) / sqrt(n).

The he_n are orthonormal, so sum_{n > N} a_n^2 = Var P - sum_{1..N} a_n^2 is known, and by Cauchy-Schwarz what is left
after N terms is at most |rho|^(N+1) times the root of the product of the two remainders: the sum stops when that bound
is below 1e-11 E[P] E[O], a proved error, not an estimate.
"""

from __future__ import annotations

__all__ = ["GaussianCopula"]

import math
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.errors import InputError, finite
from tileq_theory.lengths.base import JointLaw, LengthLaw

LARGEST_SUPPORT = 2**20
LARGEST_CORRELATION = 0.99
_ACCURACY = 1e-11
_MOST_TERMS = 4000


@dataclass(frozen=True, slots=True)
class GaussianCopula(JointLaw):
    """Two marginal laws, coupled by a Gaussian copula with a given rank correlation.

    Parameters
    ----------
    prompt, output
        Marginal laws, of at most 2^20 tokens (give an unbounded law a `cap`, a `high` or wrap it in `Clipped`).
    rank_correlation
        Spearman's rank correlation r of the underlying normals, |r| <= 0.99; rho = 2 sin(pi r/6). Of the lengths
        themselves it is the rank correlation up to ties.

    Raises
    ------
    InputError
        For |r| > 0.99 or a law longer than 2^20 tokens.

    Examples
    --------
    >>> from tileq_theory.lengths import Uniform
    >>> law = GaussianCopula(Uniform(1, 1000), Uniform(1, 1000), 0.5)
    >>> round(law.correlation(), 5)
    0.5
    """

    prompt: LengthLaw
    output: LengthLaw
    rank_correlation: float
    _product: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        r = finite("rank_correlation", self.rank_correlation)
        if abs(r) > LARGEST_CORRELATION:
            raise InputError(f"rank_correlation is {r!r}; expected a number in [-0.99, 0.99]")
        for name in ("prompt", "output"):
            law: LengthLaw = getattr(self, name)
            if law.zero_share() > 0:
                raise InputError(f"{name} law allows a length of 0; expected lengths of at least 1 token")
            if law.longest > LARGEST_SUPPORT:
                raise InputError(
                    f"{name} law of a copula reaches {law.longest:g} tokens; expected at most {LARGEST_SUPPORT}: "
                    "cut it with cap=, high= or Clipped"
                )
        object.__setattr__(self, "rank_correlation", r)
        object.__setattr__(self, "_product", _mean_product(self.prompt, self.output, self.normal_correlation))

    @property
    def normal_correlation(self) -> float:
        """The correlation rho = 2 sin(pi r/6) of the underlying normals."""
        return 2 * math.sin(math.pi * self.rank_correlation / 6)

    @property
    def prompt_law(self) -> LengthLaw:
        """Marginal law of the prompt length."""
        return self.prompt

    @property
    def output_law(self) -> LengthLaw:
        """Marginal law of the output length."""
        return self.output

    def mean_product(self) -> float:
        """Return E[P O], proved to 1e-11 relative of E[P] E[O] (rounding apart)."""
        return self._product

    @property
    def longest_context(self) -> float:
        """Sum of the two longest lengths: every pair of lengths can occur."""
        return self.prompt.longest + self.output.longest

    def sample(
        self, rng: np.random.Generator, size: int
    ) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return (prompt, output) lengths of `size` independent requests, int64."""
        from scipy.special import ndtr

        rho = self.normal_correlation
        first, other = rng.standard_normal(size), rng.standard_normal(size)
        second = rho * first + math.sqrt(1 - rho * rho) * other
        prompts, outputs = self.prompt.quantile(ndtr(first)), self.output.quantile(ndtr(second))
        return prompts.astype(np.int64), outputs.astype(np.int64)

    def describe(self) -> str:
        """Return one short line."""
        return (
            f"prompt {self.prompt.describe()}; output {self.output.describe()}; "
            f"rank correlation {self.rank_correlation:g}"
        )


class _Hermite:
    """The coefficients a_1, a_2, ... of one law, one a call."""

    def __init__(self, law: LengthLaw) -> None:
        from scipy.special import ndtri

        survival = law.survival(np.arange(int(law.longest), dtype=float))
        level, count = np.unique(survival[(survival > 0) & (survival < 1)], return_counts=True)
        self.z = -ndtri(level)
        self.now: Float[np.ndarray, "step"] = count * np.exp(-(self.z**2) / 2) / math.sqrt(2 * math.pi)
        self.before: Float[np.ndarray, "step"] = np.zeros_like(self.now)
        self.order = 0
        self.rest = law.variance()

    def next(self) -> float:
        """Return a_n of the next n, and take it off the variance that is left."""
        n = self.order
        self.order += 1
        coefficient = float(self.now.sum()) / math.sqrt(n + 1)
        following = (self.z * self.now - math.sqrt(n) * self.before) / math.sqrt(n + 1)
        self.before, self.now = self.now, following
        self.rest = max(self.rest - coefficient**2, 0.0)
        return coefficient


def _mean_product(prompt: LengthLaw, output: LengthLaw, rho: float) -> float:
    """Return E[P O] by Mehler's expansion, stopped by the proved bound on what is left."""
    means = prompt.mean() * output.mean()
    a, b = _Hermite(prompt), _Hermite(output)
    terms, power = [means], 1.0
    for _ in range(_MOST_TERMS):
        power *= rho
        if abs(power) * math.sqrt(a.rest * b.rest) <= _ACCURACY * means:
            return math.fsum(terms)
        terms.append(power * a.next() * b.next())
    raise InputError(f"copula of correlation {rho:g} did not settle in {_MOST_TERMS} terms; give a weaker correlation")
