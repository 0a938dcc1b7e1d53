r"""The fluid model of one node: what flows, and what stands in its way.

State (w, d, k): prefill tokens waiting, residents decoding (requests), KV tokens they hold. With a cycle of the policy
that takes T seconds and runs p prefill and q decode tokens,

    dw/dt = lambda P - p/T
    dd/dt = p/(P T) - q/(D T)
    dk/dt = p/T + q/T - (q/(D T)) (k/d) (P + D)/(G/D)

A decode step ends a request with probability 1/D. One that ends holds P + D tokens where a resident holds G/D on
average (G: KV read over all decode steps), which makes the last factor and makes Little's law hold at rest:
d = lambda D T and k = lambda G T. It is exact for geometric outputs and the mean-preserving closure for others.
"""

from __future__ import annotations

__all__ = ["FluidState", "FluidSystem"]

import math
from dataclasses import dataclass

from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, instance, nonnegative, positive, positive_int
from tileq_theory.iteration_time import IterationTime


@dataclass(frozen=True, slots=True)
class FluidState:
    """A point of the fluid model.

    Parameters
    ----------
    waiting_tokens
        w, prefill tokens waiting, 0 or more.
    decoding
        d, residents decoding, 0 or more (a real number).
    kv_tokens
        k, KV tokens that residents hold, 0 or more.
    """

    waiting_tokens: float = 0.0
    decoding: float = 0.0
    kv_tokens: float = 0.0

    def __post_init__(self) -> None:
        for name in ("waiting_tokens", "decoding", "kv_tokens"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))


@dataclass(frozen=True, slots=True)
class FluidSystem:
    """Node, demand and limits.

    Parameters
    ----------
    time
        Iteration time.
    demand
        P, D, G, A of a request (`JointLaw.demand`); P and D above 0.
    rate_per_s
        lambda, 0 or more.
    token_budget
        b, tokens of an iteration, at least 1.
    residents
        N, cap on residents, at least 1.
    kv_capacity_tokens
        M (inf: no limit); at least one request at its end, P + D.

    Raises
    ------
    InputError
        A parameter outside its domain.
    """

    time: IterationTime
    demand: Demand
    rate_per_s: float
    token_budget: int
    residents: int
    kv_capacity_tokens: float = math.inf

    def __post_init__(self) -> None:
        instance("time", self.time, IterationTime)
        instance("demand", self.demand, Demand)
        object.__setattr__(self, "rate_per_s", nonnegative("rate_per_s", self.rate_per_s))
        positive("prefill_tokens of the demand", self.demand.prefill_tokens)
        positive("decode_tokens of the demand", self.demand.decode_tokens)
        positive("kv_read_tokens of the demand", self.demand.kv_read_tokens)
        positive_int("token_budget", self.token_budget)
        positive("time of an iteration of the whole budget", float(self.time.tau_s(self.token_budget)))
        positive_int("residents", self.residents)
        least = self.demand.prefill_tokens + self.demand.decode_tokens
        if math.isnan(self.kv_capacity_tokens) or self.kv_capacity_tokens < least:
            raise InputError(
                f"kv_capacity_tokens is {self.kv_capacity_tokens!r}; expected at least P + D = {least:g} tokens, "
                "one mean request at its end"
            )

    @property
    def prompt(self) -> float:
        """P, tokens."""
        return self.demand.prefill_tokens

    @property
    def steps(self) -> float:
        """D, decode steps."""
        return self.demand.decode_tokens

    @property
    def context(self) -> float:
        """G/D, mean KV tokens of a decode step."""
        return self.demand.kv_read_tokens / self.demand.decode_tokens

    def release(self, state: FluidState) -> float:
        """Return the KV tokens that a decode token frees on average."""
        if state.decoding <= 0:
            return 0.0
        held = state.kv_tokens / state.decoding
        return held * (self.prompt + self.steps) / self.context / self.steps

    def iteration_s(self, prefill: float, decode: float, state: FluidState) -> float:
        """Return the time of an iteration with these tokens, seconds; decodes read their share of the resident KV."""
        pairs = prefill * self.demand.attention_pairs / self.prompt
        read = state.kv_tokens * decode / state.decoding if state.decoding > 0 else 0.0
        if self.time.kv_counts_prefill:
            read += prefill
        tokens = prefill + decode
        if abs(tokens - round(tokens)) <= 1e-7 * max(tokens, 1.0):
            tokens = round(tokens)  # a full batch must not cost one tile more by rounding
        return float(self.time(tokens, pairs, read, decode + prefill / self.prompt))

    def backlog_tokens(self, state: FluidState) -> float:
        """Return prefill left + decode left: w, D tokens a waiting request, and D a resident (memoryless lengths)."""
        waiting = state.waiting_tokens
        return waiting + waiting / self.prompt * self.steps + state.decoding * self.steps
