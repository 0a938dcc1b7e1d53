r"""Paths of the fluid model: `fluid_path`.

Between surfaces the field is integrated by an explicit Runge-Kutta rule (scipy solve_ivp) with the surfaces as
terminal events; the path is put on a surface exactly where it meets it and goes on from there with the field that is
in force on it.
"""

from __future__ import annotations

__all__ = ["FluidPath", "field_at", "fluid_path"]

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, SolveError, positive, positive_int
from tileq_theory.fluid.policies import FluidPolicy
from tileq_theory.fluid.system import FluidState, FluidSystem

_MOST_SEGMENTS = 20_000
_HAIR = 1e-6  # relative: how far a path leaves a surface before it can meet it again


@dataclass(frozen=True, slots=True, eq=False)
class FluidPath:
    """A path of the fluid model.

    Parameters
    ----------
    time_s
        Times, seconds, from 0.
    waiting_tokens, decoding, kv_tokens, backlog_tokens
        The state at those times, and prefill left + decode left.
    switches_s
        Times at which the path met a surface.
    """

    time_s: Float[np.ndarray, "time"]
    waiting_tokens: Float[np.ndarray, "time"]
    decoding: Float[np.ndarray, "time"]
    kv_tokens: Float[np.ndarray, "time"]
    backlog_tokens: Float[np.ndarray, "time"]
    switches_s: tuple[float, ...]

    @property
    def drained_s(self) -> float:
        """First time at which nobody waits (inf: not on this path)."""
        empty = np.flatnonzero(self.waiting_tokens <= 0)
        return float(self.time_s[empty[0]]) if empty.size else math.inf

    def slope_tokens_per_s(self) -> float:
        """Return the backlog's mean slope over the second half of the path, tokens a second."""
        half = int(np.searchsorted(self.time_s, self.time_s[-1] / 2))
        return float(np.diff(self.backlog_tokens[[half, -1]])[0] / np.diff(self.time_s[[half, -1]])[0])


def field_at(system: FluidSystem, policy: FluidPolicy, state: FluidState, mode: int = 0) -> tuple[float, float, float]:
    r"""Return (dw/dt, dd/dt, dk/dt): tokens, residents and tokens a second.

    Examples
    --------
    >>> from tileq_theory import Demand, IterationTime
    >>> from tileq_theory.fluid import DecodeFirst
    >>> demand = Demand(100, 50, 50 * 150, 5050, 7500, 51)
    >>> node = FluidSystem(IterationTime.constant(0.1), demand, rate_per_s=10, token_budget=512, residents=256)
    >>> tuple(round(x, 6) for x in field_at(node, DecodeFirst(), FluidState(1e5, 112, 112 * 150)))
    (-3000.0, 17.6, 1760.0)
    """
    flow = policy.flow(system, state, mode)
    prefill, decode = flow.prefill_tokens / flow.cycle_s, flow.decode_tokens / flow.cycle_s
    idle = state.waiting_tokens <= 0
    waiting = system.rate_per_s * system.prompt - prefill
    return (
        # where nobody waits rounding must not take the path below 0
        max(waiting, 0.0) if idle else waiting,
        prefill / system.prompt - decode / system.steps,
        prefill + decode - decode * system.release(state),
    )


def fluid_path(
    system: FluidSystem,
    policy: FluidPolicy,
    *,
    start: FluidState | None = None,
    horizon_s: float,
    points: int = 200,
    until_drained: bool = False,
) -> FluidPath:
    r"""Return the path from `start` over `horizon_s` seconds.

    Parameters
    ----------
    system, policy
        What flows, and by which rule.
    start
        The state at time 0 (empty by default); its KV must be held by someone.
    horizon_s
        Seconds, above 0.
    points
        Times to report beside the switches, at least 2.
    until_drained
        Stop when nobody waits any more.

    Raises
    ------
    InputError
        A start outside the node's limits, or a number outside its domain.

    Examples
    --------
    >>> from tileq_theory import Demand, IterationTime
    >>> from tileq_theory.fluid import DecodeFirst
    >>> demand = Demand(100, 50, 50 * 150, 5050, 7500, 51)
    >>> node = FluidSystem(IterationTime.constant(0.1), demand, rate_per_s=10, token_budget=512, residents=256)
    >>> path = fluid_path(node, DecodeFirst(), horizon_s=60.0)
    >>> round(float(path.decoding[-1]), 3)  # Little's law: lambda D T
    50.0
    """
    horizon = positive("horizon_s", horizon_s)
    if positive_int("points", points) < 2:
        raise InputError(f"points is {points!r}; expected 2 or more")
    here = _start(system, start or FluidState())
    grid = np.linspace(0.0, horizon, points)
    now, mode = 0.0, policy.next_mode(system, here, 0)
    times, states, switches = [0.0], [_array(here)], []
    for _ in range(_MOST_SEGMENTS):
        end, reached, met = _segment(system, policy, here, mode, (now, horizon), grid)
        times += end[0]
        states += end[1]
        here, now = reached, times[-1]
        mode = policy.next_mode(system, here, mode)
        if not met or (until_drained and here.waiting_tokens <= 0):
            break
        switches.append(now)
    else:
        raise SolveError(f"path met more than {_MOST_SEGMENTS} surfaces; take a shorter horizon_s")
    table = np.array(states)
    table[table[:, 0] <= 1e-9 * system.prompt, 0] = 0.0
    backlog = np.array([system.backlog_tokens(_state(row)) for row in table])
    return FluidPath(np.array(times), table[:, 0], table[:, 1], table[:, 2], backlog, tuple(switches))


Segment = tuple[list[float], list[np.ndarray]]


def _segment(
    system: FluidSystem,
    policy: FluidPolicy,
    start: FluidState,
    mode: int,
    span: tuple[float, float],
    grid: np.ndarray,
) -> tuple[Segment, FluidState, bool]:
    """Integrate to the next surface or the end; return (times, states), the state there, whether a surface was met."""
    from scipy.integrate import solve_ivp

    surfaces = _surfaces(system, policy, start)
    wanted = grid[(grid > span[0]) & (grid <= span[1])]
    solution: Any = solve_ivp(
        lambda _, y: field_at(system, policy, _off_surfaces(system, start, y), mode),
        span,
        _array(start),
        method="RK45",
        t_eval=wanted,
        events=[_event(*surface) for surface in surfaces],
        rtol=1e-6,
        atol=1e-7 * np.array([system.prompt, 1.0, system.prompt]),
        max_step=max((span[1] - span[0]) / 20, 1e-9),
    )
    if not solution.success:
        raise SolveError(f"the path could not be followed beyond {span[0]:.6g} s: {solution.message}")
    times = [float(t) for t in solution.t]
    states = [np.maximum(y, 0.0) for y in np.asarray(solution.y).T] if times else []
    if solution.status == 0:
        last = _state(states[-1]) if states else start
        return (times, states), last, False
    which = next(i for i, t in enumerate(solution.t_events) if len(t))
    reached = np.maximum(solution.y_events[which][0], 0.0)
    coordinate, value, _ = surfaces[which]
    reached[coordinate] = value
    return ([*times, float(solution.t_events[which][0])], [*states, reached]), _state(reached), True


def _walls(system: FluidSystem) -> list[tuple[int, float, float]]:
    """Return (coordinate, value, direction in which a path meets it) of the surfaces that change the field."""
    walls = [(0, 0.0, -1.0), (1, float(system.residents), 1.0)]
    return [*walls, (2, system.kv_capacity_tokens, 1.0)] if math.isfinite(system.kv_capacity_tokens) else walls


def _surfaces(system: FluidSystem, policy: FluidPolicy, start: FluidState) -> list[tuple[int, float, float]]:
    """Return (coordinate, value, direction) of what ends a segment: a surface met, or left by more than a hair."""
    here, found = _array(start), []
    for coordinate, value, direction in _walls(system):
        if direction * (here[coordinate] - value) < 0:
            found.append((coordinate, value, direction))
        else:
            found.append((coordinate, value - direction * _HAIR * _scales(system)[coordinate], -direction))
    thresholds = [value for value in policy.thresholds(system) if value < min(here[1], system.residents)]
    return [*found, *((1, value, -1.0) for value in thresholds)]


def _scales(system: FluidSystem) -> tuple[float, float, float]:
    """Return what is much on each coordinate."""
    return system.prompt, float(system.residents), system.kv_capacity_tokens


def _off_surfaces(system: FluidSystem, start: FluidState, y: np.ndarray) -> FluidState:
    """Return the state whose field is in force at y: a segment that starts off a surface stays off it to its end."""
    here, point = _array(start), np.array(y)
    for coordinate, value, direction in _walls(system):
        edge = value - direction * _HAIR / 2 * _scales(system)[coordinate]
        if direction * (here[coordinate] - value) < 0 and direction * (point[coordinate] - edge) > 0:
            point[coordinate] = edge
    return _state(point)


def _event(coordinate: int, value: float, direction: float) -> Callable[[float, np.ndarray], float]:
    """Return solve_ivp's terminal event: the coordinate passes the value in the direction."""

    def event(_: float, y: np.ndarray) -> float:
        return float(y[coordinate] - value)

    event.terminal = True  # type: ignore[attr-defined]
    event.direction = direction  # type: ignore[attr-defined]
    return event


def _start(system: FluidSystem, start: FluidState) -> FluidState:
    if start.decoding > system.residents or start.kv_tokens > system.kv_capacity_tokens:
        raise InputError(
            f"start has {start.decoding:g} residents and {start.kv_tokens:g} KV tokens; expected at most "
            f"residents = {system.residents} and kv_capacity_tokens = {system.kv_capacity_tokens:g}"
        )
    if start.decoding == 0 and start.kv_tokens > 0:
        raise InputError(f"start has {start.kv_tokens:g} KV tokens and no resident to hold them; expected decoding > 0")
    if start.decoding > 0 and start.kv_tokens == 0:  # residents hold what they hold at rest
        return replace(start, kv_tokens=min(start.decoding * system.context, system.kv_capacity_tokens))
    return start


def _array(state: FluidState) -> np.ndarray:
    return np.array([state.waiting_tokens, state.decoding, state.kv_tokens])


def _state(y: np.ndarray) -> FluidState:
    w, d, k = (max(float(v), 0.0) for v in y)
    return FluidState(w, d, k)
