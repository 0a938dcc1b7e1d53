"""A service law as points with masses and truncated moments: what the M/G/1 formulas are summed over."""

from __future__ import annotations

__all__ = ["SizePoints", "size_points"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.latency.quadrature import NODES, gauss, running_integral

Points = Float[np.ndarray, "point"]


@dataclass(frozen=True, slots=True, eq=False)
class SizePoints:
    """Points of a law: nodes of all panels, then atoms; `below` is over S < x, `upto` over S <= x.

    Parameters
    ----------
    sizes_s, masses
        x_i and w_i.
    below, upto
        E[S^k; S < x_i] and E[S^k; S <= x_i] for k = 0, 1, 2 (first axis).
    left_s, right_s, atoms_s
        Panels and atoms of the law.
    """

    sizes_s: Points
    masses: Points
    below: Float[np.ndarray, "3 point"]
    upto: Float[np.ndarray, "3 point"]
    left_s: Float[np.ndarray, "panel"]
    right_s: Float[np.ndarray, "panel"]
    atoms_s: Float[np.ndarray, "atom"]

    def mean(self, values: Points) -> float:
        """Return sum of w_i f_i over points with mass."""
        live = self.masses > 0
        return float(np.sum(self.masses[live] * values[live]))

    def residence(self, rate_per_s: float) -> Points:
        """Return R(x) = integral over 0..x of dt/(1 - rho(t)), rho(t) = rate E[S; S <= t], at every point."""
        slow = 1 / (1 - rate_per_s * self.below[1])
        panels, width = self.left_s.size, NODES
        inside = slow[: panels * width].reshape(panels, width)
        half = ((self.right_s - self.left_s) / 2)[:, None]
        running = inside @ running_integral().T * half
        totals = (inside @ gauss()[1]) * half[:, 0]
        starts = np.concatenate([self.left_s, self.atoms_s])
        ends = np.concatenate([self.right_s, self.atoms_s])
        order = np.lexsort((np.r_[np.ones(panels), np.zeros(self.atoms_s.size)], starts))
        length = np.concatenate([totals, np.zeros(self.atoms_s.size)])[order]
        gaps = np.maximum(starts[order] - np.concatenate([[0.0], ends[order][:-1]]), 0.0)
        load = np.concatenate([_panel_start(self, panels, width), self.below[1, panels * width :]])[order]
        gap_time = gaps / (1 - rate_per_s * load)
        before = np.cumsum(gap_time) + np.concatenate([[0.0], np.cumsum(length)[:-1]])
        offset = np.empty_like(before)
        offset[order] = before
        out: Points = np.concatenate([(offset[:panels, None] + running).ravel(), offset[panels:]])
        return out


def _panel_start(points: SizePoints, panels: int, width: int) -> Float[np.ndarray, "panel"]:
    """Return E[S; S < left edge] of each panel."""
    if not panels:
        return np.zeros(0)
    sizes, masses = (v[: panels * width].reshape(panels, width) for v in (points.sizes_s, points.masses))
    first = (masses / gauss()[1] * sizes) @ running_integral()[0]
    start: np.ndarray = np.maximum(points.below[1, : panels * width : width] - first, 0.0)
    return start


def size_points(
    left_s: Float[np.ndarray, "panel"],
    right_s: Float[np.ndarray, "panel"],
    nodes_s: Float[np.ndarray, "panel node"],
    weights: Float[np.ndarray, "panel node"],
    atoms_s: Float[np.ndarray, "atom"],
    atom_masses: Float[np.ndarray, "atom"],
) -> SizePoints:
    """Return the points of a law given by panels and atoms."""
    panels, width = nodes_s.shape
    powers = np.stack([np.ones_like(nodes_s), nodes_s, nodes_s**2])
    # weights are density*w*half: dividing by w leaves density*half, which the running integral takes
    running = (powers * (weights / gauss()[1])) @ running_integral().T
    totals = (powers * weights).sum(axis=2)
    atom_powers = np.stack([np.ones_like(atoms_s), atoms_s, atoms_s**2]) * atom_masses
    starts = np.concatenate([left_s, atoms_s])
    order = np.lexsort((np.r_[np.ones(panels), np.zeros(atoms_s.size)], starts))
    each = np.concatenate([totals, atom_powers], axis=1)[:, order]
    before = np.empty_like(each)
    before[:, order] = np.concatenate([np.zeros((3, 1)), np.cumsum(each, axis=1)[:, :-1]], axis=1)
    at_nodes = (before[:, :panels, None] + running).reshape(3, panels * width)
    at_atoms = before[:, panels:]
    return SizePoints(
        np.concatenate([nodes_s.ravel(), atoms_s]),
        np.concatenate([weights.ravel(), atom_masses]),
        np.concatenate([at_nodes, at_atoms], axis=1),
        np.concatenate([at_nodes, at_atoms + atom_powers], axis=1),
        left_s,
        right_s,
        atoms_s,
    )
