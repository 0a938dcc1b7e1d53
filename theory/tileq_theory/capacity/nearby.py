"""Facets near a point, for regions of so many classes that not all facets are listed.

Outside, the projection onto the region is a convex program: project onto the half-spaces known so far, shoot a ray at
the projection, add the facet that it finds, until the projection lies on the boundary. That is exact (cutting planes).

Inside, the distance is the smallest distance to a facet's plane. At the foot of the point on each known facet a ray is
shot, and the facets found are added until no ray finds a new one. A facet that no such ray meets could be nearer still:
the distance returned is then too large.
"""

from __future__ import annotations

__all__ = ["nearby_prices", "projection", "same_prices"]

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import SolveError

Shot = Callable[[Float[np.ndarray, "class"]], Float[np.ndarray, "class"]]
_SAME = 1e-7
_SHOTS = 400


def nearby_prices(
    point: Float[np.ndarray, "class"], prices: Float[np.ndarray, "facet class"], shoot: Shot
) -> Float[np.ndarray, "found class"]:
    """Return the known prices and those of the facets found near `point`.

    `shoot(direction)` returns the prices of a facet on the boundary along a direction that sums to 1.
    """
    known = [np.asarray(row) for row in prices]
    tried: set[int] = set()
    if point.any():
        _add(known, shoot(point / point.sum()))
    for _ in range(_SHOTS):
        table = np.array(known)
        if (table @ point).max() > 1:
            target = projection(point, table)
        else:
            waiting = [j for j in range(len(known)) if j not in tried]
            if not waiting:
                return table
            slack = (1 - table @ point) / np.linalg.norm(table, axis=1)
            j = min(waiting, key=lambda row: float(slack[row]))
            tried.add(j)
            target = np.maximum(point + slack[j] * table[j] / np.linalg.norm(table[j]), 0.0)
        new = _add(known, shoot(target / target.sum()))
        if not new and (table @ point).max() > 1:
            return table
    return np.array(known)


def projection(
    point: Float[np.ndarray, "class"], prices: Float[np.ndarray, "facet class"]
) -> Float[np.ndarray, "class"]:
    """Return the point of {lambda >= 0, prices lambda <= 1} nearest to `point` (a small convex program)."""
    import cvxpy as cp

    scale = float(point.max())
    target = cp.Variable(len(point), nonneg=True)
    problem = cp.Problem(cp.Minimize(cp.norm(target - point / scale)), [prices * scale @ target <= 1])
    problem.solve(solver=cp.CLARABEL)
    if problem.status != cp.OPTIMAL:
        raise SolveError(f"the projection onto the region ended '{problem.status}'; check the rates")
    nearest: np.ndarray = np.maximum(np.asarray(target.value, dtype=float), 0.0) * scale
    return nearest


def _add(known: list[np.ndarray], price: np.ndarray) -> bool:
    """Append the facet unless it is known; return whether it was new."""
    if any(same_prices(row, price) for row in known):
        return False
    known.append(price)
    return True


def same_prices(one: Float[np.ndarray, "class"], other: Float[np.ndarray, "class"]) -> bool:
    """Return whether two facets are one: their prices agree to 1e-7 of the largest."""
    return bool((np.abs(one - other) <= _SAME * max(float(one.max()), float(other.max()))).all())
