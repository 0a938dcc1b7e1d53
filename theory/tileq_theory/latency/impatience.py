r"""M/G/1 with impatience, first come first served, exactly: M/G/1+G.

A request that would wait w leaves unserved with probability P(patience < w). The work ahead of an arrival has an atom
p0 at 0 and a density v that solves

    v(x) = lambda p0 P(S > x) + lambda int_0^x v(u) G(u) P(S > x - u) du,   G(u) = P(patience >= u),

normalised by p0 + int v = 1 (Baccelli, Boyer, Hebuterne 1984). Any load is allowed where patience is finite. Served
requests wait E[u G(u)]/E[G(u)]. For a patience that is constant, tau, v on (0, tau] is proportional to the density of
M/G/1 without impatience (de Kok and Tijms 1985), and P(leave) = (1 - rho) Omega/(1 - rho Omega), Omega = P(W > tau).

The equation is solved by the trapezoid rule on a grid, at two steps, extrapolated; `error` is the difference between
the two, an estimate and not a bound.
"""

from __future__ import annotations

__all__ = ["ImpatientQueue", "fixed_patience", "impatient_queue"]

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, nonnegative, positive
from tileq_theory.latency.service import ServiceLaw

Grid = Float[np.ndarray, "time"]


@dataclass(frozen=True, slots=True)
class ImpatientQueue:
    """Steady state.

    Parameters
    ----------
    leave_share
        Share of requests that leave unserved.
    waiting_s
        Mean waiting of those served, seconds.
    carried_load
        Share of time the server is busy.
    error
        Change of leave_share between the two grids.
    """

    leave_share: float
    waiting_s: float
    carried_load: float
    error: float


def impatient_queue(
    *, rate_per_s: float, service: ServiceLaw, patience: Callable[[Grid], Grid], horizon_s: float, steps: int = 1024
) -> ImpatientQueue:
    """Return the steady state of M/G/1 with patience of any law.

    Parameters
    ----------
    rate_per_s, service
        lambda >= 0 and the law of S, any load.
    patience
        P(patience >= u) as a vectorised function of u >= 0 in seconds, at most 1, never rising.
    horizon_s
        Time at which (nearly) everyone has left; work above it is not counted.
    steps
        Coarse grid steps; the fine grid has twice as many.

    Raises
    ------
    InputError
        A patience function outside [0, 1], or a parameter outside its domain.

    Examples
    --------
    >>> law = ServiceLaw.exponential(1.0)
    >>> queue = impatient_queue(rate_per_s=1.0, service=law, patience=lambda u: np.exp(-u), horizon_s=40.0)
    >>> round(queue.leave_share, 4)  # M/M/1+M, all rates 1: 1 - (1 - 1/e)/1
    0.3679
    """
    rate, end = nonnegative("rate_per_s", rate_per_s), positive("horizon_s", horizon_s)
    coarse, fine = (_solve(rate, service, patience, end, n) for n in (steps, 2 * steps))
    values = (4 * fine - coarse) / 3  # the trapezoid rule errs by a multiple of the step squared
    leave, waiting, busy = (float(v) for v in values)
    return ImpatientQueue(min(max(leave, 0.0), 1.0), max(waiting, 0.0), busy, abs(float(fine[0] - coarse[0])))


def fixed_patience(*, rate_per_s: float, service: ServiceLaw, patience_s: float, steps: int = 1024) -> ImpatientQueue:
    """Return the steady state when everybody leaves after waiting `patience_s` > 0 seconds.

    Examples
    --------
    >>> law = ServiceLaw.exponential(1.0)
    >>> omega = 0.5 * np.exp(-0.5 * 2.0)
    >>> exact = 0.5 * omega / (1 - 0.5 * omega)
    >>> bool(abs(fixed_patience(rate_per_s=0.5, service=law, patience_s=2.0).leave_share - exact) < 1e-6)
    True
    """
    tau, rate = positive("patience_s", patience_s), nonnegative("rate_per_s", rate_per_s)
    # above tau nobody enters: the mass there follows from the flow balance, so the grid ends at tau
    coarse, fine = (_fixed(rate, service, tau, n) for n in (steps, 2 * steps))
    leave, waiting, busy = (float(v) for v in (4 * fine - coarse) / 3)
    return ImpatientQueue(min(max(leave, 0.0), 1.0), max(waiting, 0.0), busy, abs(float(fine[0] - coarse[0])))


def _density(rate: float, service: ServiceLaw, stays: Grid, grid: Grid) -> Grid:
    """Return v/p0 on the grid by the trapezoid rule, marching forward."""
    step = grid[1] - grid[0]
    tail = _tail_values(service, grid)
    v = np.empty_like(grid)
    v[0] = rate * tail[0]
    entering = np.empty_like(grid)
    entering[0] = v[0] * stays[0]
    corner = 1 - rate * step / 2 * tail[0] * stays
    if not (corner > 0).all():
        raise InputError("the grid is too coarse for this rate (rate_per_s * step >= 2); give more steps")
    for i in range(1, grid.size):
        past = float(entering[1:i] @ tail[i - 1 : 0 : -1]) + entering[0] * tail[i] / 2
        v[i] = (rate * tail[i] + rate * step * past) / corner[i]
        entering[i] = v[i] * stays[i]
    return v


def _tail_values(service: ServiceLaw, grid: Grid) -> Grid:
    """Return P(S > x) on the grid; at a jump the mean of both sides, which keeps the trapezoid rule of second order."""
    after = service.survival(grid)
    if not service.atoms_s.size:
        return after
    # averages over grid cells: exact integrals of the step function, whatever the atoms' places
    from tileq_theory.latency.waiting import residual_cdf

    step = float(grid[1] - grid[0])
    edges = np.concatenate([[0.0], (grid[1:] + grid[:-1]) / 2, [grid[-1] + step / 2]])
    mass = np.diff(residual_cdf(service, edges)) * service.mean_s
    width = np.diff(edges)
    out: Grid = mass / width
    return out


def _trapezoid(values: Grid, step: float) -> float:
    return float(step * (values.sum() - (values[0] + values[-1]) / 2))


def _solve(
    rate: float, service: ServiceLaw, patience: Callable[[Grid], Grid], end: float, steps: int
) -> Float[np.ndarray, "3"]:
    grid = np.linspace(0.0, end, steps + 1)
    stays = np.asarray(patience(grid), dtype=float)
    if stays.shape != grid.shape or not ((stays >= 0) & (stays <= 1)).all():
        raise InputError("patience returned values outside [0, 1]; expected P(patience >= u) at each u")
    v, step = _density(rate, service, stays, grid), float(grid[1])
    served = 1 + _trapezoid(v * stays, step)
    total = 1 + _trapezoid(v, step)
    return np.array([1 - served / total, _trapezoid(v * stays * grid, step) / served, 1 - 1 / total])


def _fixed(rate: float, service: ServiceLaw, tau: float, steps: int) -> Float[np.ndarray, "3"]:
    grid = np.linspace(0.0, tau, steps + 1)
    v, step = _density(rate, service, np.ones_like(grid), grid), float(grid[1])
    served = 1 + _trapezoid(v, step)  # over p0
    # busy = rate E[S] P(served): p0 = 1 - busy and P(served) = p0 served
    p0 = 1 / (1 + rate * service.mean_s * served)
    return np.array([1 - p0 * served, _trapezoid(v * grid, step) / served, 1 - p0])
