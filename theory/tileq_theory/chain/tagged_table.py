"""The kernel's outcomes in the order in which a tagged request meets them."""

from __future__ import annotations

__all__ = ["OutcomeTable", "check_order", "outcome_table", "takes_one"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.chain.kernel import Kernel
from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class OutcomeTable:
    """Outcomes grouped by (level, phase), `begin` marking the groups."""

    begin: Int[np.ndarray, "group"]
    admitted: Int[np.ndarray, "row"]
    after: Int[np.ndarray, "row"]
    duration: Int[np.ndarray, "row"]
    probability: Float[np.ndarray, "row"]
    stepped: Int[np.ndarray, "row"]


def outcome_table(kernel: Kernel, *, merge_after: bool) -> OutcomeTable:
    """Return the outcomes sorted by (level, phase); `merge_after`: rows that differ in the phase after are one."""
    after = np.zeros_like(kernel.after) if merge_after else kernel.after
    keys = np.stack([kernel.level, kernel.phase, kernel.admitted, after, kernel.duration, kernel.stepped])
    kinds, inverse = np.unique(keys, axis=1, return_inverse=True)
    probability = np.bincount(inverse.ravel(), weights=kernel.probability)
    groups = kinds[0] * kernel.size + kinds[1]
    begin = np.searchsorted(groups, np.arange((kernel.depth + 1) * kernel.size + 1))
    columns = [np.ascontiguousarray(k, dtype=np.int64) for k in kinds[2:]]
    return OutcomeTable(begin.astype(np.int64), columns[0], columns[1], columns[2], probability, columns[3])


def takes_one(kernel: Kernel) -> bool:
    """Return whether an iteration takes in one request at most: nobody behind shares it."""
    return int(kernel.admitted.max()) <= 1


def check_order(kernel: Kernel) -> None:
    """Refuse rules by which those behind in the queue decide about those before them."""
    for level in range(1, kernel.depth):
        sides = []
        for at in (level, level + 1):
            rows = np.flatnonzero((kernel.level == at) & (kernel.admitted < level))
            moves: dict[tuple[int, ...], float] = {}
            for row in rows:
                key = (kernel.phase[row], kernel.admitted[row], kernel.after[row], kernel.duration[row])
                moves[key] = moves.get(key, 0.0) + float(kernel.probability[row])
            sides.append(moves)
        one, other = sides
        if one.keys() != other.keys() or any(abs(one[k] - other[k]) > 1e-12 for k in one):
            raise InputError(
                "the rule lets those behind in the queue decide whether those before them are taken in; expected an "
                "offer that does not depend on how many wait (its means have no such limit)"
            )
