r"""From iteration boundaries to all of time.

An iteration that starts with w waiting and d decoding, takes in a and lasts T holds w + d requests and those that have
arrived since. By renewal reward, with pi the law at boundaries and e(n) of `arrivals_in`,

    P(N = n) = sum_s pi_s e_s(n - w - d)/sum_s pi_s E[T_s],    idle: a stay of mean 1/lambda with nobody

and likewise for those waiting (w - a and the arrivals). The mean is
E[N] = sum_s pi_s ((w + d) E[T] + lambda E[T^2]/2) over the same denominator. With
Little's law, over requests that are not lost,

    mean wait = E[waiting]/lambda,   mean response = E[N]/lambda

and since arrivals after a request's own do not delay its admission, its wait W satisfies the distributional form of
Little's law: the number waiting is Poisson(lambda W) (Keilson and Servi, Operations Research Letters 7, 1988), hence
E[W^2] = E[Nq (Nq - 1)]/lambda^2.
"""

from __future__ import annotations

__all__ = ["TimeMeans", "time_means"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.arrivals_in import arrival_stays, mean_square_s2
from tileq_theory.chain.kernel import Kernel


@dataclass(frozen=True, slots=True)
class TimeMeans:
    """Time averages of a chain; laws are over n = 0, 1, ...; `prefilling` counts requests inside their prefill."""

    in_system: float
    waiting: float
    decoding: float
    prefilling: float
    idle: float
    full: float
    in_system_law: Float[np.ndarray, "in_system"]
    waiting_law: Float[np.ndarray, "waiting"]
    cycle_s: float


def time_means(
    kernel: Kernel,
    counts: Float[np.ndarray, "duration count"],
    law: Float[np.ndarray, "level phase"],
    rate_per_s: float,
    stages: int | None,
    room: int | None = None,
) -> TimeMeans:
    """Return the time means of the chain whose boundary law (any scale) is `law`."""
    visits = _visits(kernel, law)
    level, phase, admitted, duration, weight = visits
    lengths = kernel.durations_s[duration]
    idle = float(law[0, 0]) / rate_per_s
    cycle = float(weight @ lengths) + idle
    stays = arrival_stays(rate_per_s, counts)
    queue, decoding = level - admitted, kernel.decoding[phase]
    waiting_law = _spread(queue, duration, weight, stays, room)
    served = admitted + decoding
    top = (len(law) - 1 if room is None else room) + int(served.max(initial=0)) + stays.shape[1]
    in_system_law = np.zeros(top + 1)
    order = np.lexsort((duration, served))
    keys = served[order] * len(kernel.durations_s) + duration[order]
    for part in np.split(order, np.flatnonzero(np.diff(keys)) + 1):
        count = int(served[part[0]])
        spread = _spread(queue[part], duration[part], weight[part], stays, room)
        in_system_law[count : count + len(spread)] += spread
    waiting_law[0] += idle
    in_system_law[0] += idle
    in_system_law, waiting_law = in_system_law / cycle, waiting_law / cycle
    decodes = float(weight @ (decoding * lengths)) / cycle
    prefills = float(weight @ (admitted * lengths)) / cycle
    if room is None:
        growth = rate_per_s * mean_square_s2(kernel.durations_s, stages)[duration] / 2
        waiting = float(weight @ (queue * lengths + growth)) / cycle
    else:
        waiting = float(np.arange(len(waiting_law)) @ waiting_law)
    return TimeMeans(
        in_system=waiting + prefills + decodes,
        waiting=waiting,
        decoding=decodes,
        prefilling=prefills,
        idle=idle / cycle,
        full=0.0 if room is None else float(waiting_law[room:].sum()),
        in_system_law=in_system_law,
        waiting_law=waiting_law,
        cycle_s=cycle,
    )


def _visits(kernel: Kernel, law: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return (level, phase, admitted, duration, weight) of each kind of iteration, weighted by how often it starts."""
    # rows that differ only in the phase after are one kind of iteration
    keys = np.stack([kernel.level, kernel.phase, kernel.admitted, kernel.duration])
    kinds, inverse = np.unique(keys, axis=1, return_inverse=True)
    share = np.bincount(inverse.ravel(), weights=kernel.probability)
    columns = []
    for level in range(min(kernel.depth, len(law))):
        mine = kinds[0] == level
        columns.append((kinds[:, mine], share[mine] * law[level, kinds[1, mine]]))
    deep = kinds[0] == kernel.depth
    for level in range(kernel.depth, len(law)):
        same = kinds[:, deep].copy()
        same[0] = level
        columns.append((same, share[deep] * law[level, same[1]]))
    level, phase, admitted, duration = np.concatenate([c[0] for c in columns], axis=1)
    return level, phase, admitted, duration, np.concatenate([c[1] for c in columns])


def _spread(
    queue: np.ndarray, duration: np.ndarray, weight: np.ndarray, stays: np.ndarray, room: int | None
) -> np.ndarray:
    """Return the time spent with n waiting, n = 0, 1, ...; arrivals beyond a full room are lost."""
    law = np.zeros(int(queue.max(initial=0)) + stays.shape[1])
    order = np.argsort(duration, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(duration[order])) + 1):
        starts = np.bincount(queue[part], weights=weight[part])
        spent = np.convolve(starts, stays[duration[part[0]]])
        law[: len(spent)] += spent
    if room is None or len(law) <= room + 1:
        return law if room is None else np.pad(law, (0, room + 1 - len(law)))
    law[room] = law[room:].sum()
    return law[: room + 1]
