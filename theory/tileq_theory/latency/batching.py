r"""Dynamic batching: one server takes up to b waiting requests at once, service of k requests lasts s(k).

Poisson arrivals of rate lambda; when the server becomes free it takes min(waiting, b) requests, and when nobody waits
it takes the next arrival alone. With N the number waiting at the end of a service,

    B = min(max(N, 1), b),   N' = max(N, 1) - B + Poisson(lambda s(B)),

a chain on the whole numbers, stable when lambda s(b) < b (take all: when lambda times the slope of s is below 1 for
long queues). The mean number in system over a cycle from N is n s + lambda s^2/2 with n = max(N, 1), s = s(B), plus an
idle time 1/lambda when N = 0; mean response is that ratio over lambda (Little). For s(k) = alpha k + tau0 and no limit
(take all) it equals Inoue's

    E[W] = alpha + tau0 + (1 + 2 lambda alpha)(E[B^2] - E[B])/(2 lambda E[B])

with the closed upper bounds phi0 and phi1 (arXiv 1912.06322); the load is rho = lambda alpha.
"""

from __future__ import annotations

__all__ = ["BatchQueue", "batch_queue", "batch_response_bounds"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, SolveError, finite, nonnegative, positive, positive_int

_MOST_STATES = 4000


@dataclass(frozen=True, slots=True, eq=False)
class BatchQueue:
    """Steady state of a batch queue.

    Parameters
    ----------
    response_s
        Mean response, waiting and service together (Inoue's E[W]), seconds.
    waiting_s
        Mean time before service starts, seconds.
    in_system
        Mean number in system.
    mean_batch, batch_second_moment
        E[B] and E[B^2] over batches.
    busy
        Share of time in service.
    left_behind
        P(N = n), n = 0, 1, ...: requests waiting at the end of a service.
    tail_bound
        Bound of P(N >= number of states kept); what was cut off is no more likely than this.
    """

    response_s: float
    waiting_s: float
    in_system: float
    mean_batch: float
    batch_second_moment: float
    busy: float
    left_behind: Float[np.ndarray, "state"]
    tail_bound: float


def _service(service: Callable[[int], float] | tuple[float, float]) -> Callable[[int], float]:
    if callable(service):
        return service
    alpha, tau0 = nonnegative("alpha_s", service[0]), nonnegative("tau0_s", service[1])
    if alpha + tau0 <= 0:
        raise InputError("alpha_s and tau0_s are both 0; expected that a batch takes some time")
    return lambda k: alpha * k + tau0


def batch_queue(
    *, rate_per_s: float, service: Callable[[int], float] | tuple[float, float], max_batch: int | None = None
) -> BatchQueue:
    """Return the exact steady state of dynamic batching, up to a truncation whose bound is reported.

    Parameters
    ----------
    rate_per_s
        lambda > 0.
    service
        s(k), seconds, for k requests, or the pair (alpha_s, tau0_s) of s(k) = alpha k + tau0. A function must not fall
        in k by more than rounding; without a limit of the batch it must grow at most linearly.
    max_batch
        b; None: take all.

    Raises
    ------
    InputError
        A rate at or above capacity (lambda s(b) >= b, or lambda alpha >= 1 when all are taken).
    SolveError
        So near to capacity that more than 4000 states would be needed.

    Examples
    --------
    >>> [round(1e3 * batch_queue(rate_per_s=r / 0.1438e-3, service=(0.1438e-3, 1.8874e-3)).response_s, 4)
    ...  for r in (0.3, 0.5, 0.7)]
    [4.2248, 5.9019, 9.8176]
    >>> round(batch_queue(rate_per_s=0.5, service=(0.0, 1.0), max_batch=1).response_s, 9)  # M/D/1
    1.5
    """
    rate, time = positive("rate_per_s", rate_per_s), _service(service)
    limit = None if max_batch is None else positive_int("max_batch", max_batch)
    _refuse_overload(rate, time, limit)
    states, bound = _truncation(rate, time, limit)
    waiting = np.maximum(np.arange(states), 1)
    batch = waiting if limit is None else np.minimum(waiting, limit)
    seconds = np.array([_time_of(time, int(k)) for k in batch])
    law = _solve(rate, waiting - batch, seconds)
    return _reading(rate, law, waiting, batch, seconds, bound)


def _time_of(time: Callable[[int], float], size: int) -> float:
    seconds = finite(f"service({size})", time(size))
    if seconds <= 0:
        raise InputError(f"service({size}) is {seconds!r}; expected a time above 0 s")
    return seconds


def _refuse_overload(rate: float, time: Callable[[int], float], limit: int | None) -> None:
    size = limit if limit is not None else 2**20
    load = rate * _time_of(time, size) / size
    if limit is None:  # the slope at large batches is what counts
        load = rate * (_time_of(time, 2 * size) - _time_of(time, size)) / size
    if load >= 1:
        what = "rate_per_s * service(max_batch)/max_batch" if limit else "rate_per_s * alpha_s"
        raise InputError(f"{what} is {load:.6g}; expected it below 1: the rate must be below {rate / load:.6g}/s")


def _truncation(rate: float, time: Callable[[int], float], limit: int | None) -> tuple[int, float]:
    """Return the states to keep and the bound of P(N >= states), by a drift argument with V(n) = z^n.

    Where E[V(N')|n] <= g V(n) beyond a finite set, E[V] <= max over the set of (E[V(N')|n] - g V(n)) / (1 - g), and
    P(N >= K) <= E[V] z^-K (Markov). The z with the fewest states is taken.
    """
    best_states, best_bound, top = math.inf, 1.0, _largest_base(rate, time, limit)
    for share in (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8):
        states, bound = _states_for(rate, time, limit, 1 + share * (top - 1))
        if states < best_states:
            best_states, best_bound = states, bound
    if best_states > _MOST_STATES:
        raise SolveError(
            f"this rate is so near to capacity that more than {_MOST_STATES} states would be needed; lower the rate"
        )
    return int(best_states), best_bound


def _largest_base(rate: float, time: Callable[[int], float], limit: int | None) -> float:
    """Return the largest z at which z^n still drifts down for long queues: lambda (z - 1) slope = ln z."""
    slope = (
        _time_of(time, limit) / limit if limit is not None else (_time_of(time, 2**21) - _time_of(time, 2**20)) / 2**20
    )
    pull = rate * slope
    if pull <= 0:
        return 4.0
    low, high = 1.0, 2.0
    while pull * (high - 1) < math.log(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if pull * (middle - 1) < math.log(middle) else (low, middle)
    return low


def _states_for(rate: float, time: Callable[[int], float], limit: int | None, z: float) -> tuple[float, float]:
    log_z = math.log(z)

    def log_next(n: int) -> float:  # log E[V(N')|n]
        waiting = max(n, 1)
        batch = waiting if limit is None else min(waiting, limit)
        return (waiting - batch) * log_z + rate * _time_of(time, batch) * (z - 1)

    # with a limit the drift is the same for every n >= limit; without one it falls with n
    keep = math.log(0.5) if limit is None else log_next(limit) - limit * log_z
    if keep >= 0:
        return math.inf, 1.0
    worst, n = log_next(0), 1
    while n < _MOST_STATES and (log_next(n) - n * log_z > keep * (1 - 1e-9) or (limit is not None and n < limit)):
        worst = max(worst, log_next(n))
        n += 1
    if n >= _MOST_STATES:
        return math.inf, 1.0
    log_mean = worst - math.log(-math.expm1(keep))
    needed = max(math.ceil((log_mean + 34.5 + 2 * math.log(max(n, 10))) / log_z), n + 8)  # about 1e-15/n^2
    return needed, math.exp(min(0.0, log_mean - needed * log_z))


def _solve(rate: float, rest: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the stationary law; arrivals beyond the last state are put on it."""
    from scipy.special import gammaln

    size = rest.size
    mean = rate * seconds
    jump = np.arange(size)[None, :] - rest[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(
            jump >= 0, jump * np.log(mean)[:, None] - mean[:, None] - gammaln(np.maximum(jump, 0) + 1), -np.inf
        )
    step = np.exp(logs)
    step[:, -1] += np.maximum(1 - step.sum(axis=1), 0.0)
    return _stationary(step)


def _stationary(step: np.ndarray) -> np.ndarray:
    """Return the law p = p P by one LU solve with the normalisation in place of the last equation."""
    from scipy.linalg import solve

    size = step.shape[0]
    matrix = np.eye(size) - step.T
    matrix[-1, :] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    law: np.ndarray = np.maximum(solve(matrix, right), 0.0)
    law /= law.sum()
    return law


def _reading(rate: float, law: Any, waiting: Any, batch: Any, seconds: Any, bound: float) -> BatchQueue:
    idle = float(law[0]) / rate
    length = float(law @ seconds) + idle
    area = float(law @ (waiting * seconds + rate * seconds**2 / 2))
    in_system = area / length
    mean_batch = float(law @ batch)
    in_service = float(law @ (batch * seconds)) / length
    return BatchQueue(
        response_s=in_system / rate,
        waiting_s=max(in_system - in_service, 0.0) / rate,
        in_system=in_system,
        mean_batch=mean_batch,
        batch_second_moment=float(law @ (batch.astype(float) ** 2)),
        busy=1 - idle / length,
        left_behind=law,
        tail_bound=bound,
    )


def batch_response_bounds(*, rate_per_s: float, alpha_s: float, tau0_s: float) -> tuple[float, float]:
    r"""Return (phi0, phi1), closed upper bounds of the mean response of take-all batching, seconds.

    phi0 = (alpha + tau0)/(2 (1 - lambda alpha)) (1 + 2 lambda tau0 + (1 - lambda tau0)/(1 + lambda alpha))
    phi1 = 1.5 tau0/(1 - lambda alpha) + (alpha/2)(lambda alpha + 2)/(1 - (lambda alpha)^2)

    The mean response is at most the smaller of the two.

    Raises
    ------
    InputError
        lambda alpha >= 1, or a parameter outside its domain.

    References
    ----------
    Inoue, arXiv 1912.06322.

    Examples
    --------
    >>> bounds = batch_response_bounds(rate_per_s=0.7 / 0.1438, alpha_s=0.1438, tau0_s=1.8874)
    >>> min(bounds) >= 9.8176
    True
    """
    rate, alpha, tau0 = positive("rate_per_s", rate_per_s), nonnegative("alpha_s", alpha_s), positive("tau0_s", tau0_s)
    load = rate * alpha
    if load >= 1:
        raise InputError(f"rate_per_s * alpha_s is {load:.6g}; expected it below 1")
    phi0 = (alpha + tau0) / (2 * (1 - load)) * (1 + 2 * rate * tau0 + (1 - rate * tau0) / (1 + load))
    phi1 = 1.5 * tau0 / (1 - load) + alpha / 2 * (load + 2) / (1 - load * load)
    return phi0, phi1
