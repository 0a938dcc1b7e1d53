r"""From a solution to its meaning: levels in physical units, prices, usage, elasticities.

Elasticities by the envelope theorem: for a row a(theta) . v <= b with dual pi,
d mu/d theta = - sum pi (d a/d theta) . v, so only duals and the solution are needed.
"""

from __future__ import annotations

__all__ = ["binding_limit", "elasticities", "levels_in_use", "prices", "time_shares", "usage"]

import numpy as np

from tileq_theory.capacity.answer import Binding, LevelUse, Prices
from tileq_theory.capacity.coefficients import Coefficients, kv_read_demand
from tileq_theory.capacity.levels import LevelKind
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.program import Solution
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime

_USED = 1e-9  # share of node time above which a level is in use
_BINDS = 1e-3  # elasticity above which a limit is said to bind: 1 % more of it brings over a thousandth of a percent


def levels_in_use(
    time: IterationTime,
    demand: Demand,
    tokens: np.ndarray,
    kinds: tuple[LevelKind, ...],
    k: Coefficients,
    s: Solution,
) -> tuple[LevelUse, ...]:
    """Return the levels with a share of node time above rounding, largest share first."""
    uses = []
    rho, reads = k.rate_unit_per_s, kv_read_demand(time, demand)
    for j in np.argsort(-s.x, kind="stable"):
        x = s.x[j] / k.tau_scale_s[j]
        if s.x[j] <= _USED:
            continue
        kv = rho * reads * s.y[j] / x
        pairs = rho * demand.attention_pairs * s.z[j] / x
        uses.append(
            LevelUse(
                tokens=int(tokens[j]),
                kind=kinds[j],
                iterations_per_s=float(x),
                prefill_tokens=float(rho * demand.prefill_tokens * s.p[j] / x),
                decode_tokens=float(rho * demand.decode_tokens * s.d[j] / x),
                kv_read_tokens=float(kv),
                attention_pairs=float(pairs),
                iteration_s=float(time(float(tokens[j]), pairs, kv)),
            )
        )
    return tuple(uses)


def prices(time: IterationTime, demand: Demand, k: Coefficients, s: Solution) -> Prices:
    """Return node seconds per unit of demand: dual of the demand row / (rho * dual of time)."""
    reads = s.duals["kv_demand"]
    sequences = k.sequence_cost * s.duals["time"]
    parts = np.array(
        [
            s.duals["prefill_demand"],
            s.duals["decode_demand"],
            0.0 if time.kv_counts_prefill else reads,
            s.duals["attention_demand"],
            k.memory_need * s.duals["memory_time"] + (reads if time.kv_counts_prefill else 0.0),
            k.slot_need * s.duals["slot_time"] + sequences,
        ],
        dtype=float,
    )
    per_request = k.rate_unit_per_s * float(s.duals["time"])
    amounts = demand.vector()
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = np.where(amounts > 0, parts / (per_request * np.where(amounts > 0, amounts, 1.0)), 0.0)
    return Prices(*(float(u) for u in unit))


def usage(limits: Limits, k: Coefficients, s: Solution) -> dict[str, float]:
    """Return used/available for each row that exists; the TBT entry is that of the fullest level in use."""
    batch = float((k.prefill_share * s.p + k.decode_share * s.d).sum() / max(s.x.sum(), 1e-300))
    busy = float((k.busy * s.x).sum() + k.kv_cost * s.y.sum() + k.pair_cost * s.z.sum() + k.sequence_cost * s.rate)
    rows = {"time": min(busy, 1.0), "batch": min(batch, 1.0)}
    if limits.kv_tokens is not None:
        rows["memory"] = min(float(k.memory_need * s.rate / max((k.memory_supply * s.x).sum(), 1e-300)), 1.0)
    if limits.max_num_seqs is not None:
        rows["slots"] = min(float(k.slot_need * s.rate / max((k.slot_supply * s.x).sum(), 1e-300)), 1.0)
    if limits.tbt_s is not None:
        in_use = s.x > _USED
        load = (k.busy * s.x + k.kv_cost * s.y + k.pair_cost * s.z + k.decode_sequence_cost * s.d)[in_use]
        room = limits.tbt_s / k.tau_scale_s[in_use] * s.x[in_use]
        rows["tbt"] = min(float(np.max(load / room)), 1.0) if load.size else 1.0
    return rows


def elasticities(
    time: IterationTime, limits: Limits, tokens: np.ndarray, k: Coefficients, s: Solution
) -> dict[str, float]:
    """Return d ln lambda*/d ln theta for each limit and each coefficient of the iteration time."""
    dual, mu = s.duals, s.rate
    out: dict[str, float] = {}
    if limits.kv_tokens is not None:
        out["kv_tokens"] = float((dual["kv"] * k.kv_share * s.y).sum() / mu + dual["memory_time"] * k.memory_need)
    if limits.max_num_seqs is not None:
        out["max_num_seqs"] = float((dual["slots"] * k.slot_share * s.d).sum() / mu + dual["slot_time"] * k.slot_need)
    if limits.tbt_s is not None:
        out["tbt_s"] = float((dual["tbt"] * limits.tbt_s / k.tau_scale_s * s.x).sum() / mu)
    # every second spent is charged to the time row, and to the TBT row of its level
    weight = float(dual["time"]) + k.tbt * np.asarray(dual["tbt"])
    n = tokens.astype(float)
    iterations = s.x / k.tau_scale_s
    at_floor = np.asarray(time.linear_s(n)) <= time.weight_floor_s
    tiles = np.where(at_floor, 0.0, time.tile_s * np.ceil(n / time.tile_tokens))
    elementwise = np.where(at_floor, 0.0, time.token_s * n)
    linear = {
        "launch_s": time.launch_s * np.ones_like(n),
        "weight_floor_s": np.where(at_floor, time.weight_floor_s, 0.0),
        "tile_s": tiles,
        "token_s": elementwise,
    }
    for name, seconds in linear.items():
        out[name] = -float((weight * seconds * iterations).sum() / mu)
    out["kv_token_s"] = -float((weight * k.kv_cost * s.y).sum() / mu)
    out["pair_s"] = -float((weight * k.pair_cost * s.z).sum() / mu)
    decode_part = k.tbt * np.asarray(dual["tbt"]) * k.decode_sequence_cost * s.d
    out["sequence_s"] = -float(dual["time"] * k.sequence_cost + decode_part.sum() / mu)
    return {name: value + 0.0 for name, value in out.items()}


def time_shares(time: IterationTime, tokens: np.ndarray, k: Coefficients, s: Solution) -> dict[str, float]:
    """Return what node time is spent on; the shares add up to 1 with idle."""
    n = tokens.astype(float)
    iterations = s.x / k.tau_scale_s
    at_floor = np.asarray(time.linear_s(n)) <= time.weight_floor_s
    linear_s = np.asarray(time.linear_s(n))
    shares = {
        "launch": float((time.launch_s * iterations).sum()),
        "weights_floor": float((np.where(at_floor, linear_s, 0.0) * iterations).sum()),
        "linear": float((np.where(at_floor, 0.0, linear_s) * iterations).sum()),
        "kv_reads": float(k.kv_cost * s.y.sum()),
        "attention": float(k.pair_cost * s.z.sum()),
        "sequences": float(k.sequence_cost * s.rate),
    }
    return {**shares, "idle": max(0.0, 1.0 - sum(shares.values()))}


def binding_limit(elastic: dict[str, float]) -> Binding:
    """Return the limit with the largest elasticity; without one, what most time goes to (weights floor or work)."""
    limits: dict[Binding, float] = {
        "memory": elastic.get("kv_tokens", 0.0),
        "slots": elastic.get("max_num_seqs", 0.0),
        "tbt": elastic.get("tbt_s", 0.0),
    }
    name = max(limits, key=lambda key: limits[key])
    if limits[name] > _BINDS:
        return name
    work = -sum(elastic[key] for key in ("launch_s", "tile_s", "token_s", "kv_token_s", "pair_s", "sequence_s"))
    return "weights_floor" if -elastic["weight_floor_s"] > work else "time"
