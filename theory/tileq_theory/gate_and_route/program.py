"""The linear program of gate-and-route as matrices: built, solved, and checked from its data alone."""

from __future__ import annotations

__all__ = ["FluidProgram", "check", "fluid_program", "solve"]

from dataclasses import dataclass
from typing import Any

import numpy as np

from tileq_theory.errors import SolveError
from tileq_theory.gate_and_route.answer import GateAndRouteKkt
from tileq_theory.gate_and_route.fleet import ClassArray, Fleet, ServiceRates


@dataclass(frozen=True, slots=True)
class FluidProgram:
    """max c.v subject to A v <= b, E v = r, v >= 0, v = (x, y_m, y_s, a_p, a_d)."""

    c: np.ndarray
    A: np.ndarray
    b: np.ndarray
    E: np.ndarray
    r: np.ndarray


def fluid_program(
    fleet: Fleet,
    rates: ServiceRates,
    arrivals: ClassArray,
    patience: ClassArray,
    early: ClassArray,
    late: ClassArray,
) -> FluidProgram:
    """Return the matrices; `early` and `late` are paid for a completed prefill and a completed decode of each class."""
    count = arrivals.size
    one, zero, slots = np.ones(count), np.zeros(count), fleet.max_sequences
    eye, none = np.eye(count), np.zeros((count, count))
    leave = np.diag((patience > 0).astype(float))  # nobody gives up where patience is unlimited
    prefill, mixed, solo = (np.diag(mu) for mu in (rates.prefill, rates.mixed, rates.solo))
    return FluidProgram(
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


def solve(program: FluidProgram) -> tuple[Any, Any, Any]:
    """Return (v, prices of A v <= b, prices of E v = r), or (None, None, None) when nothing is feasible."""
    import cvxpy as cp

    v: Any = cp.Variable(program.c.size, nonneg=True)
    upper: Any = program.A @ v <= program.b
    balance: Any = program.E @ v == program.r
    # prices may be in any currency: the solver's tolerances expect numbers around 1
    unit = float(np.max(np.abs(program.c))) or 1.0
    problem: Any = cp.Problem(cp.Maximize((program.c / unit) @ v), [upper, balance])
    # scipy's HiGHS returns a vertex, so what is not used is exactly 0, and prints nothing
    try:
        problem.solve(solver=cp.SCIPY, scipy_options={"method": "highs-ds"})
    except cp.error.SolverError as error:
        raise SolveError(f"the solver stopped ({error}); scale the problem") from None
    if problem.status in ("infeasible", "infeasible_inaccurate"):
        return None, None, None
    if problem.status != "optimal":
        raise SolveError(f"the solver ended with status {problem.status}; scale the problem")
    inequality, equality = unit * np.asarray(upper.dual_value), unit * np.asarray(balance.dual_value)
    # HiGHS leaves values of its own tolerance below 0
    return np.maximum(np.asarray(v.value), 0.0), inequality, _signed(program, inequality, equality)


def _signed(program: FluidProgram, inequality: np.ndarray, equality: np.ndarray) -> np.ndarray:
    """Return the equality prices with the sign of d(value)/d(right-hand side), whichever the solver reports."""

    def violation(prices: np.ndarray) -> float:
        return float(np.max(program.c - program.A.T @ inequality - program.E.T @ prices))

    return equality if violation(equality) <= violation(-equality) else -equality


def check(program: FluidProgram, v: np.ndarray, inequality: np.ndarray, equality: np.ndarray) -> GateAndRouteKkt:
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
        dual=float(max(np.max(-inequality) / (np.max(np.abs(inequality)) + tiny), 0.0)),
        stationarity=float(max(np.max(-reduced / (size + tiny)), 0.0)),
        complementarity=float((np.abs(inequality @ slack) + np.abs(reduced @ v)) / money) if program.c.any() else 0.0,
    )
