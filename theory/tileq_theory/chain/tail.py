r"""A proved bound on the mass of high levels, by a geometric drift function.

For theta > 1 let M = sum_j theta^j A_j (j = change of level). If its spectral radius is below some gamma < 1, then
v = (gamma I - M)^{-1} 1 > 0 has M v <= gamma v, V(w, phase) = theta^w v_phase falls by the factor gamma on average
from every level >= depth, and

    E_pi[V] <= max(P V - gamma V over the boundary levels, 0)/(1 - gamma)
    P(w >= W) <= E_pi[V]/(theta^W min v)

holds for the infinite chain, whatever was computed of it (Meyn and Tweedie, Markov chains and stochastic stability,
2009, theorem 15.0.1; Markov's inequality). theta is chosen to make the bound small, gamma halfway
between the radius and 1.
"""

from __future__ import annotations

__all__ = ["TailBound", "levels_within", "tail_bound"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.kernel import Kernel
from tileq_theory.errors import SolveError


@dataclass(frozen=True, slots=True)
class TailBound:
    """P(w >= W at an iteration boundary) <= constant * theta^-W.

    Parameters
    ----------
    theta
        Above 1.
    constant
        E_pi[V]/min v.
    gamma
        Below 1: the factor by which V falls.
    """

    theta: float
    constant: float
    gamma: float

    def __call__(self, level: int) -> float:
        """Return the bound on P(w >= level)."""
        return min(1.0, self.constant * float(np.exp(-level * np.log(self.theta))))


_SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)


def tail_bound(kernel: Kernel, counts: Float[np.ndarray, "duration count"], level: int) -> TailBound:
    """Return the bound that is smallest at `level` among a grid of theta up to the decay rate of the queue."""
    return min(_bounds(kernel, counts), key=lambda b: math.log(b.constant) - level * math.log(b.theta))


def levels_within(kernel: Kernel, counts: Float[np.ndarray, "duration count"], mass: float) -> int:
    """Return a number of levels beyond which the bound leaves at most `mass`, the least among the grid of theta."""
    return min(math.ceil(math.log(b.constant / mass) / math.log(b.theta)) + 1 for b in _bounds(kernel, counts))


def _bounds(kernel: Kernel, counts: np.ndarray) -> list[TailBound]:
    drift = _Weighted(kernel, counts)
    critical = drift.critical()
    bounds = [b for s in _SHARES if (b := drift.bound(math.exp(s * critical))) is not None]
    if not bounds:
        raise SolveError("no geometric drift found: the load is too near 1; lower rate_per_s")
    return bounds


class _Weighted:
    """The saturated chain weighted by theta^(change of level), M(theta)_ij = E[theta^change; j | i]."""

    def __init__(self, kernel: Kernel, counts: np.ndarray) -> None:
        self.kernel, self.counts = kernel, counts
        self.deep = np.flatnonzero(kernel.level == kernel.depth)
        self.shallow = np.flatnonzero(kernel.level < kernel.depth)
        self.arrivals = np.arange(counts.shape[1])

    def matrix(self, theta: float) -> np.ndarray:
        """Return M(theta)."""
        kernel, rows = self.kernel, self.deep
        grown = self.counts @ theta**self.arrivals
        change = theta ** -kernel.admitted[rows].astype(float) * grown[kernel.duration[rows]]
        matrix = np.zeros((kernel.size, kernel.size))
        np.add.at(matrix, (kernel.phase[rows], kernel.after[rows]), kernel.probability[rows] * change)
        return matrix

    def radius(self, theta: float) -> float:
        """Return the spectral radius of M(theta)."""
        return float(np.abs(np.linalg.eigvals(self.matrix(theta))).max())

    def critical(self) -> float:
        """Return log theta > 0 where the radius returns to 1 (it is 1 at theta = 1 and log-convex), by bisection."""
        low, high = 0.0, 1e-6
        while high < 50 and self.radius(math.exp(high)) < 1:
            low, high = high, 2 * high
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (middle, high) if self.radius(math.exp(middle)) < 1 else (low, middle)
        return low

    def bound(self, theta: float) -> TailBound | None:
        """Return the bound with gamma halfway to 1 and v = (gamma I - M)^{-1} 1, for which M v = gamma v - 1."""
        kernel, size = self.kernel, self.kernel.size
        matrix = self.matrix(theta)
        gamma = (1 + float(np.abs(np.linalg.eigvals(matrix)).max())) / 2
        if gamma >= 1:
            return None
        vector = np.linalg.solve(gamma * np.eye(size) - matrix, np.ones(size))
        if vector.min() <= 0 or np.any(matrix @ vector > gamma * vector):
            return None  # the proof needs both; rounding can spoil them where the load is too near 1
        rows, grown = self.shallow, self.counts @ theta**self.arrivals
        level = kernel.level[rows]
        value = np.zeros((kernel.depth, size))
        change = kernel.probability[rows] * theta ** (level - kernel.admitted[rows]) * grown[kernel.duration[rows]]
        np.add.at(value, (level, kernel.phase[rows]), change * vector[kernel.after[rows]])
        value[0, 0] = theta * vector[0]  # the empty node waits for an arrival
        excess = value - gamma * theta ** np.arange(kernel.depth)[:, None] * vector
        return TailBound(theta, max(float(excess.max()), 1e-300) / (1 - gamma) / float(vector.min()), gamma)
