r"""A thin chain with the drift and the spread of the true one, as a preconditioner.

The slow motions of the chain - of the queue near saturation, of the residents with long outputs - are those of a
diffusion: they know of each move only its mean and its variance. Each law of arrivals and of decoding requests is
replaced by one on two or three points with the same mean and, where the range allows, variance; the matrix then has
some nine entries a row, its sparse factors cost next to nothing, and what is left for GMRES is what moves fast.
"""

from __future__ import annotations

__all__ = ["thin_chain"]

import itertools
import math
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.drift import saturation, stationary_vector
from tileq_theory.chain.kernel import Kernel
from tileq_theory.chain.operator import Kinds, kinds_of, laws_of, spread_levels
from tileq_theory.errors import SolveError


def thin_chain(kernel: Kernel, counts: Float[np.ndarray, "duration count"], levels: int) -> Any:
    """Return the thin chain's matrix on the levels 0 to `levels` - 1 (CSR)."""
    from scipy.sparse import coo_matrix

    kinds = kinds_of(kernel)
    source, queue, index = spread_levels(kernel, kinds, levels)
    numbers = np.arange(counts.shape[1], dtype=float)
    after, after_mass = _stack(_thin_laws(kernel))
    # its capacity is a little off; arrivals that are off by as much keep it as stable as the true chain
    factor = _capacity(kernel, kinds, after, after_mass) / saturation(kernel).capacity_per_s
    more, more_mass = _stack([_three(numbers, row, factor) for row in counts])
    grown = np.minimum(queue[:, None] + more[kinds.duration[index]], levels - 1)
    target = grown[:, :, None] * kernel.size + after[kinds.law[index]][:, None, :]
    mass = kinds.share[index, None, None] * more_mass[kinds.duration[index]][:, :, None]
    mass = mass * after_mass[kinds.law[index]][:, None, :]
    keep = mass > 0
    rows = np.append(np.broadcast_to(source[:, None, None], mass.shape)[keep], 0)
    entries = (np.append(mass[keep], 1.0), (rows, np.append(target[keep], kernel.size)))
    states = levels * kernel.size
    return coo_matrix(entries, shape=(states, states)).tocsr()


def _thin_laws(kernel: Kernel) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (phases, probabilities) of each law, thinned by the number of decoding requests."""
    begin, after, probability = laws_of(kernel)
    decoding = kernel.decoding
    counts = np.array([p.counts for p in kernel.phases], dtype=float)
    laws = []
    for low, high in itertools.pairwise(begin):
        phases, mass = after[low:high], probability[low:high]
        number = decoding[phases]
        values, place = np.unique(number, return_inverse=True)
        points, shares = _three(values.astype(float), np.bincount(place, weights=mass))
        laws.append((np.array([_typical(int(v), phases, mass, number, counts) for v in points]), shares))
    return laws


def _typical(value: int, phases: np.ndarray, mass: np.ndarray, number: np.ndarray, counts: np.ndarray) -> int:
    """Return the phase with the number of decoding requests nearest `value` that is nearest the mean of those."""
    nearest = number[np.argmin(np.abs(number - value))]
    mine = np.flatnonzero(number == nearest)
    if mine.size == 1:
        return int(phases[mine[0]])
    weight = mass[mine] / mass[mine].sum()
    middle = weight @ counts[phases[mine]]
    return int(phases[mine[np.argmin(np.abs(counts[phases[mine]] - middle).sum(axis=1))]])


def _capacity(kernel: Kernel, kinds: Kinds, after: np.ndarray, after_mass: np.ndarray) -> float:
    """Return the rate at which the thin chain's mean drift is 0."""
    deep = kinds.level == kernel.depth
    moves = np.zeros((kernel.size, kernel.size))
    mass = kinds.share[deep][:, None] * after_mass[kinds.law[deep]]
    np.add.at(moves, (np.broadcast_to(kinds.phase[deep][:, None], mass.shape), after[kinds.law[deep]]), mass)
    try:
        law = stationary_vector(moves)
    except SolveError:  # thinned too much to mix: a worse preconditioner, not a wrong one
        return saturation(kernel).capacity_per_s
    weight = law[kinds.phase[deep]] * kinds.share[deep]
    return float(weight @ kinds.admitted[deep]) / float(weight @ kernel.durations_s[kinds.duration[deep]])


def _three(values: np.ndarray, mass: np.ndarray, factor: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return whole points and their probabilities with the mean and, if they stay in range, the variance of a law."""
    mean = float(values @ mass) / float(mass.sum())
    variance = max(float(((values - mean) ** 2) @ mass) / float(mass.sum()), 0.0)
    mean = min(mean * factor, float(values[-1]))
    centre = round(mean)
    off = mean - centre
    square = variance + off * off
    if square < 1e-14:
        return np.array([centre]), np.ones(1)
    step = max(1, math.ceil(math.sqrt(square)))
    if centre - step < values[0] or centre + step > values[-1] or abs(off) * step > square:
        low = math.floor(mean)
        return np.array([low, low + 1]), np.array([low + 1 - mean, mean - low])
    sides = np.array([square - step * off, 0.0, square + step * off]) / (2 * step * step)
    sides[1] = 1 - sides[0] - sides[2]
    return np.array([centre - step, centre, centre + step]), sides


def _stack(laws: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the laws as two arrays with a row each, short ones filled up with probability 0."""
    points = np.zeros((len(laws), 3), dtype=np.int64)
    masses = np.zeros((len(laws), 3))
    for row, (point, mass) in enumerate(laws):
        points[row, : len(point)], masses[row, : len(mass)] = point, mass
    return points, masses
