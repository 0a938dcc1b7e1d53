r"""The chain's matrix in two thin factors: P = F_1 F_2.

What follows an iteration depends on two things that do not see each other: how many arrive, given its length, and in
which phase it ends, given who took part. With a middle state (queue after arrivals, law of the phase after),

    F_1: (w, phase) -> (w - a + A, law)     one entry for each number of arrivals
    F_2: (q, law)  -> (q, phase after)      one entry for each phase after

and many (w, phase) share a law, so that both factors together have far fewer entries than their product.
"""

from __future__ import annotations

__all__ = ["Factors", "Kinds", "factors", "kinds_of", "laws_of", "spread_levels"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.chain.kernel import Kernel

_DROPPED = 1e-22  # far below rounding


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """Kinds of iterations: rows of the kernel that differ only in the phase after are one."""

    level: Int[np.ndarray, "kind"]
    phase: Int[np.ndarray, "kind"]
    admitted: Int[np.ndarray, "kind"]
    duration: Int[np.ndarray, "kind"]
    law: Int[np.ndarray, "kind"]
    share: Float[np.ndarray, "kind"]


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Sparse F_1 and F_2, and the matrix-vector products x P and their transposes."""

    first: Any
    second: Any

    @property
    def states(self) -> int:
        """Number of states."""
        return int(self.first.shape[0])

    def after(self, law: Float[np.ndarray, "state"]) -> Float[np.ndarray, "state"]:
        """Return law P."""
        moved: Float[np.ndarray, "state"] = (law @ self.first) @ self.second
        return moved


def kinds_of(kernel: Kernel) -> Kinds:
    """Return the kinds of iterations with their shares of (level, phase)."""
    keys = np.stack([kernel.level, kernel.phase, kernel.admitted, kernel.duration, kernel.law])
    kinds, inverse = np.unique(keys, axis=1, return_inverse=True)
    share = np.bincount(inverse.ravel(), weights=kernel.probability)
    level, phase, admitted, duration, law = np.ascontiguousarray(kinds)
    return Kinds(level, phase, admitted, duration, law, share)


def laws_of(kernel: Kernel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (begin, phase after, probability) of each law, laws one after the other."""
    keys = kernel.law * kernel.size + kernel.after
    # of each law the rows of one kind only: the first that has it
    first_kind = np.full(int(kernel.law.max()) + 1, -1)
    kind = np.cumsum(
        np.append(
            0,
            np.any(
                np.diff([kernel.level, kernel.phase, kernel.admitted, kernel.duration, kernel.law], axis=1) != 0,
                axis=0,
            ),
        )
    )
    order = np.argsort(kernel.law, kind="stable")
    starts = np.searchsorted(kernel.law[order], np.arange(len(first_kind)))
    first_kind = kind[order[starts]]
    rows = np.flatnonzero(kind == first_kind[kernel.law])
    rows = rows[np.argsort(keys[rows], kind="stable")]
    begin = np.searchsorted(kernel.law[rows], np.arange(len(first_kind) + 1))
    mass = kernel.probability[rows]
    total = np.add.reduceat(mass, begin[:-1])
    return begin, kernel.after[rows], mass / np.repeat(total, np.diff(begin))


def factors(kernel: Kernel, counts: Float[np.ndarray, "duration count"], levels: int) -> Factors:
    """Return the factors of the chain on the levels 0 to `levels` - 1; arrivals beyond the last are lost."""
    from scipy.sparse import coo_matrix, csr_matrix

    kinds = kinds_of(kernel)
    source, queue, index = spread_levels(kernel, kinds, levels)
    arrivals = np.arange(counts.shape[1])
    mass = kinds.share[index, None] * counts[kinds.duration[index]]
    keep = mass > _DROPPED
    reached = np.minimum(queue[:, None] + arrivals[None, :], levels - 1)
    middle = (reached * (int(kernel.law.max()) + 1) + kinds.law[index, None])[keep]
    rows = np.broadcast_to(source[:, None], mass.shape)[keep]
    used, column = np.unique(middle, return_inverse=True)
    states = levels * kernel.size
    # the idle node waits for an arrival: one more middle state
    data = np.append(mass[keep], 1.0)
    entries = (data, (np.append(rows, 0), np.append(column.ravel(), len(used))))
    first = coo_matrix(entries, shape=(states, len(used) + 1)).tocsr()
    laws = int(kernel.law.max()) + 1
    begin, after, probability = laws_of(kernel)
    level, law = used // laws, used % laws
    wide = np.diff(begin)[law]
    start = np.append(0, np.cumsum(wide))
    place = np.arange(start[-1]) - np.repeat(start[:-1], wide) + np.repeat(begin[law], wide)
    columns = np.append(np.repeat(level, wide) * kernel.size + after[place], kernel.size)
    second = csr_matrix(
        (np.append(probability[place], 1.0), columns, np.append(start, start[-1] + 1)), shape=(len(used) + 1, states)
    )
    return Factors(first, second)


def spread_levels(kernel: Kernel, kinds: Kinds, levels: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (state, queue left, kind) of every kind at every level that it is met at."""
    shallow = np.flatnonzero(kinds.level < min(kernel.depth, levels))
    deep = np.flatnonzero(kinds.level == kernel.depth)
    high = np.arange(kernel.depth, levels)
    level = np.concatenate([kinds.level[shallow], np.repeat(high, len(deep))])
    index = np.concatenate([shallow, np.tile(deep, len(high))])
    return level * kernel.size + kinds.phase[index], level - kinds.admitted[index], index
