r"""Gate-and-route: a fleet split into mixed and solo GPUs, as the fluid linear program of section 6.

A GPU is *mixed* (one prefill of chunk C beside at most B - 1 decodes; an iteration takes tau = alpha + beta C) or
*solo* (at most B decodes, gamma tokens/s each). For class i with P_i prompt and D_i output tokens,

    mu_p,i = C/(P_i tau),   mu_m,i = 1/(D_i tau),   mu_s,i = gamma/D_i.

Per GPU of the fleet: x_i share of GPUs that prefill class i, y_m,i and y_s,i its decodes on mixed and solo GPUs, q_p,i
and q_d,i those who wait, leaving at rate theta_i (patience). The program

    max  revenue rate
    sum x <= 1,   sum y_m <= (B - 1) sum x,   sum y_s <= B (1 - sum x)
    lambda_i - theta_i q_p,i      = mu_p,i x_i
    mu_p,i x_i - theta_i q_d,i    = mu_m,i y_m,i + mu_s,i y_s,i

earns, under *bundled* charging, w_i = c_p P_i + c_d D_i when a request completes, and, under *separate* charging,
c_p P_i when its prefill completes and c_d D_i when its decode does.

The program is solved in the flows a_p = theta q_p and a_d = theta q_d (requests that give up), so theta_i = 0 (nobody
gives up) needs no division: then a = 0, the queue of the fluid is not determined, and q is reported as 0.

Source: Lin, Ding, Han, Zhang, arXiv 2602.02987 (bundled charging as in `theory.md`; the paper also treats separate
charging - its objective here is a reconstruction from the description above).
"""

from __future__ import annotations

__all__ = [
    "Fleet",
    "GateAndRoute",
    "GateAndRouteKkt",
    "GateAndRoutePrices",
    "ServiceRates",
    "gate_and_route",
    "gate_and_route_scale",
    "service_rates",
]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError, SolveError, nonnegative, positive, positive_int

Charging = Literal["bundled", "separate"]
ClassArray = Float[np.ndarray, "class"]
_KKT_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Fleet:
    """A GPU of the fleet.

    Parameters
    ----------
    alpha_s, beta_s
        Mixed iteration: tau = alpha + beta C, seconds and seconds a token, each 0 or more, tau above 0.
    chunk_tokens
        C, prefill tokens of a mixed iteration.
    max_sequences
        B, whole, at least 1: sequences of an iteration, the prefill included.
    solo_tokens_per_s
        gamma, tokens per second of each decode on a solo GPU.
    """

    alpha_s: float
    beta_s: float
    chunk_tokens: float
    max_sequences: int
    solo_tokens_per_s: float

    def __post_init__(self) -> None:
        for name in ("alpha_s", "beta_s"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        for name in ("chunk_tokens", "solo_tokens_per_s"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "max_sequences", positive_int("max_sequences", self.max_sequences))
        positive("alpha_s + beta_s * chunk_tokens", self.mixed_iteration_s)

    @property
    def mixed_iteration_s(self) -> float:
        """tau = alpha + beta C, seconds."""
        return self.alpha_s + self.beta_s * self.chunk_tokens


@dataclass(frozen=True, slots=True)
class ServiceRates:
    """mu_p (prefill, mixed GPU), mu_m (decode, mixed GPU), mu_s (decode, solo GPU), requests per second."""

    prefill: ClassArray
    mixed: ClassArray
    solo: ClassArray


def service_rates(fleet: Fleet, prompts_tokens: Sequence[float], outputs_tokens: Sequence[float]) -> ServiceRates:
    """Return mu_p = C/(P tau), mu_m = 1/(D tau), mu_s = gamma/D, requests per second of one GPU or one slot.

    Examples
    --------
    >>> fleet = Fleet(alpha_s=0.0174, beta_s=6.2e-5, chunk_tokens=256, max_sequences=16, solo_tokens_per_s=45.45)
    >>> service_rates(fleet, [300], [1000]).solo.tolist()
    [0.04545]
    """
    prompts = np.array([positive(f"prompts_tokens[{i}]", x) for i, x in enumerate(prompts_tokens)], dtype=float)
    outputs = np.array([positive(f"outputs_tokens[{i}]", x) for i, x in enumerate(outputs_tokens)], dtype=float)
    if prompts.size != outputs.size or not prompts.size:
        raise InputError(f"{prompts.size} prompts and {outputs.size} outputs given; expected as many, at least one")
    tau = fleet.mixed_iteration_s
    return ServiceRates(fleet.chunk_tokens / (prompts * tau), 1 / (outputs * tau), fleet.solo_tokens_per_s / outputs)


@dataclass(frozen=True, slots=True)
class GateAndRoutePrices:
    """Dual prices: revenue per second gained per unit of each right-hand side.

    Parameters
    ----------
    gpu, mixed_slot, solo_slot
        One more GPU (in GPUs of the fleet), mixed decode slot, solo decode slot; each 0 or more.
    arrival
        One more arriving request per second of class i.
    prefilled
        One more prefilled request per second of class i.
    """

    gpu: float
    mixed_slot: float
    solo_slot: float
    arrival: ClassArray
    prefilled: ClassArray


@dataclass(frozen=True, slots=True)
class GateAndRouteKkt:
    """Largest violations of the optimality conditions, relative to the size of each row.

    Parameters
    ----------
    primal, dual, stationarity, complementarity
        Constraints; signs of the prices; no profitable direction; price times slack, relative to the revenue.
    """

    primal: float
    dual: float
    stationarity: float
    complementarity: float

    @property
    def worst(self) -> float:
        """The largest of the four."""
        return max(self.primal, self.dual, self.stationarity, self.complementarity)


@dataclass(frozen=True, slots=True)
class GateAndRoute:
    """Optimal fluid operating point, per GPU of the fleet.

    Parameters
    ----------
    revenue_per_s
        R*, money per second.
    prefill_share
        x, share of GPUs that prefill class i.
    mixed_decodes, solo_decodes
        y_m and y_s, decodes per GPU of the fleet.
    prefill_queue, decode_queue
        q_p and q_d, waiting requests per GPU (0 where theta_i = 0: the fluid does not determine them).
    throughput_per_s
        Completed requests of class i per second.
    abandoned_per_s
        Requests of class i per second that give up, before and after prefill together.
    charging
        "bundled" or "separate".
    prices
        Dual prices.
    kkt
        Check of this very answer.
    """

    revenue_per_s: float
    prefill_share: ClassArray
    mixed_decodes: ClassArray
    solo_decodes: ClassArray
    prefill_queue: ClassArray
    decode_queue: ClassArray
    throughput_per_s: ClassArray
    abandoned_per_s: ClassArray
    charging: str
    prices: GateAndRoutePrices
    kkt: GateAndRouteKkt

    @property
    def mixed_share(self) -> float:
        """Share of GPUs that run mixed."""
        return float(self.prefill_share.sum())


@dataclass(frozen=True, slots=True)
class _Program:
    """max c.v subject to A v <= b, E v = r, v >= 0, v = (x, y_m, y_s, a_p, a_d)."""

    c: np.ndarray
    A: np.ndarray
    b: np.ndarray
    E: np.ndarray
    r: np.ndarray


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
    arrivals = _per_class("rates_per_s", rates_per_s, count)
    patience = _per_class("patience_rates_per_s", patience_rates_per_s, count)
    paid_prefill = nonnegative("price_prefill", price_prefill) * np.asarray(prompts_tokens, dtype=float)
    paid_decode = nonnegative("price_decode", price_decode) * np.asarray(outputs_tokens, dtype=float)
    early = np.zeros(count) if charging == "bundled" else paid_prefill
    late = paid_decode + (paid_prefill if charging == "bundled" else 0.0)

    program = _program(fleet, rates, arrivals, patience, early, late)
    v, inequality, equality = _solve(program)
    if v is None:
        scale = gate_and_route_scale(
            fleet, prompts_tokens=prompts_tokens, outputs_tokens=outputs_tokens, direction=arrivals.tolist()
        )
        raise InputError(
            f"rates_per_s is {arrivals.tolist()} and some class never gives up (patience rate 0); if none did, the "
            f"fleet would carry at most {scale:.6g} times these rates: lower them, add GPUs or give a patience rate"
        )
    kkt = _kkt(program, v, inequality, equality)
    if kkt.worst > _KKT_TOLERANCE:
        raise SolveError(
            f"the optimality conditions fail by {kkt.worst:.1e} (tolerance {_KKT_TOLERANCE:g}); "
            "scale the problem: express rates per GPU and prices in larger units"
        )
    x, y_m, y_s, a_p, a_d = v.reshape(5, count)
    queued = np.where(patience > 0, patience, np.inf)
    prices = GateAndRoutePrices(*(float(p) for p in inequality), equality[:count], equality[count:])
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
    Closed form: a request of class i needs 1/mu_p,i of a mixed GPU; decodes then fill mixed slots (B - 1 a mixed GPU,
    rate 1/tau) and solo slots (B a solo GPU, rate gamma), and only tokens matter: with p = sum d_i P_i, t = sum d_i D_i,
    the tests compare with min over the mixed share of the two bounds.

    Examples
    --------
    >>> fleet = Fleet(alpha_s=0.0174, beta_s=6.2e-5, chunk_tokens=256, max_sequences=16, solo_tokens_per_s=45.45)
    >>> round(gate_and_route_scale(fleet, prompts_tokens=[300], outputs_tokens=[1000], direction=[1.0]), 6)
    0.711276
    """
    rates = service_rates(fleet, prompts_tokens, outputs_tokens)
    count = rates.prefill.size
    ray = _per_class("direction", direction, count)
    if not ray.any():
        raise InputError("direction is 0 for every class; expected at least one rate above 0")
    zero = np.zeros(count)
    base = _program(fleet, rates, zero, zero, zero, zero)
    # one more column, the scale s: s*direction - (mu_p x + a_p) = 0
    column = np.concatenate([-ray, zero])[:, None]
    program = _Program(
        c=np.append(base.c, 1.0),
        A=np.hstack([base.A, np.zeros((base.A.shape[0], 1))]),
        b=base.b,
        E=np.hstack([base.E, column]),
        r=base.r,
    )
    v, _, _ = _solve(program)
    if v is None:
        raise SolveError("the region program has no answer; scale the problem: express rates per GPU")
    return float(v[-1])


# ---------------------------------------------------------------------- the program


def _per_class(name: str, values: Sequence[float], count: int) -> ClassArray:
    if len(values) != count:
        raise InputError(f"{name} has {len(values)} entries; expected one for each of {count} classes")
    return np.array([nonnegative(f"{name}[{i}]", value) for i, value in enumerate(values)], dtype=float)


def _program(
    fleet: Fleet,
    rates: ServiceRates,
    arrivals: ClassArray,
    patience: ClassArray,
    early: ClassArray,
    late: ClassArray,
) -> _Program:
    count = arrivals.size
    one, zero, slots = np.ones(count), np.zeros(count), fleet.max_sequences
    eye, none = np.eye(count), np.zeros((count, count))
    leave = np.diag((patience > 0).astype(float))  # nobody gives up where patience is unlimited
    prefill, mixed, solo = (np.diag(mu) for mu in (rates.prefill, rates.mixed, rates.solo))
    return _Program(
        c=np.concatenate([early * rates.prefill, late * rates.mixed, late * rates.solo, zero, zero]),
        A=np.array(
            [
                np.concatenate([one, zero, zero, zero, zero]),
                np.concatenate([-(slots - 1) * one, one, zero, zero, zero]),
                np.concatenate([slots * one, zero, one, zero, zero]),
            ]
        ),
        b=np.array([1.0, 0.0, float(slots)]),
        E=np.block([[prefill, none, none, leave, none], [-prefill, mixed, solo, none, leave @ eye]]),
        r=np.concatenate([arrivals, zero]),
    )


def _solve(program: _Program) -> tuple[Any, Any, Any]:
    """Return (v, prices of A v <= b, prices of E v = r), or (None, None, None) when nothing is feasible."""
    import cvxpy as cp

    v = cp.Variable(program.c.size, nonneg=True)
    upper, balance = program.A @ v <= program.b, program.E @ v == program.r
    problem = cp.Problem(cp.Maximize(program.c @ v), [upper, balance])
    # scipy's HiGHS returns a vertex, so what is not used is exactly 0, and prints nothing
    try:
        problem.solve(solver=cp.SCIPY, scipy_options={"method": "highs-ds"})
    except cp.error.SolverError as error:
        raise SolveError(f"the solver stopped ({error}); scale the problem") from None
    if problem.status in ("infeasible", "infeasible_inaccurate"):
        return None, None, None
    if problem.status != "optimal":
        raise SolveError(f"the solver ended with status {problem.status}; scale the problem")
    # of the Lagrangian c.v + price.(b - A v) + price.(r - E v)
    inequality, equality = np.abs(np.asarray(upper.dual_value)), np.asarray(balance.dual_value)
    # HiGHS leaves values of its own tolerance below 0
    return np.maximum(np.asarray(v.value), 0.0), inequality, _signed(program, inequality, equality)


def _signed(program: _Program, inequality: np.ndarray, equality: np.ndarray) -> np.ndarray:
    """Return the equality prices with the sign of d(value)/d(right-hand side), whichever the solver reports."""

    def violation(prices: np.ndarray) -> float:
        return float(np.max(program.c - program.A.T @ inequality - program.E.T @ prices))

    return equality if violation(equality) <= violation(-equality) else -equality


def _kkt(program: _Program, v: np.ndarray, inequality: np.ndarray, equality: np.ndarray) -> GateAndRouteKkt:
    """Check primal and dual feasibility, stationarity and complementarity from the data alone."""
    slack = program.b - program.A @ v
    gap = program.E @ v - program.r
    reduced = program.A.T @ inequality + program.E.T @ equality - program.c
    size = np.abs(program.A).T @ np.abs(inequality) + np.abs(program.E).T @ np.abs(equality) + np.abs(program.c)
    row = np.abs(program.A) @ np.abs(v) + np.abs(program.b)
    balance = np.abs(program.E) @ np.abs(v) + np.abs(program.r)
    money = max(abs(float(program.c @ v)), 1e-300)
    tiny = 1e-300
    return GateAndRouteKkt(
        primal=float(
            max(np.max(np.maximum(-slack, 0) / (row + tiny)), np.max(np.abs(gap) / (balance + tiny)), np.max(-v), 0.0)
        ),
        dual=float(max(np.max(-inequality), 0.0)),
        stationarity=float(max(np.max(-reduced / (size + tiny)), 0.0)),
        complementarity=float((np.abs(inequality @ slack) + np.abs(reduced @ v)) / money) if program.c.any() else 0.0,
    )
