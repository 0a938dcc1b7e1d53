"""Where a tagged request stands when the iteration it comes into ends."""

from __future__ import annotations

__all__ = ["arrival_masses"]

import numpy as np

from tileq_theory.chain.answer import ChainAnswer
from tileq_theory.chain.follow import compiled, spread_start
from tileq_theory.chain.ticks import Clock


def arrival_masses(
    answer: ChainAnswer, clock: Clock, counts: np.ndarray, kept: int, positions: int
) -> tuple[np.ndarray, float, float]:
    """Return (mass where the iteration met on arrival ends, per tick, position and phase; idle mass; offset).

    The offset, seconds, is the mean distance of a tick's arrivals from its middle.
    """
    kernel, rate, law = answer.kernel, answer.rate_per_s, answer.boundary_law
    left = np.zeros((len(clock.ticks), kept, kernel.size))
    for level in range(kept):
        rows = np.flatnonzero(kernel.level == min(level, kernel.depth))
        weight = law[level, kernel.phase[rows]] * kernel.probability[rows]
        np.add.at(left, (kernel.duration[rows], level - kernel.admitted[rows], kernel.after[rows]), weight)
    cycle = float(law[0, 0]) / rate / answer.idle_share
    ring: np.ndarray = np.zeros((int(clock.ticks.max()) + 1, positions + 1, kernel.size))
    offset = 0.0
    for index, whole in enumerate(clock.ticks):
        queues = np.flatnonzero(left[index].any(axis=1))
        if not queues.size:
            continue
        low, high = int(queues[0]), int(queues[-1]) + 1
        phases = np.flatnonzero(left[index].any(axis=0))
        block = left[index, low:high, phases[0] : phases[-1] + 1] / cycle
        mass, moment = _remainders(rate, float(kernel.durations_s[index]), int(whole), counts.shape[1])
        offset += float(block.sum()) * float(np.abs(moment).sum())
        compiled(spread_start)(ring, mass, np.ascontiguousarray(block), low, int(phases[0]))
    return ring, answer.idle_share, offset


def _remainders(rate: float, length: float, whole: int, counts: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the time spent with n arrivals so far and r ticks left, rounded up, and its moment about the middle.

    With E_n(x) = P(A(x) > n)/lambda the time spent up to x, its moment up to x is (n + 1)/lambda E_{n+1}(x).
    """
    from scipy.special import gammainc

    n = np.arange(counts + 1)[None, :]
    edges = length * np.arange(whole, -1, -1)[:, None] / whole
    spent = np.maximum(-np.diff(gammainc(n + 1, rate * edges) / rate, axis=0), 0.0)
    middle = (edges[:-1] + edges[1:]) / 2
    mass: np.ndarray = spent[:, :-1]
    moment: np.ndarray = (n[:, 1:] / rate) * spent[:, 1:] - middle * mass
    return mass, moment
