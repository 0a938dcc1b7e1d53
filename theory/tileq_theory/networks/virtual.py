r"""Why a priority order may fail below nominal capacity: virtual stations, and a linear certificate where it does not.

*Virtual station.* Steps k and l at different engines are never served at the same time once the network has been empty
(preemptive priority), if k is fed only by steps at l's engine that l precedes, l only by steps at k's engine that k
precedes, and neither has arrivals from outside: while one is present, the other's feed stands still. A set of steps
that exclude each other in pairs is then served one at a time, so

    sum over the set of lambda_k m_k/rate <= 1

is necessary although each engine's own load is below 1 (Rybko and Stolyar 1992; Dai and Vande Vate 2000).

*Certificate.* With dq(S) the drift when exactly the steps of S are not empty, over the sets S that a fluid path can
stay in, weights h >= 0 with h . dq(S) <= -e for every S make h . q fall at rate e until the fluid is empty: the order
is stable. The program is linear; where it has no answer, its dual is a mixture of drifts that falls in no step. That
is no proof of instability (a piecewise-linear function may exist); the trajectory shows it.
"""

from __future__ import annotations

__all__ = ["PriorityCertificate", "VirtualStation", "priority_certificate", "virtual_station"]

from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

import numpy as np
from jaxtyping import Bool, Float

from tileq_theory.errors import InputError, SolveError
from tileq_theory.networks.exact_fluid import exact_drifts
from tileq_theory.networks.fluid import Priority, fluid_solutions
from tileq_theory.networks.model import AgentNetwork

PerStep = Float[np.ndarray, "step"]
_MOST_STEPS = 12


@dataclass(frozen=True, slots=True)
class VirtualStation:
    """The most loaded set of steps that are served one at a time.

    Parameters
    ----------
    steps
        Their names; empty where no two steps exclude each other.
    load
        sum lambda_k m_k/rate over them: above 1 the order is unstable.
    """

    steps: tuple[str, ...]
    load: float


def virtual_station(network: AgentNetwork, priority: Priority) -> VirtualStation:
    """Return the virtual station of the largest load under a preemptive priority order.

    Raises
    ------
    InputError
        An order that does not name every step of each engine once.

    Examples
    --------
    >>> from tileq_theory.networks.workflows import rybko_stolyar
    >>> net = rybko_stolyar(rate_per_s=0.9 * 768 / 608)
    >>> station = virtual_station(net, ["ab.2", "ba.2", "ab.1", "ba.1"])
    >>> station.steps, round(station.load, 4)
    (('ab.2', 'ba.2'), 1.6105)
    >>> virtual_station(net, ["ab.1", "ba.1", "ab.2", "ba.2"]).load
    0.0
    """
    import networkx as nx

    rank = {k: place for order in network.order(priority).values() for place, k in enumerate(order)}
    steps, work = network.steps, network.rates_per_s * network.service_s
    feeds = {k: [int(f) for f in np.flatnonzero(network.next_matrix[:, k] > 0)] for k in range(len(steps))}

    def stopped_by(k: int, other: int) -> bool:
        """Return whether step k can grow only while `other` is absent."""
        inside = network.arrivals_per_s[k] == 0 and len(feeds[k]) > 0
        there = all(steps[f].engine == steps[other].engine and rank[other] < rank[f] for f in feeds[k])
        return bool(inside and there)

    graph = nx.Graph()
    for k in range(len(steps)):
        for other in range(k + 1, len(steps)):
            apart = steps[k].engine != steps[other].engine
            if apart and stopped_by(k, other) and stopped_by(other, k):
                graph.add_edge(k, other)
    best: tuple[int, ...] = ()
    load = 0.0
    for clique in nx.find_cliques(graph):
        total = float(sum(work[k] for k in clique))
        if total > load:
            best, load = tuple(sorted(clique)), total
    return VirtualStation(tuple(steps[k].name for k in best), load)


@dataclass(frozen=True, slots=True, eq=False)
class PriorityCertificate:
    """Answer of the certificate program.

    Parameters
    ----------
    stable
        True: `weights` prove that the fluid drains, checked in fractions. False: no linear function was found to.
    weights
        h, summing to 1, 0 or more.
    margin
        e: h . q falls at least this fast (requests per second, weighted); negative where not stable.
    drifts
        dq(S) of the sets S the program ranged over.
    mixture
        Where not stable: shares of the drifts whose mean falls in no step.
    """

    stable: bool
    weights: PerStep
    margin: float
    drifts: Float[np.ndarray, "set step"]
    mixture: Float[np.ndarray, "set"]

    def verify(self, network: AgentNetwork, priority: Priority) -> bool:
        """Return True where the weights prove stability in fractions, apart from the program and its matrices.

        The drifts are found again, exactly (`networks.exact_fluid`); h . dq must be below 0 in all of them. "Not
        stable" claims nothing: True.
        """
        if not self.stable:
            return True
        weights = [Fraction(float(w)) for w in self.weights]
        drifts = exact_drifts(network, priority)
        if drifts is None or min(weights) < 0:
            return False
        return all(sum(h * d for h, d in zip(weights, drift, strict=True)) < 0 for drift in drifts)


def priority_certificate(network: AgentNetwork, priority: Priority) -> PriorityCertificate:
    """Return a linear Lyapunov function of the fluid under a priority order, or the mixture that rules one out.

    Raises
    ------
    InputError
        More than 12 steps (the program has a row for every set of non-empty steps), or a bad order.
    SolveError
        The solver stopped without an answer.

    Examples
    --------
    >>> from tileq_theory.networks.workflows import rybko_stolyar
    >>> net = rybko_stolyar(rate_per_s=0.9 * 768 / 608)
    >>> priority_certificate(net, ["ab.1", "ba.1", "ab.2", "ba.2"]).stable
    True
    >>> priority_certificate(net, ["ab.2", "ba.2", "ab.1", "ba.1"]).stable
    False
    """
    from scipy.optimize import linprog

    count = len(network.steps)
    if count > _MOST_STEPS:
        raise InputError(f"the network has {count} steps; expected at most {_MOST_STEPS} for the certificate program")
    drifts = _drifts(network, priority)
    rows = np.hstack([drifts, np.ones((drifts.shape[0], 1))])  # h . d + e <= 0
    goal = np.append(np.zeros(count), -1.0)
    total = np.append(np.ones(count), 0.0)[None, :]
    bounds = [(0, None)] * count + [(None, None)]
    answer = linprog(goal, rows, np.zeros(drifts.shape[0]), total, np.array([1.0]), bounds, method="highs")
    if answer.x is None or not answer.success:
        raise SolveError(f"certificate program: {answer.message}; scale the rates so that they are of order 1")
    weights, mixture = np.maximum(answer.x[:count], 0.0), np.maximum(-answer.ineqlin.marginals, 0.0)
    margin = -float(np.max(drifts @ weights))  # recomputed: the solver's own word is not taken for it
    shares = mixture / max(float(mixture.sum()), 1e-300)
    found = PriorityCertificate(margin > 1e-9, weights, margin, drifts, shares)
    return found if found.verify(network, priority) else replace(found, stable=False)


def _drifts(network: AgentNetwork, priority: Priority) -> np.ndarray:
    """Return the drifts of the sets S in which the empty steps stay empty."""
    out = []
    for pattern in product((False, True), repeat=len(network.steps)):
        busy: Bool[np.ndarray, "step"] = np.array(pattern)
        if not busy.any():
            continue
        # at almost every time an empty step of a fluid path stays empty; all solutions count, the path is not unique
        out += [d for d in fluid_solutions(network, priority, busy) if not d[~busy].any()]
    return np.array(out)
