r"""Fluid of a network under static priorities, event by event.

q_k is the number at step k. Each engine serves its steps in a fixed order: the first step that is not empty takes what
the steps before it leave; an empty step takes what flows in, as far as capacity is left. Between the times at which a
step empties all rates are constant, so the path is exact, piecewise linear, and found without a time step:

    dq_k/dt = alpha_k + sum_l N_lk d_l - d_k,   d_k the completions per second.

Where the equations allow several rates the one in which fewest empty steps start to grow is followed.
"""

from __future__ import annotations

__all__ = ["FluidPath", "fluid_path", "fluid_rates", "fluid_solutions"]

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from tileq_theory.errors import InputError, SolveError, near_matches, nonnegative, positive, positive_int
from tileq_theory.networks.model import AgentNetwork

PerStep = Float[np.ndarray, "step"]
Priority = Mapping[str, Sequence[str]] | Sequence[str]
_MOST_CHOICES = 20000


@dataclass(frozen=True, slots=True, eq=False)
class FluidPath:
    """A trajectory at its corners.

    Parameters
    ----------
    times_s
        Corner times; the path is linear between them.
    queues
        q_k at each corner.
    end
        "drained", "horizon" or "growing" (the total passed the limit).
    """

    times_s: Float[np.ndarray, "corner"]
    queues: Float[np.ndarray, "corner step"]
    end: Literal["drained", "horizon", "growing"]

    @property
    def total(self) -> Float[np.ndarray, "corner"]:
        """Requests in the network at each corner."""
        out: Float[np.ndarray, "corner"] = self.queues.sum(axis=1)
        return out

    def peaks(self, step: int) -> Float[np.ndarray, "peak"]:
        """Return the local maxima of one step's queue after the start, in order of time."""
        q = self.queues[:, step]
        inner = (q[1:-1] > q[:-2]) & (q[1:-1] >= q[2:])
        out: Float[np.ndarray, "peak"] = q[1:-1][inner]
        return out

    def at(self, times_s: Float[np.ndarray, "time"]) -> Float[np.ndarray, "time step"]:
        """Return q at given times by linear interpolation, exact inside the path."""
        columns = [np.interp(times_s, self.times_s, self.queues[:, k]) for k in range(self.queues.shape[1])]
        return np.stack(columns, axis=1)


def fluid_rates(network: AgentNetwork, priority: Priority, busy: Bool[np.ndarray, "step"]) -> PerStep:
    """Return dq/dt when exactly the steps marked `busy` are not empty (the first solution, see `fluid_solutions`).

    Examples
    --------
    >>> from tileq_theory.networks.workflows import chain
    >>> line = chain("r", [("A", 1.0), ("B", 1.0)], rate_per_s=0.5, engines={"A": 1.0, "B": 1.0})
    >>> fluid_rates(line, ["r.1", "r.2"], np.array([True, False])).tolist()
    [-0.5, 0.0]
    """
    return fluid_solutions(network, priority, busy)[0]


def fluid_solutions(network: AgentNetwork, priority: Priority, busy: Bool[np.ndarray, "step"]) -> list[PerStep]:
    """Return every dq/dt that the fluid equations allow when exactly the steps marked `busy` are not empty.

    Each engine works through its order up to a step that takes all that is left: the steps before it are empty and pass
    their inflow on, those after it get nothing. Every choice of such steps is one linear system; those whose solution
    agrees with the choice are kept, the ones in which fewest empty steps start to grow first. There may be several:
    a fluid under priorities need not be unique.

    Raises
    ------
    InputError
        More than 20000 choices: too many engines and steps for this method.
    SolveError
        No choice agrees to rounding.
    """
    orders = list(network.order(priority).values())
    return _solutions(network.arrivals_per_s, network.next_matrix, network.service_s, orders, busy)


def _solutions(
    arrivals: np.ndarray, follows: np.ndarray, service: np.ndarray, orders: list[tuple[int, ...]], busy: np.ndarray
) -> list[np.ndarray]:
    choices = []
    for order in orders:
        first = next((place for place, k in enumerate(order) if busy[k]), None)
        choices.append(range(len(order) + 1) if first is None else range(first + 1))
    if math.prod(len(c) for c in choices) > _MOST_CHOICES:
        raise InputError("the network has too many steps and engines for the fluid; expected a few of each")
    found: list[tuple[int, np.ndarray]] = []
    for cut in product(*(reversed(c) for c in choices)):
        drift = _consistent(arrivals, follows, service, orders, busy, cut)
        if drift is not None and not any(np.allclose(drift, d, rtol=1e-9, atol=1e-12) for _, d in found):
            found.append((int((drift[~busy] > 0).sum()), drift))
    if not found:
        raise SolveError(
            "the fluid equations have no solution to rounding; scale the rates so that they are of order 1"
        )
    return [drift for _, drift in sorted(found, key=lambda pair: pair[0])]


def _consistent(
    arrivals: np.ndarray,
    follows: np.ndarray,
    service: np.ndarray,
    orders: list[tuple[int, ...]],
    busy: np.ndarray,
    cut: tuple[int, ...],
) -> np.ndarray | None:
    """Return dq/dt for one choice of the step at which each engine is full, or None where it contradicts itself."""
    count = arrivals.size
    matrix, right = np.eye(count), np.zeros(count)
    full = np.zeros(count, dtype=bool)
    for order, place in zip(orders, cut, strict=True):
        for k in order[:place]:  # empty: completions are the inflow
            matrix[k] -= follows[:, k]
            right[k] = arrivals[k]
        if place < len(order):
            k = order[place]
            full[k] = True
            matrix[k, k] = service[k]
            for other in order[:place]:
                matrix[k, other] = service[other]
            right[k] = 1.0
    try:
        done = np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return None
    slack = 1e-10 * (1 + float(np.abs(done).max()))
    if (done < -slack).any():
        return None
    drift: np.ndarray = arrivals + follows.T @ done - done
    drift[~busy & (np.abs(drift) <= slack)] = 0.0
    for order, place in zip(orders, cut, strict=True):
        if place == len(order) and float(done[list(order)] @ service[list(order)]) > 1 + 1e-10:
            return None
    return None if (drift[full & ~busy] < 0).any() else drift


def fluid_path(
    network: AgentNetwork,
    priority: Priority,
    start: Mapping[str, float],
    *,
    horizon_s: float = math.inf,
    growth_limit: float = 1e6,
    corners: int = 20000,
) -> FluidPath:
    """Return the fluid trajectory from a start until it drains, the horizon or `growth_limit` times the start.

    Parameters
    ----------
    network, priority
        Steps in order of service, by engine or as one list over all steps.
    start
        Requests at named steps at time 0, 0 or more, not all 0; 0 where absent.
    horizon_s
        Last time, seconds.
    growth_limit
        The path ends as "growing" when the total exceeds this multiple of the start.
    corners
        Most corners of the path; it ends as "horizon" there.

    Raises
    ------
    InputError
        An unknown step, a negative start or an all-zero start.

    Examples
    --------
    >>> from tileq_theory.networks.workflows import rybko_stolyar
    >>> net = rybko_stolyar(rate_per_s=0.9 * 768 / 608)
    >>> bad = fluid_path(net, ["ab.2", "ba.2", "ab.1", "ba.1"], {"ab.1": 20000.0}, growth_limit=80)
    >>> good = fluid_path(net, ["ab.1", "ba.1", "ab.2", "ba.2"], {"ab.1": 20000.0})
    >>> bad.end, good.end, round(float(good.total.max()))
    ('growing', 'drained', 21833)
    """
    orders = list(network.order(priority).values())
    q = _start(network, start)
    size = float(q.sum())
    horizon = horizon_s if horizon_s == math.inf else positive("horizon_s", horizon_s)
    arrivals, follows, service = network.arrivals_per_s, network.next_matrix, network.service_s
    times, queues, now = [0.0], [q], 0.0
    end: Literal["drained", "horizon", "growing"] = "horizon"
    for _ in range(positive_int("corners", corners)):
        busy = q > 1e-12 * size
        drift = _solutions(arrivals, follows, service, orders, busy)[0]
        falling = busy & (drift < 0)
        step = float(np.min(q[falling] / -drift[falling])) if falling.any() else math.inf
        if math.isinf(step) and math.isinf(horizon):
            end = "drained" if not (drift > 0).any() else "growing"
            break
        last = now + step >= horizon
        step = min(step, horizon - now)
        q = np.maximum(q + step * drift, 0.0)
        q[falling & (q < 1e-9 * float(q.max(initial=0.0)))] = 0.0
        now += step
        times.append(now)
        queues.append(q)
        total = float(q.sum())
        if total <= 1e-9 * size:
            end = "drained"
            break
        if total > growth_limit * size:
            end = "growing"
            break
        if last:
            break
    return FluidPath(np.array(times), np.array(queues), end)


def _start(network: AgentNetwork, start: Mapping[str, float]) -> np.ndarray:
    index = {s.name: i for i, s in enumerate(network.steps)}
    q = np.zeros(len(index))
    for name, value in start.items():
        if name not in index:
            raise InputError(f"step {name!r} in start is not known; {near_matches('steps', name, index)}")
        q[index[name]] = nonnegative(f"start[{name!r}]", value)
    if not q.any():
        raise InputError("start is 0 at every step; expected some requests at time 0")
    return q
