r"""The capacity program in cvxpy, compiled once per number of levels and re-solved through parameters.

Every coefficient is a `cvxpy.Parameter`, so a sweep pays for compilation once (disciplined parametrised
programming). The solver is HiGHS' dual simplex, because the tile plan wants a vertex: few levels, exact zeros.
"""

from __future__ import annotations

__all__ = ["ROWS", "Solution", "solve_program"]

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity.coefficients import Coefficients
from tileq_theory.errors import SolveError

ROWS = (
    "batch",  # p + d <= n x
    "slots",  # d <= N x
    "kv",  # y <= M x
    "kv_least",  # shortest context * d <= y
    "kv_most",  # y <= longest context * d
    "attention",  # z <= p * longest prompt
    "tbt",  # tau x + k y + e z + s d <= T x
    "no_prefill",
    "no_decode",
    "spare",  # slots of the compiled program beyond the levels given
    "prefill_demand",
    "decode_demand",
    "kv_demand",
    "attention_demand",
    "memory_time",
    "slot_time",
    "time",
)
_SLOTS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


@dataclass(frozen=True, slots=True)
class Solution:
    """A primal and a dual answer in the dimensionless variables of `Coefficients`.

    `x`, `p`, `d`, `y`, `z` have one entry per level; `rate` is mu'. `duals[row]` is nonnegative, of shape (level,)
    for per-level rows and a scalar array for global rows; names and order are those of `ROWS`.
    """

    rate: float
    x: Float[np.ndarray, "level"]
    p: Float[np.ndarray, "level"]
    d: Float[np.ndarray, "level"]
    y: Float[np.ndarray, "level"]
    z: Float[np.ndarray, "level"]
    duals: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Compiled:
    problem: Any
    variables: dict[str, Any]
    parameters: dict[str, Any]
    rows: dict[str, Any]


_VECTORS = (
    "busy",
    "prefill_share",
    "decode_share",
    "slot_share",
    "kv_share",
    "memory_supply",
    "slot_supply",
    "tbt_room",
    "forbid_prefill",
    "forbid_decode",
)
_SCALARS = (
    "attention_need",
    "kv_least",
    "kv_need",
    "kv_cost",
    "pair_cost",
    "sequence_cost",
    "memory_need",
    "slot_need",
)
_TBT_SCALARS = ("tbt_kv", "tbt_pair", "tbt_sequence")


@lru_cache(maxsize=16)
def _compiled(size: int) -> _Compiled:
    import cvxpy as cp

    v = {name: cp.Variable(size, nonneg=True, name=name) for name in "xpdyz"}
    rate = cp.Variable(nonneg=True, name="rate")
    c: dict[str, Any] = {name: cp.Parameter(size, name=name) for name in (*_VECTORS, "spare")}
    c.update({name: cp.Parameter(nonneg=True, name=name) for name in (*_SCALARS, *_TBT_SCALARS)})
    times = cp.multiply
    tbt_use = c["tbt_kv"] * v["y"] + c["tbt_pair"] * v["z"] + c["tbt_sequence"] * v["d"]
    rows = {
        "batch": times(c["prefill_share"], v["p"]) + times(c["decode_share"], v["d"]) <= v["x"],
        "slots": times(c["slot_share"], v["d"]) <= v["x"],
        "kv": times(c["kv_share"], v["y"]) <= v["x"],
        "kv_least": c["kv_least"] * v["d"] <= v["y"],
        "kv_most": c["kv_need"] * v["y"] <= v["d"],
        "attention": c["attention_need"] * v["z"] <= v["p"],
        "tbt": tbt_use <= times(c["tbt_room"], v["x"]),
        "no_prefill": times(c["forbid_prefill"], v["p"]) <= 0,
        "no_decode": times(c["forbid_decode"], v["d"]) <= 0,
        "spare": times(c["spare"], v["x"] + v["p"] + v["d"] + v["y"] + v["z"]) <= 0,
        "prefill_demand": cp.sum(v["p"]) >= rate,
        "decode_demand": cp.sum(v["d"]) >= rate,
        "kv_demand": cp.sum(v["y"]) >= rate,
        "attention_demand": cp.sum(v["z"]) >= rate,
        "memory_time": cp.sum(times(c["memory_supply"], v["x"])) >= c["memory_need"] * rate,
        "slot_time": cp.sum(times(c["slot_supply"], v["x"])) >= c["slot_need"] * rate,
        "time": cp.sum(times(c["busy"], v["x"]))
        + c["kv_cost"] * cp.sum(v["y"])
        + c["pair_cost"] * cp.sum(v["z"])
        + c["sequence_cost"] * rate
        <= 1,
    }
    assert tuple(rows) == ROWS
    return _Compiled(cp.Problem(cp.Maximize(rate), list(rows.values())), {**v, "rate": rate}, c, rows)


def _assign(compiled: _Compiled, k: Coefficients, size: int) -> None:
    """Set every parameter; slots beyond the levels given are shut by the row `spare`."""
    used = len(k.busy)
    for name in _VECTORS:
        values = np.zeros(size)
        values[:used] = getattr(k, name)
        compiled.parameters[name].value = values
    compiled.parameters["spare"].value = (np.arange(size) >= used).astype(float)
    for name in _SCALARS:
        compiled.parameters[name].value = getattr(k, name)
    compiled.parameters["tbt_kv"].value = k.tbt * k.kv_cost
    compiled.parameters["tbt_pair"].value = k.tbt * k.pair_cost
    compiled.parameters["tbt_sequence"].value = k.tbt * k.decode_sequence_cost


def solve_program(k: Coefficients) -> Solution:
    """Solve the program; raise `SolveError` with the solver's status when it ends without an optimum."""
    import cvxpy as cp

    used = len(k.busy)
    size = next((s for s in _SLOTS if s >= used), used)
    compiled = _compiled(size)
    _assign(compiled, k, size)
    try:
        compiled.problem.solve(solver=cp.SCIPY, scipy_options={"method": "highs-ds"})
    except cp.error.SolverError as error:
        raise SolveError(
            f"the capacity program was not solved ({error}); check that the inputs are of sane size"
        ) from None
    status = str(compiled.problem.status)
    if status != cp.OPTIMAL:
        raise SolveError(f"the capacity program ended '{status}'; expected 'optimal': check that some limit is finite")
    return _read(compiled, used)


def _read(compiled: _Compiled, used: int) -> Solution:
    """Read the answer; rounding below zero is cut at zero."""

    def positive_part(values: Any) -> np.ndarray:
        full = np.asarray(np.maximum(np.asarray(values, dtype=float), 0.0))
        return full[:used].copy() if full.ndim else full

    return Solution(
        rate=float(compiled.variables["rate"].value),
        duals={name: positive_part(compiled.rows[name].dual_value) for name in ROWS},
        **{name: positive_part(compiled.variables[name].value) for name in "xpdyz"},
    )
