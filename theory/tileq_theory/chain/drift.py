r"""Stability of the chain by its mean drift, exactly.

While many wait, the phases form a finite Markov chain of their own, which does not depend on the arrivals. With its
stationary law alpha, the mean number of requests an iteration takes in and its mean length,

    drift = lambda alpha T - alpha a   (requests an iteration)

the chain is positive recurrent exactly when drift < 0 (Neuts, Structured stochastic matrices of M/G/1 type, 1989,
section 2.3), so the policy's own capacity is lambda* = (alpha a)/(alpha T).
"""

from __future__ import annotations

__all__ = ["Saturation", "saturation"]

from dataclasses import dataclass

import numpy as np

from tileq_theory.chain.kernel import Kernel
from tileq_theory.errors import SolveError


@dataclass(frozen=True, slots=True)
class Saturation:
    """The chain while many wait.

    Parameters
    ----------
    capacity_per_s
        lambda*: stable exactly when the arrival rate is below it.
    admitted
        Mean requests an iteration takes in.
    duration_s
        Mean iteration length, seconds.
    decoding
        Mean requests decoding at an iteration's start.
    """

    capacity_per_s: float
    admitted: float
    duration_s: float
    decoding: float

    def drift(self, rate_per_s: float) -> float:
        """Return the mean change of the queue over an iteration, requests."""
        return rate_per_s * self.duration_s - self.admitted


def saturation(kernel: Kernel) -> Saturation:
    """Return the saturated chain's stationary means."""
    rows = np.flatnonzero(kernel.level == kernel.depth)
    size = kernel.size
    moves = np.zeros((size, size))
    np.add.at(moves, (kernel.phase[rows], kernel.after[rows]), kernel.probability[rows])
    law = stationary_vector(moves)
    weight = law[kernel.phase[rows]] * kernel.probability[rows]
    admitted = float(weight @ kernel.admitted[rows])
    length = float(weight @ kernel.durations_s[kernel.duration[rows]])
    return Saturation(admitted / length, admitted, length, float(law @ kernel.decoding))


def stationary_vector(moves: np.ndarray) -> np.ndarray:
    """Return the stationary law of a finite chain with one recurrent class (others may be transient)."""
    size = len(moves)
    system = np.vstack([(np.eye(size) - moves).T, np.ones(size)])
    law, _, rank, _ = np.linalg.lstsq(system, np.append(np.zeros(size), 1.0), rcond=None)
    if rank < size:
        raise SolveError(
            "the chain has several recurrent classes while many wait, so its capacity depends on the start; "
            "take a rule or an output law without such a period"
        )
    law = np.clip(law, 0.0, None)
    scaled: np.ndarray = law / law.sum()
    return scaled
