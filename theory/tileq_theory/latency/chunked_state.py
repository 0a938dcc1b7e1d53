"""The fixed point behind `chunked`: load, residents and iteration times that agree with each other."""

from __future__ import annotations

__all__ = ["ChunkedState", "fixed_point"]

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.demand import Demand
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.latency.length_atoms import length_atoms
from tileq_theory.lengths.base import LengthLaw

Values = Float[np.ndarray, "value"]
_PLACES = 24


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedState:
    """The fixed point.

    Parameters
    ----------
    load, residents
        Share of time in mixed iterations; mean number of decoding requests.
    mixed_s, decode_s, iteration_s
        Mean length of a mixed, of a decode-only and of any iteration, seconds.
    token_s, alone_s
        Seconds of a prompt token in a queue of prompts; of a whole prompt that finds none.
    gap_values_s, gap_shares
        Law of the time between tokens.
    """

    load: float
    residents: float
    mixed_s: float
    decode_s: float
    iteration_s: float
    token_s: float
    alone_s: float
    gap_values_s: Values
    gap_shares: Values


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    """What stays the same over the iteration of the fixed point."""

    time: IterationTime
    budget: int
    sizes: Values
    masses: Values
    context_tokens: float
    pairs_per_token: float

    def resident_s(self) -> float:
        """Seconds that one resident adds beyond the linear layers."""
        return self.time.kv_token_s * self.context_tokens + self.time.sequence_s

    def tau(self, tokens: Values) -> Values:
        """Return tau at real numbers of tokens, at most the budget, linear between whole numbers."""
        n = np.minimum(tokens, self.budget)
        low = np.floor(n)
        below, above = (np.asarray(self.time.tau_s(k), dtype=float) for k in (np.maximum(low, 1), low + 1))
        out: Values = np.where(n == low, below, below + (n - low) * (above - below))
        return out

    def places(self) -> Values:
        """Return places in a prompt at 24 equally likely levels, a prompt counted by its tokens; mean pairs a token."""
        if self.time.pair_s == 0:
            return np.array([self.pairs_per_token])
        order = np.argsort(self.sizes)
        size, mass = self.sizes[order], self.masses[order]
        above = 1 - np.concatenate([[0.0], np.cumsum(mass)[:-1]])
        passed = np.concatenate([[0.0], np.cumsum(above * np.diff(size, prepend=0.0))])  # E[min(P, h)] at each size
        levels = (np.arange(_PLACES) + 0.5) / _PLACES * passed[-1]
        places: Values = np.interp(levels, passed, np.concatenate([[0.0], size]))
        return places * (self.pairs_per_token / float(places.mean()))


@dataclass(frozen=True, slots=True, eq=False)
class _Iterations:
    """Iteration lengths at a given mean number of residents."""

    mixed_s: float
    decode_s: float
    chunk: float
    alone_s: float
    rest_tokens: Values
    last_s: Values


def fixed_point(rate: float, prompts: LengthLaw, demand: Demand, time: IterationTime, budget: int) -> ChunkedState:
    """Return the state at `rate` requests per second.

    Raises
    ------
    InputError
        Where no steady state is found below saturation.
    """
    sizes, masses = length_atoms(prompts)
    context = demand.kv_read_tokens / demand.decode_tokens if demand.decode_tokens > 0 else 0.0
    node = _Node(time, budget, sizes, masses, context, demand.attention_pairs / demand.prefill_tokens)
    load, residents = 0.0, 0.0
    for _ in range(2000):
        if budget - residents < 1:
            break
        now = _iterations(node, residents)
        queued = now.mixed_s / now.chunk * demand.prefill_tokens
        # rho = rate (rho queued + (1 - rho) alone)
        surplus = rate * (queued - now.alone_s)
        new_load = min(rate * now.alone_s / (1 - surplus), 1 - 1e-9) if surplus < 1 else 1 - 1e-9
        iteration = 1 / (new_load / now.mixed_s + (1 - new_load) / now.decode_s)
        wanted = rate * demand.decode_tokens * iteration
        change = abs(wanted - residents) / (1 + residents) + abs(new_load - load)
        load, residents = new_load, (residents + wanted) / 2
        if change < 1e-11 and load < 1 - 1e-8:
            values, shares = _gaps(node, now, load, residents, queued)
            return ChunkedState(
                load,
                residents,
                now.mixed_s,
                now.decode_s,
                iteration,
                now.mixed_s / now.chunk,
                now.alone_s,
                values,
                shares,
            )
    raise InputError(
        f"rate_per_s is {rate:.6g}, where the approximation finds no steady state below saturation; lower the rate"
    )


def _iterations(node: _Node, residents: float) -> _Iterations:
    number, chance = _poisson(residents)
    extra, chunk = residents * node.resident_s(), node.budget - residents
    pair_s = node.time.pair_s * node.pairs_per_token
    mixed = float(node.time.tau_s(node.budget)) + extra + pair_s * chunk
    decode = float(chance @ np.asarray(node.time.tau_s(np.maximum(number, 1)))) + extra
    whole = np.floor(node.sizes / chunk)
    rest = node.sizes - whole * chunk
    last = node.tau(residents + rest) + extra + pair_s * rest
    alone = float(node.masses @ (whole * mixed + np.where(rest > 0, last, 0.0)))
    return _Iterations(mixed, decode, chunk, alone, rest, last)


def _gaps(node: _Node, now: _Iterations, load: float, residents: float, queued: float) -> tuple[Values, Values]:
    """Return iteration lengths as a resident sees them, with a Poisson number of others beside it."""
    number, chance = _poisson(residents)
    extra = (number + 1) * node.resident_s()
    pure = np.asarray(node.time.tau_s(number + 1)) + extra
    # a prompt's chunk costs by its place in the prompt: later tokens attend to more
    place = node.time.pair_s * now.chunk * (node.places() - node.pairs_per_token)
    full = (now.mixed_s + extra - residents * node.resident_s() + place[:, None]).ravel()
    # the last pieces of prompts that found no queue are iterations of their own, shorter than full ones
    piece = node.masses * (now.rest_tokens > 0)
    prompts_per_s = load / (load * queued + (1 - load) * now.alone_s)
    short = (1 - load) * prompts_per_s * piece
    often = max(load - float(short @ now.last_s), 0.0) / now.mixed_s
    values = np.concatenate([pure, full, now.last_s])
    shares = np.concatenate(
        [(1 - load) / now.decode_s * chance, np.tile(often / place.size * chance, place.size), short]
    )
    return values, shares / shares.sum()


def _poisson(mean: float) -> tuple[Values, Values]:
    """Return the numbers 0, 1, ... and their Poisson probabilities, up to ten standard deviations."""
    from scipy.special import gammaln

    number = np.arange(math.ceil(mean + 10 * math.sqrt(mean) + 12), dtype=float)
    if mean == 0:
        return number, (number == 0).astype(float)
    chance = np.exp(number * math.log(mean) - mean - gammaln(number + 1))
    return number, chance / chance.sum()
