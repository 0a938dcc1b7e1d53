"""Fluid drifts under priorities in fractions, found apart from the floating-point equations.

Engines are gone through as in `networks.fluid`, but every number is a fraction: the network's floats are taken for
exactly what they are. A choice whose equations are singular is not passed over: it is reported, and what rests on the
drifts then counts as not proved.
"""

from __future__ import annotations

__all__ = ["exact_drifts"]

from fractions import Fraction
from itertools import product

import numpy as np

from tileq_theory.certificates.linear_exact import solve_exact
from tileq_theory.networks.fluid import Priority
from tileq_theory.networks.model import AgentNetwork

Vector = tuple[Fraction, ...]


def exact_drifts(network: AgentNetwork, priority: Priority) -> list[Vector] | None:
    """Return dq/dt of every set of busy steps that a fluid path can stay in; None where equations are singular."""
    orders = list(network.order(priority).values())
    arrivals = _exact(network.arrivals_per_s)
    service = _exact(network.service_s)
    follows = [_exact(row) for row in network.next_matrix]
    steps = range(len(arrivals))
    found: set[Vector] = set()
    for pattern in product((False, True), repeat=len(arrivals)):
        if not any(pattern):
            continue
        cuts = []
        for order in orders:
            first = next((place for place, k in enumerate(order) if pattern[k]), None)
            cuts.append(range(len(order) + 1) if first is None else range(first + 1))
        for cut in product(*cuts):
            done = _completions(arrivals, follows, service, orders, cut)
            if done is None:
                return None
            if min(done) < 0 or _overfull(done, service, orders, cut):
                continue
            drift = tuple(arrivals[k] + sum(follows[i][k] * done[i] for i in steps) - done[k] for k in steps)
            # at almost every time an empty step of a fluid path stays empty
            if all(pattern[k] or drift[k] == 0 for k in steps):
                found.add(drift)
    return sorted(found)


def _completions(
    arrivals: Vector,
    follows: list[Vector],
    service: Vector,
    orders: list[tuple[int, ...]],
    cut: tuple[int, ...],
) -> Vector | None:
    """Return the completions a second where the step at each cut takes what is left; None where they are not unique."""
    count = len(arrivals)
    rows: list[list[Fraction]] = []
    for k in range(count):
        rows.append([Fraction(int(i == k)) for i in range(count)] + [Fraction(0)])
    for order, place in zip(orders, cut, strict=True):
        for k in order[:place]:
            rows[k] = [Fraction(int(i == k)) - follows[i][k] for i in range(count)] + [arrivals[k]]
        if place < len(order):
            taken = order[: place + 1]
            rows[order[place]] = [service[i] if i in taken else Fraction(0) for i in range(count)] + [Fraction(1)]
    return solve_exact(rows)


def _overfull(done: Vector, service: Vector, orders: list[tuple[int, ...]], cut: tuple[int, ...]) -> bool:
    """Return whether an engine that is full nowhere would need more than all of its time."""
    return any(
        place == len(order) and sum(done[k] * service[k] for k in order) > 1
        for order, place in zip(orders, cut, strict=True)
    )


def _exact(values: np.ndarray) -> Vector:
    return tuple(Fraction(float(value)) for value in values)
