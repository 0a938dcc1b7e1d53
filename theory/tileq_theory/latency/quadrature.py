r"""Quadrature for size laws: Gauss-Legendre panels that follow the law's own distribution function.

On one panel of m nodes the integral of a smooth function f up to each node is C f, with the m x m matrix C of
`running_integral`; so truncated moments E[S^k; S <= x] and the residence time of preemptive policies come to the same
accuracy as the totals.
"""

from __future__ import annotations

__all__ = [
    "NODES",
    "Density",
    "Panel",
    "cut_panel",
    "gauss",
    "law_panels",
    "running_integral",
    "second_is_infinite",
    "to_legendre",
]

import math
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError

NODES = 16
Panel = tuple[float, float, np.ndarray, np.ndarray]  # left, right, nodes, masses
_TOLERANCE = 1e-13
_LARGEST = 1e140
_MOST_PANELS = 20000


@runtime_checkable
class Density(Protocol):
    """What a continuous law must offer; every frozen continuous distribution of scipy.stats does."""

    def pdf(self, x: Any) -> Any:
        """Return the density at each x."""

    def cdf(self, x: Any) -> Any:
        """Return P(S <= x) at each x."""

    def sf(self, x: Any) -> Any:
        """Return P(S > x) at each x."""

    def ppf(self, q: Any) -> Any:
        """Return the quantile of each probability q."""

    def support(self) -> Any:
        """Return the least and the greatest value."""


@lru_cache(maxsize=4)
def gauss(count: int = NODES) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights of Gauss-Legendre quadrature on [-1, 1]."""
    return np.polynomial.legendre.leggauss(count)


@lru_cache(maxsize=4)
def running_integral(count: int = NODES) -> np.ndarray:
    """Return C with (C f)_i = integral of f's interpolant from -1 to node i."""
    x, _ = gauss(count)
    values = np.polynomial.legendre.legvander(x, count)
    order = np.arange(1, count)
    above = np.empty((count, count))
    above[:, 0] = x + 1
    above[:, 1:] = (values[:, 2 : count + 1] - values[:, : count - 1]) / (2 * order + 1)
    inverse: np.ndarray = np.linalg.inv(values[:, :count])
    product: np.ndarray = above @ inverse
    return product


@lru_cache(maxsize=1)
def to_legendre() -> np.ndarray:
    """Return the matrix that turns values at the nodes into Legendre coefficients (values @ matrix)."""
    base, _ = gauss()
    inverse: np.ndarray = np.linalg.inv(np.polynomial.legendre.legvander(base, base.size - 1))
    return inverse.T


def cut_panel(
    left: float,
    right: float,
    nodes: Float[np.ndarray, "node"],
    weights: Float[np.ndarray, "node"],
    edges: Float[np.ndarray, "edge"],
) -> list[Panel]:
    """Return the panel cut at `edges` (ascending, from left to right), through its density's interpolant."""
    if edges.size == 2:
        return [(left, right, nodes, weights)]
    base, quad = gauss()
    half = (right - left) / 2
    coefficients = (weights / quad / half) @ to_legendre()
    pieces: list[Panel] = []
    for a, b in pairwise(edges):
        inner = a + (b - a) / 2 * (base + 1)
        values = np.polynomial.legendre.legval((inner - left) / half - 1, coefficients)
        pieces.append((float(a), float(b), inner, np.maximum(values, 0.0) * quad * (b - a) / 2))
    return pieces


def law_panels(law: Density) -> tuple[Float[np.ndarray, "panel"], Float[np.ndarray, "panel"]]:
    """Return panel edges (left, right) on which the law's density integrates to its distribution function to 1e-13.

    Panels grow by factors of 2 from the ends of the support and are halved wherever quadrature and distribution
    function disagree, so peaks, kinks and integrable singularities are found without being named.
    """
    edges = _first_edges(law)
    left, right = edges[:-1], edges[1:]
    done_left: list[np.ndarray] = []
    done_right: list[np.ndarray] = []
    for _ in range(60):
        wrong = _mismatch(law, left, right) > _TOLERANCE
        wrong &= (right - left) > 1e-13 * np.abs(right)
        done_left.append(left[~wrong])
        done_right.append(right[~wrong])
        middle = (left[wrong] + right[wrong]) / 2
        left, right = np.concatenate([left[wrong], middle]), np.concatenate([middle, right[wrong]])
        if not left.size or sum(d.size for d in done_left) > _MOST_PANELS:
            break
    all_left, all_right = np.concatenate([*done_left, left]), np.concatenate([*done_right, right])
    order = np.argsort(all_left)
    return all_left[order], all_right[order]


def _mismatch(law: Density, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    x, w = gauss()
    half = (right - left) / 2
    nodes = left[:, None] + half[:, None] * (x + 1)
    by_density = (np.asarray(law.pdf(nodes), dtype=float) @ w) * half
    by_cdf = np.asarray(law.cdf(right), dtype=float) - np.asarray(law.cdf(left), dtype=float)
    wrong: np.ndarray = np.abs(by_density - by_cdf)
    if not np.isfinite(by_density).all():
        raise InputError("the law's density is not finite inside its support; give its atoms apart from its density")
    return wrong


def _first_edges(law: Density) -> np.ndarray:
    low, high = (float(end) for end in law.support())
    if not low >= 0:
        raise InputError(f"the law's least value is {low!r}; expected sizes of 0 or more")
    median = float(law.ppf(0.5))
    unit = max(median - low, 1e-300)
    quantiles = np.asarray(law.ppf(np.array([1e-9, 1e-6, 1e-3, 0.05, 0.25, 0.5, 0.75, 0.95, 0.999])), dtype=float)
    steps = _head(law, low, unit)
    if math.isfinite(high):
        back = high - max(high - median, 1e-300) * 2.0 ** np.arange(-50, 1)
        edges = np.concatenate([[low, high], low + steps, back, quantiles])
    else:
        edges = np.concatenate([[low], low + steps, low + _tail(law, low, unit), quantiles])
    edges = np.unique(edges[(edges >= low) & (edges <= high)])
    keep = np.concatenate([[True], np.diff(edges) > 1e-14 * np.maximum(edges[1:], 1e-300)])
    kept: np.ndarray = edges[keep]
    return kept


def _head(law: Density, low: float, unit: float) -> np.ndarray:
    """Return distances unit, unit/2, ... down to where no mass is left: the density may be singular there."""
    reach = [unit]
    while len(reach) < 81 or (reach[-1] > 1e-290 and float(law.cdf(low + reach[-1])) > 1e-16):
        reach.append(reach[-1] / 2)
    return np.array(reach)


def _tail(law: Density, low: float, unit: float) -> np.ndarray:
    """Return distances 2 unit, 4 unit, ... up to where no mass, mean and (if finite) second moment is left."""
    reach, power = [unit], 1 if second_is_infinite(law) else 2
    while reach[-1] < _LARGEST * unit:
        reach.append(2 * reach[-1])
        left = float(law.sf(low + reach[-1]))
        if left * ((low + reach[-1]) / (low + unit)) ** power < 1e-18:
            break
    return np.array(reach)


def second_is_infinite(law: Density) -> bool:
    """Return whether E[S^2] is infinite: from the law's own variance, or from the decay of its tail."""
    variance = getattr(law, "var", None)
    if variance is not None:
        return not math.isfinite(float(variance()))
    if math.isfinite(float(law.support()[1])):
        return False
    near, far = (float(law.sf(x)) for x in (1e100, 1e140))
    return far > 0 and far * 1e40**2 >= near * 0.99
