r"""The exact chain, solved: `iteration_chain`.

Model. Requests arrive as a Poisson process of rate lambda. An iteration starts with w requests waiting and d decoding;
the rule takes in a whole prompts, residents decode a token each (or not, beside a prefill), the iteration lasts
t(n, A, 0, m); arrivals wait for its end; requests without a step left go. (w, d) at the starts of iterations - with the
phases of the output law, and the head's prompt where it is known - is a Markov chain whose queue has no limit.
"""

from __future__ import annotations

__all__ = ["chain_capacity", "iteration_chain"]

import math

import numpy as np

from tileq_theory.chain.answer import ChainAnswer
from tileq_theory.chain.arrivals_in import arrival_counts
from tileq_theory.chain.drift import Saturation, saturation, stationary_vector
from tileq_theory.chain.first_token import mean_first_decode_s
from tileq_theory.chain.kernel import Kernel, build_kernel
from tileq_theory.chain.krylov import stationary_sparse
from tileq_theory.chain.matrix_analytic import stationary_levels
from tileq_theory.chain.operator import factors
from tileq_theory.chain.system import ChainSystem
from tileq_theory.chain.tail import TailBound, levels_within, tail_bound
from tileq_theory.chain.time_means import TimeMeans, time_means
from tileq_theory.chain.transitions import finite_matrix, super_blocks
from tileq_theory.errors import InputError, finite, positive

_MOST_DENSE = 600  # states of a block of levels up to which dense blocks are faster
_MOST_DIRECT = 3000
_MOST_ARRIVALS = 10_000.0
_TRUNCATED_TAIL = 1e-12
_MOST_STATES = 600_000


def chain_capacity(system: ChainSystem) -> float:
    r"""Return lambda*, requests a second: the policy is stable exactly below it, by mean drift.

    Examples
    --------
    >>> from tileq_theory import Fixed, IterationTime
    >>> from tileq_theory.chain import ChainSystem, PrefillFirst
    >>> one = ChainSystem(time=IterationTime.constant(0.5), rule=PrefillFirst(), residents=1, prompt_tokens=1,
    ...                   outputs=Fixed(1))
    >>> chain_capacity(one)
    2.0
    """
    return saturation(build_kernel(system)).capacity_per_s


def iteration_chain(system: ChainSystem, *, rate_per_s: float, tail: float = 1e-15) -> ChainAnswer:
    r"""Return the stationary behaviour of the iteration-level chain, exactly.

    Parameters
    ----------
    system
        Node, rule, lengths.
    rate_per_s
        lambda > 0, Poisson arrivals; below the policy's capacity unless the waiting room is finite.
    tail
        Levels are computed until a block of them holds less than this share, in (0, 1e-3].

    Raises
    ------
    InputError
        lambda at or above the policy's capacity, or a number outside its domain.
    SolveError
        A load so near 1 that the queue's law is not exhausted.

    References
    ----------
    Neuts, Structured stochastic matrices of M/G/1 type and their applications, 1989; Ramaswami, Stochastic Models 4,
    1988 (recursion); Keilson and Servi, Operations Research Letters 7, 1988 (distributional Little's law).

    Examples
    --------
    One-token jobs, one at a time, .5 s each, 1.2 a second: M/D/1 with L = rho + rho^2/(2 (1 - rho)) = 1.05.

    >>> from tileq_theory import Fixed, IterationTime
    >>> from tileq_theory.chain import ChainSystem, PrefillFirst
    >>> one = ChainSystem(time=IterationTime.constant(0.5), rule=PrefillFirst(), residents=1, prompt_tokens=1,
    ...                   outputs=Fixed(1))
    >>> round(iteration_chain(one, rate_per_s=1.2).mean_in_system, 9)
    1.05
    """
    rate, share = positive("rate_per_s", rate_per_s), finite("tail", tail)
    if not 0 < share <= 1e-3:
        raise InputError(f"tail is {tail!r}; expected a number above 0 and at most 0.001")
    kernel = build_kernel(system)
    saturated = None if system.waiting_room is not None else saturation(kernel)
    if saturated is not None and rate >= saturated.capacity_per_s:
        raise InputError(
            f"rate_per_s is {rate_per_s!r}; expected a rate below the policy's capacity "
            f"{saturated.capacity_per_s:.6g}/s (load below 1), or a finite waiting_room"
        )
    most = rate * float(kernel.durations_s.max())
    if most > _MOST_ARRIVALS:
        raise InputError(
            f"rate_per_s is {rate_per_s!r}: some {most:.3g} requests arrive in the longest iteration; expected at most "
            f"{_MOST_ARRIVALS:g}"
        )
    counts = arrival_counts(rate, kernel.durations_s, system.duration_stages)
    if saturated is None:
        law, residual = _finite(kernel, counts, system.waiting_room or 0)
        return _answer(system, kernel, counts, law, rate, None, None, "finite", residual)
    if kernel.depth * kernel.size <= _MOST_DENSE:
        law = stationary_levels(super_blocks(kernel, counts), share).reshape(-1, kernel.size)
        law = law / law.sum()
        residual = _residual(kernel, counts, law)
        method = "matrix-analytic"
    else:
        levels = max(levels_within(kernel, counts, max(share, _TRUNCATED_TAIL)), 2 * kernel.depth)
        law, residual = stationary_sparse(kernel, counts, _affordable(levels, kernel.size))
        method = "truncated"
    bound = tail_bound(kernel, counts, len(law))
    return _answer(system, kernel, counts, law, rate, saturated, bound, method, residual)


def _affordable(levels: int, phases: int) -> int:
    if levels * phases > _MOST_STATES:
        raise InputError(
            f"the chain needs {levels} levels of {phases} phases; expected at most {_MOST_STATES} states: "
            "take a lower rate_per_s (the load is near 1) or fewer residents"
        )
    return levels


def _residual(kernel: Kernel, counts: np.ndarray, law: np.ndarray) -> float:
    """Return |pi - pi P|_1 with what goes beyond the last level counted there."""
    flat = law.ravel()
    return float(np.abs(factors(kernel, counts, len(law)).after(flat) - flat).sum())


def _finite(kernel: Kernel, counts: np.ndarray, room: int) -> tuple[np.ndarray, float]:
    """Return the law of the chain with a finite room and its residual: direct where it is small, sparse where not."""
    states = _affordable(room + 1, kernel.size) * kernel.size
    if states > _MOST_DIRECT:
        return stationary_sparse(kernel, counts, room + 1)
    moves = finite_matrix(kernel, counts, room)
    if states <= 400:
        law = stationary_vector(moves.toarray())
    else:
        # the empty node (state 0) is reached from everywhere: fix its weight at 1 and solve for the others
        rest = (np.eye(states) - moves.T.toarray())[1:, 1:]
        law = np.append(1.0, np.clip(np.linalg.solve(rest, np.asarray(moves[0, 1:].todense()).ravel()), 0.0, None))
        law = law / law.sum()
    return law.reshape(room + 1, kernel.size), float(np.abs(law @ moves - law).sum())


def _answer(
    system: ChainSystem,
    kernel: Kernel,
    counts: np.ndarray,
    law: np.ndarray,
    rate: float,
    saturated: Saturation | None,
    bound: TailBound | None,
    method: str,
    residual: float,
) -> ChainAnswer:
    room = system.waiting_room
    means = time_means(kernel, counts, law, rate, system.duration_stages, room)
    accepted = rate * (1 - means.full)
    extra = 0.0
    if system.convention == "paper":
        extra = mean_first_decode_s(kernel, counts, law, system.residents, room)
    capacity = math.inf if saturated is None else saturated.capacity_per_s
    return ChainAnswer(
        rate_per_s=rate,
        capacity_per_s=capacity,
        load=rate / capacity,
        mean_in_system=means.in_system,
        mean_waiting=means.waiting,
        mean_decoding=means.decoding,
        mean_wait_s=means.waiting / accepted,
        mean_ttft_s=(means.waiting + means.prefilling) / accepted + extra,
        mean_response_s=means.in_system / accepted,
        wait_variance_s2=_wait_variance(means, rate) if room is None else math.nan,
        idle_share=means.idle,
        loss=means.full,
        in_system_law=means.in_system_law,
        waiting_law=means.waiting_law,
        lost_tail=0.0 if bound is None else bound(len(law)),
        states=law.size,
        residual=residual,
        method=method,
        system=system,
        kernel=kernel,
        boundary_law=law,
        saturated=saturated,
        tail=bound,
    )


def _wait_variance(means: TimeMeans, rate: float) -> float:
    """Return Var W from E[Nq (Nq - 1)] = lambda^2 E[W^2]."""
    n = np.arange(len(means.waiting_law))
    return max(float((n * (n - 1.0)) @ means.waiting_law) / rate**2 - (means.waiting / rate) ** 2, 0.0)
