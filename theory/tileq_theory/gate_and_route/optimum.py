"""The two questions asked of the gate-and-route program: the best operating point, and the stability region."""

from __future__ import annotations

__all__ = ["Charging", "gate_and_route", "gate_and_route_scale"]

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from tileq_theory.errors import InputError, SolveError, nonnegative
from tileq_theory.gate_and_route.answer import GateAndRoute, GateAndRoutePrices
from tileq_theory.gate_and_route.fleet import Fleet, ServiceRates, per_class, service_rates
from tileq_theory.gate_and_route.program import FluidProgram, check, fluid_program, solve

Charging = Literal["bundled", "separate"]
_KKT_TOLERANCE = 1e-6


def gate_and_route(
    fleet: Fleet,
    *,
    prompts_tokens: Sequence[float],
    outputs_tokens: Sequence[float],
    rates_per_s: Sequence[float],
    patience_rates_per_s: Sequence[float],
    price_prefill: float,
    price_decode: float,
    charging: Charging = "bundled",
) -> GateAndRoute:
    r"""Return the revenue-optimal split of a fleet and its occupancy.

    Parameters
    ----------
    fleet
        The GPU.
    prompts_tokens, outputs_tokens
        P_i > 0 and D_i > 0, tokens.
    rates_per_s
        lambda_i >= 0, requests per second and GPU.
    patience_rates_per_s
        theta_i >= 0: a waiting request gives up at this rate; 0 for never.
    price_prefill, price_decode
        c_p, c_d >= 0, money a token.
    charging
        "bundled": paid on completion; "separate": prefill paid when it completes.

    Raises
    ------
    InputError
        Lists of different lengths, a number outside its domain, or (theta = 0) rates that the fleet cannot carry.
    SolveError
        The solver ended without an answer that passes the optimality check.

    References
    ----------
    arXiv 2602.02987, steady-state linear program.

    Examples
    --------
    >>> fleet = Fleet(alpha_s=0.0174, beta_s=6.2e-5, chunk_tokens=256, max_sequences=16, solo_tokens_per_s=45.45)
    >>> answer = gate_and_route(fleet, prompts_tokens=[300, 3000], outputs_tokens=[1000, 400], rates_per_s=[0.5, 0.5],
    ...                         patience_rates_per_s=[0.1, 0.1], price_prefill=0.1, price_decode=0.2)
    >>> round(answer.revenue_per_s, 5), answer.prefill_share.round(7).tolist()
    (297.70317, [0.0182583, 0.1949531])
    """
    if charging not in get_args(Charging):
        raise InputError(f"charging is {charging!r}; expected 'bundled' or 'separate'")
    rates = service_rates(fleet, prompts_tokens, outputs_tokens)
    count = rates.prefill.size
    arrivals = per_class("rates_per_s", rates_per_s, count)
    patience = per_class("patience_rates_per_s", patience_rates_per_s, count)
    paid_prefill = nonnegative("price_prefill", price_prefill) * np.asarray(prompts_tokens, dtype=float)
    paid_decode = nonnegative("price_decode", price_decode) * np.asarray(outputs_tokens, dtype=float)
    early = np.zeros(count) if charging == "bundled" else paid_prefill
    late = paid_decode + (paid_prefill if charging == "bundled" else 0.0)

    program = fluid_program(fleet, rates, arrivals, patience, early, late)
    v, inequality, equality = solve(program)
    if v is None:
        scale = gate_and_route_scale(
            fleet, prompts_tokens=prompts_tokens, outputs_tokens=outputs_tokens, direction=arrivals.tolist()
        )
        raise InputError(
            f"rates_per_s is {arrivals.tolist()} and some class never gives up (patience rate 0); if none did, the "
            f"fleet would carry at most {scale:.6g} times these rates: lower them, add GPUs or give a patience rate"
        )
    v = _stay_local(fleet, rates, v)
    kkt = check(program, v, inequality, equality)
    if kkt.worst > _KKT_TOLERANCE:
        raise SolveError(
            f"the optimality conditions fail by {kkt.worst:.1e} (tolerance {_KKT_TOLERANCE:g}); "
            "scale the problem: express rates per GPU and prices in larger units"
        )
    x, y_m, y_s, a_p, a_d = v.reshape(5, count)
    queued = np.where(patience > 0, patience, np.inf)
    gpu, mixed_slot, solo_slot = (float(price) for price in inequality)
    prices = GateAndRoutePrices(gpu, mixed_slot, solo_slot, equality[:count], equality[count:])
    return GateAndRoute(
        revenue_per_s=float(program.c @ v),
        prefill_share=x,
        mixed_decodes=y_m,
        solo_decodes=y_s,
        prefill_queue=a_p / queued,
        decode_queue=a_d / queued,
        throughput_per_s=rates.mixed * y_m + rates.solo * y_s,
        abandoned_per_s=a_p + a_d,
        charging=charging,
        prices=prices,
        kkt=kkt,
    )


def _stay_local(fleet: Fleet, rates: ServiceRates, v: np.ndarray) -> np.ndarray:
    """Return the optimum that keeps decodes on mixed GPUs, the classes that prefill most first.

    A mixed slot yields 1/tau and a solo slot gamma tokens per second whatever the class, so which class decodes where
    is open in the program: completions, and with them the revenue, stay the same. A decode that stays on the GPU of its
    prefill needs no KV transfer, so mixed slots are filled first.
    """
    x, y_m, y_s, *gave_up = v.reshape(5, rates.prefill.size)
    completed = rates.mixed * y_m + rates.solo * y_s
    room = (fleet.max_sequences - 1) * float(x.sum())
    local, remote = np.zeros_like(y_m), np.zeros_like(y_s)
    for i in np.argsort(-x, kind="stable"):
        local[i] = min(room, completed[i] / rates.mixed[i])
        room -= local[i]
        remote[i] = max(0.0, (completed[i] - rates.mixed[i] * local[i]) / rates.solo[i])
    return np.concatenate([x, local, remote, *gave_up])


def gate_and_route_scale(
    fleet: Fleet, *, prompts_tokens: Sequence[float], outputs_tokens: Sequence[float], direction: Sequence[float]
) -> float:
    r"""Return the largest s such that the fleet serves s*direction with nobody giving up (theta = 0).

    The set of rates s*direction over all directions is the stability region of the fleet, per GPU.

    Parameters
    ----------
    fleet, prompts_tokens, outputs_tokens
        As in `gate_and_route`.
    direction
        Rates of 0 or more, not all 0 (requests per second).

    Raises
    ------
    InputError
        A number outside its domain or an all-zero direction.
    SolveError
        The solver ended without an answer.

    Notes
    -----
    Only tokens matter. With p = sum d_i P_i and t = sum d_i D_i the mixed share is X = s p tau/C <= 1 and decodes must
    fit, s t <= (B - 1) X/tau + B (1 - X) gamma; solving for s gives the closed form `gate_and_route_capacity`.

    Examples
    --------
    >>> fleet = Fleet(alpha_s=0.0174, beta_s=6.2e-5, chunk_tokens=256, max_sequences=16, solo_tokens_per_s=45.45)
    >>> round(gate_and_route_scale(fleet, prompts_tokens=[300], outputs_tokens=[1000], direction=[1.0]), 6)
    0.719447
    """
    rates = service_rates(fleet, prompts_tokens, outputs_tokens)
    count = rates.prefill.size
    ray = per_class("direction", direction, count)
    if not ray.any():
        raise InputError("direction is 0 for every class; expected at least one rate above 0")
    zero = np.zeros(count)
    base = fluid_program(fleet, rates, zero, zero, zero, zero)
    # one more column, the scale s: s*direction - (mu_p x + a_p) = 0
    column = np.concatenate([-ray, zero])[:, None]
    program = FluidProgram(
        c=np.append(base.c, 1.0),
        A=np.hstack([base.A, np.zeros((base.A.shape[0], 1))]),
        b=base.b,
        E=np.hstack([base.E, column]),
        r=base.r,
    )
    v, _, _ = solve(program)
    if v is None:
        raise SolveError("the region program has no answer; scale the problem: express rates per GPU")
    return float(v[-1])
