r"""Transition structure of the chain at iteration boundaries, as sparse matrices.

States are numbered level by level: w * phases + phase. A row of level w reaches the levels w - a, w - a + 1, ...; from
level `depth` on every level looks the same, so the infinite matrix is of M/G/1 type once levels are taken `depth` at
a time (an iteration never takes in more than depth - 1 requests):

    P = | B_0 B_1 B_2 ... |
        | A_0 A_1 A_2 ... |
        |     A_0 A_1 ... |
"""

from __future__ import annotations

__all__ = ["Blocks", "finite_matrix", "level_rows", "super_blocks"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.chain.kernel import Kernel


def level_rows(
    kernel: Kernel,
    counts: Float[np.ndarray, "duration count"],
    levels: Int[np.ndarray, "row"],
    columns: int,
    *,
    clamp: bool = False,
    idle: bool = True,
) -> Any:
    """Return the rows of the given levels as a CSR matrix with `columns` levels.

    What lies beyond the last level is left out, or with `clamp` counted there. `idle`: with the row of the empty node.
    """
    from scipy.sparse import coo_matrix

    rows: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    masses: list[np.ndarray] = []
    arrivals, size = np.arange(counts.shape[1]), kernel.size
    capped = np.minimum(levels, kernel.depth)
    for position, level in enumerate(levels):
        chosen = np.flatnonzero(kernel.level == capped[position])
        reached = level - kernel.admitted[chosen, None] + arrivals[None, :]
        reached = np.minimum(reached, columns - 1) if clamp else reached
        mass = kernel.probability[chosen, None] * counts[kernel.duration[chosen]]
        target = reached * size + kernel.after[chosen, None]
        source = np.broadcast_to(position * size + kernel.phase[chosen, None], target.shape)
        inside = (reached < columns) & (mass > 0)
        rows.append(source[inside])
        targets.append(target[inside])
        masses.append(mass[inside])
        if idle and level == 0 and columns > 1:  # the idle node waits for an arrival
            rows.append(np.array([position * size]))
            targets.append(np.array([size]))
            masses.append(np.array([1.0]))
    entries = (np.concatenate(masses), (np.concatenate(rows), np.concatenate(targets)))
    return coo_matrix(entries, shape=(len(levels) * size, columns * size)).tocsr()


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks B_k and A_k of the M/G/1-type matrix, dense, each (depth x phases) square."""

    boundary: list[Float[np.ndarray, "state state"]]
    inner: list[Float[np.ndarray, "state state"]]


def super_blocks(kernel: Kernel, counts: Float[np.ndarray, "duration count"]) -> Blocks:
    """Return the blocks of the infinite matrix."""
    depth, most = kernel.depth, counts.shape[1]
    columns = depth * (2 + -(-most // depth))
    width = depth * kernel.size

    def cut(first: int) -> list[np.ndarray]:
        rows = level_rows(kernel, counts, np.arange(first, first + depth), columns).toarray()
        blocks = [rows[:, k * width : (k + 1) * width] for k in range(columns // depth)]
        while len(blocks) > 2 and not blocks[-1].any():
            blocks.pop()
        return blocks

    return Blocks(cut(0), cut(depth))


def finite_matrix(kernel: Kernel, counts: Float[np.ndarray, "duration count"], room: int) -> Any:
    """Return the whole matrix with a waiting room of `room` requests: arrivals to a full room are lost."""
    return level_rows(kernel, counts, np.arange(room + 1), room + 1, clamp=True)
