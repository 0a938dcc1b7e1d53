r"""Where the fluid rests, how fast it drains, how fast it grows.

At rest nobody waits and, with a cycle of T seconds, p = lambda P T, d = lambda D T, k = lambda G T (Little's law); T is
the least solution of T = cycle(T), and there is none when a limit is met first: then the backlog grows.

A work-conserving policy under overload runs full batches, so its backlog of tokens has the slope
lambda (P + D) - b/t(b), whatever the mixture.
"""

from __future__ import annotations

__all__ = [
    "drain_time_s",
    "equilibrium",
    "fluid_capacity_per_s",
    "overload_slope_tokens_per_s",
    "work_conserving_drain_s",
]

import math
from dataclasses import replace

from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.fluid.policies import FluidPolicy, keep_pace
from tileq_theory.fluid.system import FluidState, FluidSystem
from tileq_theory.fluid.trajectory import fluid_path
from tileq_theory.iteration_time import IterationTime


def equilibrium(system: FluidSystem, policy: FluidPolicy) -> FluidState | None:
    r"""Return the state at rest, None where there is none (the policy is overloaded in the fluid).

    Parameters
    ----------
    system, policy
        Node and rule; the rate must be above 0.

    Examples
    --------
    >>> from tileq_theory import Demand
    >>> from tileq_theory.fluid import DecodeFirst
    >>> demand = Demand(100, 50, 50 * 150, 5050, 7500, 51)
    >>> node = FluidSystem(IterationTime.constant(0.1), demand, rate_per_s=10, token_budget=512, residents=256)
    >>> equilibrium(node, DecodeFirst())
    FluidState(waiting_tokens=0.0, decoding=50.0, kv_tokens=7500.0)
    """
    rate = positive("rate_per_s", system.rate_per_s)
    demand = system.demand
    longest = min(
        system.residents / (rate * demand.decode_tokens), system.kv_capacity_tokens / (rate * demand.kv_read_tokens)
    )

    least = 1e-9 * min(longest, 1.0)
    cycle_s = keep_pace(1.0, lambda guess: policy.flow(system, _at(system, max(guess, least))).cycle_s, longest)
    if cycle_s >= longest:
        return None
    flow = policy.flow(system, _at(system, cycle_s))
    paced = flow.prefill_tokens >= rate * demand.prefill_tokens * flow.cycle_s * (1 - 1e-9)
    served = flow.decode_tokens >= rate * demand.decode_tokens * flow.cycle_s * (1 - 1e-9)
    return _at(system, cycle_s) if paced and served else None


def _at(system: FluidSystem, cycle_s: float) -> FluidState:
    """Return the state that Little's law gives a cycle of this length."""
    rate, demand = system.rate_per_s, system.demand
    return FluidState(0.0, rate * demand.decode_tokens * cycle_s, rate * demand.kv_read_tokens * cycle_s)


def fluid_capacity_per_s(system: FluidSystem, policy: FluidPolicy) -> float:
    r"""Return the rate below which the fluid has a state at rest, requests a second; the system's own is not used.

    A policy that cycles (`ExclusiveThreshold`) has its throughput while many wait instead.

    Parameters
    ----------
    system, policy
        Node and rule.

    Examples
    --------
    256 slots, each used for a prefill and 50 decode iterations of .1 s:

    >>> from tileq_theory import Demand
    >>> from tileq_theory.fluid import DecodeFirst
    >>> demand = Demand(100, 50, 50 * 150, 5050, 7500, 51)
    >>> node = FluidSystem(IterationTime.constant(0.1), demand, rate_per_s=0, token_budget=4096, residents=256)
    >>> round(fluid_capacity_per_s(node, DecodeFirst()), 6) == round(256 / (51 * 0.1), 6)
    True
    """

    saturated = policy.saturated_rate_per_s(system)
    if saturated is not None:
        return saturated
    low, high = 0.0, 1.0
    while _rests(system, policy, high):
        low, high = high, 2 * high
        if high > 1e15:
            raise InputError("time is 0 s for any batch; expected an iteration time above 0, else no rate is too high")
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _rests(system, policy, middle) else (low, middle)
    return low


def _rests(system: FluidSystem, policy: FluidPolicy, rate: float) -> bool:
    return equilibrium(replace(system, rate_per_s=rate), policy) is not None


def drain_time_s(system: FluidSystem, policy: FluidPolicy, start: FluidState, *, horizon_s: float) -> float:
    r"""Return when the last waiting token is taken up, seconds; inf where that is not within `horizon_s`.

    Parameters
    ----------
    system, policy, start
        Node, rule, state at time 0.
    horizon_s
        Seconds to look ahead, above 0.

    Examples
    --------
    >>> from tileq_theory import Demand
    >>> from tileq_theory.fluid import DecodeFirst
    >>> demand = Demand(100, 50, 50 * 150, 5050, 7500, 51)
    >>> node = FluidSystem(IterationTime.constant(0.1), demand, rate_per_s=10, token_budget=512, residents=512)
    >>> round(drain_time_s(node, DecodeFirst(), FluidState(1e4), horizon_s=60), 2)
    2.8
    """
    return fluid_path(system, policy, start=start, horizon_s=horizon_s, until_drained=True).drained_s


def overload_slope_tokens_per_s(
    time: IterationTime, *, rate_per_s: float, prefill_tokens: float, decode_tokens: float, token_budget: int
) -> float:
    r"""Return lambda (P + D) - b/t(b): slope of the backlog under full batches, tokens a second (negative: it drains).

    Parameters
    ----------
    time
        tau(n) is used.
    rate_per_s, prefill_tokens, decode_tokens
        lambda, E[P], E[D], 0 or more.
    token_budget
        b, at least 1.

    Raises
    ------
    InputError
        A number outside its domain.

    References
    ----------
    arXiv 2504.07347, Theorem 2 and section 5: at 1.1 and 1.2 of the boundary .3343 and .6686 tokens/ms.

    Examples
    --------
    >>> dai = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> capacity = 512 / 0.15316 / 200
    >>> [round(overload_slope_tokens_per_s(dai, rate_per_s=x * capacity, prefill_tokens=100, decode_tokens=100,
    ...                                    token_budget=512) / 1000, 4) for x in (1.1, 1.2)]
    [0.3343, 0.6686]
    """
    rate = nonnegative("rate_per_s", rate_per_s)
    tokens = nonnegative("prefill_tokens", prefill_tokens) + nonnegative("decode_tokens", decode_tokens)
    budget = positive_int("token_budget", token_budget)
    return rate * tokens - budget / positive("iteration time", float(time.tau_s(budget)))


def work_conserving_drain_s(
    time: IterationTime,
    *,
    backlog_tokens: float,
    rate_per_s: float,
    prefill_tokens: float,
    decode_tokens: float,
    token_budget: int,
) -> float:
    r"""Return the time in which full batches clear a backlog, seconds: backlog/(b/t(b) - lambda (P + D)), or inf.

    Parameters
    ----------
    time, rate_per_s, prefill_tokens, decode_tokens, token_budget
        As for `overload_slope_tokens_per_s`.
    backlog_tokens
        Prefill left + decode left at the start, 0 or more.

    Examples
    --------
    >>> dai = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> round(work_conserving_drain_s(dai, backlog_tokens=33430, rate_per_s=0.9 * 512 / 0.15316 / 200,
    ...                               prefill_tokens=100, decode_tokens=100, token_budget=512), 1)
    100.0
    """
    slope = overload_slope_tokens_per_s(
        time,
        rate_per_s=rate_per_s,
        prefill_tokens=prefill_tokens,
        decode_tokens=decode_tokens,
        token_budget=token_budget,
    )
    backlog = nonnegative("backlog_tokens", backlog_tokens)
    if backlog == 0:
        return 0.0
    return -backlog / slope if slope < 0 else math.inf
