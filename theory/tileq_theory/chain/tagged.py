r"""Laws of waiting and of TTFT: a tagged request followed from its arrival, tick by tick.

Arrivals see time averages (Wolff, Operations Research 30, 1982): with weight pi_s e_n(x) dx the tagged request comes x
into an iteration of kind s, behind the queue left by it and n arrivals. What is left of the iteration passes; then, at
each boundary, it stands j-th in the queue and the rule admits a < j before it, or it. Those behind change none of
this, so (j, phase) is a Markov chain with absorption. Lengths are whole ticks of `ticks.Clock`, what is left of the
first iteration is rounded up to a tick, and the mass at each (tick, j, phase) is moved forward.

The length of the iteration that admits it depends on those behind, who number Poisson(lambda x (time waited)),
independently of all that went before them. Under the paper convention the first token comes with the first iteration in
which residents decode; until then the chain (waiting, phase) goes on from there.
"""

from __future__ import annotations

__all__ = ["ttft_law", "wait_time_law"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.answer import ChainAnswer
from tileq_theory.chain.arrivals_in import arrival_counts
from tileq_theory.chain.follow import compiled, follow_first_token, follow_wait
from tileq_theory.chain.kernel import Kernel
from tileq_theory.chain.latency_law import LatencyLaw
from tileq_theory.chain.tagged_start import arrival_masses
from tileq_theory.chain.tagged_table import check_order, outcome_table, takes_one
from tileq_theory.chain.ticks import Clock, common_clock, nearest_clock
from tileq_theory.errors import InputError, positive_int

_LEAST = 1e-17
_LEFT = 1e-9
_MOST_CELLS = 6e7
_MOST_WORK = 6e9
_LEAST_RESOLUTION = 8


@dataclass(frozen=True, slots=True, eq=False)
class _Followed:
    """The tagged request's way to its admission."""

    answer: ChainAnswer
    clock: Clock
    seen: Float[np.ndarray, "tick position phase"]
    idle: float
    lost: float
    doubt: float
    offset_s: float

    def admissions(self) -> Float[np.ndarray, "tick"]:
        """Return the probability that the wait ends at each tick."""
        kernel = self.answer.kernel
        share = np.zeros((kernel.depth, kernel.size))
        for j in range(1, kernel.depth):
            rows = (kernel.level == j) & (kernel.admitted >= j)
            np.add.at(share[j], kernel.phase[rows], kernel.probability[rows])
        ends = np.einsum("kjs,js->k", self.seen, share)
        ends[0] += self.idle
        return np.asarray(ends)


def wait_time_law(answer: ChainAnswer, *, resolution: int = 256) -> LatencyLaw:
    r"""Return the law of the wait: arrival to the start of the iteration that prefills the request.

    Parameters
    ----------
    answer
        Of `iteration_chain`, with iterations of fixed length (`duration_stages` None). With a finite waiting room the
        law is that of the requests that are let in.
    resolution
        Most ticks in a typical iteration, 8 or more; taken less fine where the chain is large.

    Raises
    ------
    InputError
        Iterations of random length, a rule by which those behind decide about those before them, a chain too large.

    Examples
    --------
    M/D/1, one-token jobs of .5 s, 1.2 a second: P(W <= 0.25) = .4 exp(.3) (Erlang).

    >>> from tileq_theory import Fixed, IterationTime
    >>> from tileq_theory.chain import ChainSystem, PrefillFirst, iteration_chain
    >>> one = ChainSystem(time=IterationTime.constant(0.5), rule=PrefillFirst(), residents=1, prompt_tokens=1,
    ...                   outputs=Fixed(1))
    >>> law = wait_time_law(iteration_chain(one, rate_per_s=1.2))
    >>> bool(abs(law.cdf(0.25) - 0.4 * np.exp(0.3)) < 1e-9), law.stretch < 1e-12
    (True, True)
    """
    followed = _follow(answer, resolution, 0)
    at_ticks = np.minimum(np.cumsum(followed.admissions()), 1.0)
    clock = followed.clock
    return LatencyLaw("wait", clock.tick_s, at_ticks, clock.stretch, followed.doubt, followed.lost, answer.mean_wait_s)


def ttft_law(answer: ChainAnswer, *, resolution: int = 256) -> LatencyLaw:
    r"""Return the law of the time to first token: end of the prefill (engine), of the first decode step (paper).

    Parameters
    ----------
    answer, resolution
        As for `wait_time_law`, with an unlimited waiting room.

    Raises
    ------
    InputError
        As for `wait_time_law`, or a finite waiting room (who stands behind then depends on how full it was).

    Examples
    --------
    >>> from tileq_theory import Fixed, IterationTime
    >>> from tileq_theory.chain import ChainSystem, PrefillFirst, iteration_chain
    >>> one = ChainSystem(time=IterationTime.constant(0.5), rule=PrefillFirst(), residents=1, prompt_tokens=1,
    ...                   outputs=Fixed(1))
    >>> law = ttft_law(iteration_chain(one, rate_per_s=1.2))
    >>> bool(abs(law.cdf(0.75) - 0.4 * np.exp(0.3)) < 1e-9)
    True
    """
    if answer.system.waiting_room is not None:
        raise InputError("the law of TTFT needs waiting_room None; use wait_time_law, or the means of the answer")
    kernel, rate = answer.kernel, answer.rate_per_s
    emits = answer.system.convention == "engine"
    columns = kernel.depth + (0 if emits else answer.system.residents) + 1
    followed = _follow(answer, resolution, columns)
    clock, used = followed.clock, len(followed.seen)
    table = outcome_table(kernel, merge_after=emits)
    waited = rate * clock.tick_s * np.maximum(np.arange(used) - 0.5, 0.0)
    seen = followed.seen
    seen[0, 1, 0] += followed.idle  # to an idle node: first in the queue at once, nobody behind
    first, dropped = compiled(follow_first_token)(
        seen,
        _poisson(waited, columns),
        table.begin,
        table.admitted,
        table.after,
        clock.ticks[table.duration],
        table.duration,
        table.probability,
        table.stepped,
        arrival_counts(rate, kernel.durations_s, None),
        kernel.depth,
        emits,
        int(clock.ticks.max()),
        answer.system.residents,
        _LEAST,
    )
    misplaced = followed.doubt
    if not (emits and takes_one(kernel)):
        # laws of Poisson(m) and Poisson(m') differ by |m - m'| at most; to second order about the middle of a tick
        within = rate * followed.offset_s + (rate * clock.tick_s / 2) ** 2
        misplaced += within + rate * clock.stretch * answer.mean_wait_s
    at_ticks = np.minimum(np.cumsum(first), 1.0)
    return LatencyLaw(
        "ttft", clock.tick_s, at_ticks, clock.stretch, misplaced, followed.lost + dropped, answer.mean_ttft_s
    )


def _follow(answer: ChainAnswer, resolution: int, columns: int) -> _Followed:
    """Follow the tagged request to its admission; `columns`: requests behind that will be told apart afterwards."""
    ticks = positive_int("resolution", resolution)
    if ticks < _LEAST_RESOLUTION:
        raise InputError(f"resolution is {resolution!r}; expected a whole number of {_LEAST_RESOLUTION} or more")
    kernel, room = answer.kernel, answer.system.waiting_room
    if answer.system.duration_stages is not None:
        raise InputError("the law needs iterations of fixed length (duration_stages None); use the answer's means")
    check_order(kernel)
    counts = arrival_counts(answer.rate_per_s, kernel.durations_s, None)
    by_level = answer.boundary_law.sum(axis=1)
    kept = min(int(np.searchsorted(np.cumsum(by_level), 1 - 1e-11)) + 1, len(by_level))
    positions = kept + counts.shape[1] if room is None else room
    horizon_s = _horizon_s(answer)
    clock = _affordable(kernel, ticks, positions, horizon_s, columns)
    ring, idle, offset = arrival_masses(answer, clock, counts, kept, positions)
    total = float(ring.sum()) + idle
    if room is not None:  # of those that are let in
        ring /= total
        idle, offset, total = idle / total, offset / total, 1.0
    table = outcome_table(kernel, merge_after=False)
    seen, used, dropped = compiled(follow_wait)(
        ring,
        table.begin,
        table.admitted,
        table.after,
        clock.ticks[table.duration],
        table.probability,
        int(horizon_s / clock.tick_s) + 1,
        kernel.depth,
        _LEFT,
        _LEAST,
    )
    lost = float(ring.sum()) + dropped + max(1 - total, 0.0)
    # levels left out of the stationary law scale all others: by at most this
    doubt = answer.lost_tail * float(kernel.durations_s.max() / kernel.durations_s.min())
    return _Followed(answer, clock, np.asarray(seen[:used]), idle, lost, doubt, offset)


def _horizon_s(answer: ChainAnswer) -> float:
    """Return a time by which nearly every request is admitted, from the decay of the number waiting."""
    law, rate = answer.waiting_law, answer.rate_per_s
    far = max(int(np.searchsorted(-law[1:], -1e-9)), 2)
    ratio = law[far - 1] / law[far] if far < len(law) and law[far] > 0 else 2.0
    decay = rate * max(ratio - 1, 1e-6)
    if answer.system.waiting_room is not None:
        decay = min(decay, rate)
        return 30 / decay + 4 * (answer.system.waiting_room + 1) * answer.mean_response_s
    return 24 / decay + 4 * float(answer.kernel.durations_s.max())


def _affordable(kernel: Kernel, resolution: int, positions: int, horizon_s: float, columns: int) -> Clock:
    """Return a clock whose arrays and work stay within bounds: one that measures every length if possible."""
    deep = np.count_nonzero(kernel.level == kernel.depth)

    def within(clock: Clock) -> bool:
        steps = horizon_s / clock.tick_s
        cells = max(float(clock.ticks.max()) * positions, steps * kernel.depth) * kernel.size
        work = steps * (positions * deep + kernel.depth * kernel.size * columns)
        return bool(cells <= _MOST_CELLS and work <= _MOST_WORK)

    small = len(kernel.durations_s) * positions * kernel.size <= _MOST_CELLS
    while small and resolution >= _LEAST_RESOLUTION:
        exact = common_clock(kernel.durations_s, resolution)
        if exact is not None and within(exact):
            return exact
        nearest = nearest_clock(kernel.durations_s, resolution)
        if within(nearest):
            return nearest
        resolution //= 2
    raise InputError(
        f"the law would follow {positions} places in the queue and {kernel.size} phases over {horizon_s:.3g} s; "
        "expected a smaller chain: fewer residents or a lower load (the means have no such limit)"
    )


def _poisson(means: np.ndarray, columns: int) -> np.ndarray:
    """Return the Poisson laws of the means, what is beyond the last column counted there."""
    from scipy.stats import poisson

    law = np.array(poisson.pmf(np.arange(columns)[None, :], means[:, None]))
    law[:, -1] = poisson.sf(columns - 2, means)
    return law
