r"""Law of the wait of a request, by following it through the queue.

A request that stands j-th in the queue at an iteration boundary waits on as the requests ahead of it alone decide:
those behind it change no iteration that does not admit it. With y_j(phase; s) = E[exp(-s (time to its admission))],

    y_j(phase) = P(admitted now) + sum over outcomes with a < j of P(outcome) exp(-s T) y_{j-a}(next phase)

solved level by level. Arrivals see time averages: one that comes x into an iteration finds the queue left by it and the
arrivals of that x, and waits for the rest of it first,

    h_n(s) = int_0^T P(A(x) = n) exp(-s (T - x)) dx = (lambda h_{n-1} - P(A(T) = n))/(lambda - s)

The transform is inverted on the imaginary axis by a Fourier series whose period is far beyond the wait's tail. Kinks of
the distribution function leave an error below 5e-4 in the tests with the default number of terms: `wait_time_law` has
proved bounds; this is the other method, which checks it.
"""

from __future__ import annotations

__all__ = ["wait_distribution"]

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.answer import ChainAnswer
from tileq_theory.chain.arrivals_in import arrival_counts
from tileq_theory.chain.kernel import Kernel
from tileq_theory.errors import InputError, positive_int

_DECADES = 14.0
_MOST_WORK = 4e7


def wait_distribution(
    answer: ChainAnswer, times_s: Float[np.ndarray, "time"], *, terms: int = 1024
) -> Float[np.ndarray, "time"]:
    r"""Return P(wait <= t), the wait being the time from arrival to the iteration that prefills the request.

    Parameters
    ----------
    answer
        Of `iteration_chain`, with an unlimited waiting room and iterations of fixed length.
    times_s
        t, seconds, 0 or more.
    terms
        Terms of the Fourier series, 64 or more.

    Raises
    ------
    InputError
        A finite room, iterations of random length, a chain too large, or a number outside its domain.

    Examples
    --------
    >>> from tileq_theory import Fixed, IterationTime
    >>> from tileq_theory.chain import ChainSystem, PrefillFirst, iteration_chain
    >>> one = ChainSystem(time=IterationTime.constant(0.5), rule=PrefillFirst(), residents=1, prompt_tokens=1,
    ...                   outputs=Fixed(1))
    >>> law = wait_distribution(iteration_chain(one, rate_per_s=1.2), np.array([0.0, 0.25]))
    >>> bool(abs(law[0] - 0.4) < 1e-3), bool(abs(law[1] - 0.4 * np.exp(0.3)) < 1e-3)  # M/D/1
    (True, True)
    """
    if answer.system.waiting_room is not None or answer.system.duration_stages is not None:
        raise InputError("the wait's law needs waiting_room and duration_stages None; use the means of the answer")
    if positive_int("terms", terms) < 64 or np.any(~np.isfinite(times_s)) or np.any(times_s < 0):
        raise InputError(f"terms is {terms} and times_s {times_s}; expected 64 terms or more, times of 0 or more")
    kernel, rate = answer.kernel, answer.rate_per_s
    if kernel.size**2 * kernel.depth * terms > _MOST_WORK:
        raise InputError(f"the chain has {kernel.size} phases; expected fewer residents, or fewer terms, for its law")
    law = answer.waiting_law
    far = max(int(np.searchsorted(-law[1:], -1e-9)), 2)
    decay = rate * (law[far - 1] / law[far] - 1) if law[far] > 0 else rate
    period = max(_DECADES / decay, float(times_s.max(initial=0.0)))
    s = 1j * np.pi * np.arange(1, terms + 1) / period
    complement = ((1 - _transform(answer, kernel, s)) / s).real
    # a cosine series: its even extension has no jump at 0, where P(wait > t) starts from the busy share
    waves = np.cos(np.outer(times_s, s.imag))
    beyond = (answer.mean_wait_s + 2 * waves @ complement) / period
    beyond = np.where(times_s == 0, 1 - answer.idle_share, beyond)
    cdf: Float[np.ndarray, "time"] = np.clip(1 - beyond, 0.0, 1.0)
    return cdf


def _transform(answer: ChainAnswer, kernel: Kernel, s: np.ndarray) -> np.ndarray:
    """Return E[exp(-s W)]."""
    rate, law = answer.rate_per_s, answer.boundary_law
    counts = arrival_counts(rate, kernel.durations_s, None)
    used = int(np.searchsorted(np.cumsum(law.sum(axis=1)), 1 - 1e-11)) + 1
    y = _positions(kernel, s, used + counts.shape[1] + 1)
    stays = _stays(rate, kernel.durations_s, counts, s)
    total = np.full(s.shape, law[0, 0] / rate, dtype=complex)
    cycle = law[0, 0] / rate
    for level in range(min(used, len(law))):
        rows = np.flatnonzero(kernel.level == min(level, kernel.depth))
        weight = law[level, kernel.phase[rows]] * kernel.probability[rows]
        cycle += float(weight @ kernel.durations_s[kernel.duration[rows]])
        keys = np.stack([kernel.admitted[rows], kernel.duration[rows]])
        for admitted, duration in np.unique(keys[:, weight > 0], axis=1).T:
            mine = (keys[0] == admitted) & (keys[1] == duration)
            after = np.bincount(kernel.after[rows[mine]], weights=weight[mine], minlength=kernel.size)
            first = level - admitted + 1
            joined = y[first : first + counts.shape[1]] @ after
            total += (stays[duration] * joined).sum(axis=0)
    return np.asarray(total / cycle)


def _positions(kernel: Kernel, s: np.ndarray, most: int) -> np.ndarray:
    """Return y_j(phase; s), shape (position, frequency, phase); position 0 is not used."""
    size = kernel.size
    y = np.ones((most + 1, len(s), size), dtype=complex)
    shrink = np.exp(-np.outer(s, kernel.durations_s))
    for level in range(1, kernel.depth + 1):
        rows = np.flatnonzero(kernel.level == level)
        moves = np.zeros((kernel.depth, len(s), size, size), dtype=complex)
        now = np.zeros(size)
        for row in rows:
            if kernel.admitted[row] >= level:
                now[kernel.phase[row]] += kernel.probability[row]
            else:
                step = kernel.probability[row] * shrink[:, kernel.duration[row]]
                moves[kernel.admitted[row], :, kernel.phase[row], kernel.after[row]] += step
        local = np.linalg.inv(np.eye(size) - moves[0])
        for position in range(level, level + 1 if level < kernel.depth else most + 1):
            right = np.tile(now.astype(complex), (len(s), 1))
            for admitted in range(1, min(kernel.depth, position)):
                right += (moves[admitted] @ y[position - admitted, :, :, None])[..., 0]
            y[position] = (local @ right[..., None])[..., 0]
    return y


def _stays(rate: float, lengths: np.ndarray, counts: np.ndarray, s: np.ndarray) -> np.ndarray:
    """Return h_n(s) of each duration, shape (duration, n, frequency)."""
    stays = np.zeros((len(lengths), counts.shape[1], len(s)), dtype=complex)
    gap = rate - s
    stays[:, 0] = (np.exp(-np.outer(lengths, s)) - np.exp(-rate * lengths)[:, None]) / gap
    for n in range(1, counts.shape[1]):
        stays[:, n] = (rate * stays[:, n - 1] - counts[:, n, None]) / gap
    return stays
