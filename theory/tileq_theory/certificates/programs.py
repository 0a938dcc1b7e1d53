r"""The programs that look for certificates (cvxpy); what they return is a proposal, to be checked in fractions.

    linear      maximise eps,  w d_m <= -eps for all m,  0 <= w <= 1
    growth      maximise eps,  v d_m >= eps for all m,   0 <= v <= 1
    pieces      the same for V = max of K functions, with binaries a_mj (w_j falls in mode m) and b_mij (w_i <= w_j on
                the support of m): each pair (m, i) needs a_mi or some b_mij, and b_mij needs a_mj

Where the linear program has no answer above 0 its dual y >= 0, sum y = 1, sum_m y_m d_m >= 0 is the direction: spending
the share y_m of time in mode m, no coordinate shrinks.
"""

from __future__ import annotations

__all__ = ["farkas_shares", "growth_weights", "linear_weights", "piecewise_weights"]

from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.certificates.modes import FluidModes


def _drifts(model: FluidModes) -> Float[np.ndarray, "mode coordinate"]:
    """Return the drifts as floats, scaled to largest 1 (a change of the unit of time)."""
    drifts = np.array([[float(d) for d in mode.drift] for mode in model.modes])
    largest = float(np.abs(drifts).max(initial=0.0))
    return drifts / largest if largest > 0 else drifts


def _solve(problem: Any) -> bool:
    """Solve with HiGHS, and continuous programs with Clarabel where it fails; True if solved."""
    import cvxpy as cp

    # HiGHS through scipy: it returns vertices, solves integer programs too, and prints no banner
    solvers = (cp.SCIPY,) if problem.is_mixed_integer() else (cp.SCIPY, cp.CLARABEL)
    for solver in solvers:
        try:
            problem.solve(solver=solver)
        except cp.error.SolverError:
            continue
        if problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            return True
    return False


def linear_weights(model: FluidModes) -> tuple[float, Float[np.ndarray, "coordinate"]] | None:
    """Return (eps, w) of the linear program, None where the solver failed."""
    return _one_function(model, -1.0)


def growth_weights(model: FluidModes) -> tuple[float, Float[np.ndarray, "coordinate"]] | None:
    """Return (eps, v) of the growth program, None where the solver failed."""
    return _one_function(model, 1.0)


def _one_function(model: FluidModes, sign: float) -> tuple[float, np.ndarray] | None:
    import cvxpy as cp

    weights, margin = cp.Variable(model.size), cp.Variable()
    constraints = [sign * (_drifts(model) @ weights) >= margin, weights >= 0, weights <= 1]
    if not _solve(cp.Problem(cp.Maximize(margin), constraints)):
        return None
    return float(margin.value), np.clip(np.asarray(weights.value), 0.0, 1.0)


def farkas_shares(model: FluidModes) -> Float[np.ndarray, "mode"] | None:
    """Return y >= 0, sum 1, that makes the least coordinate of sum_m y_m d_m as large as can be."""
    import cvxpy as cp

    shares, least = cp.Variable(len(model.modes)), cp.Variable()
    constraints = [_drifts(model).T @ shares >= least, shares >= 0, cp.sum(shares) == 1]
    if not _solve(cp.Problem(cp.Maximize(least), constraints)):
        return None
    return np.asarray(np.clip(np.asarray(shares.value), 0.0, 1.0))


def piecewise_weights(model: FluidModes, pieces: int) -> tuple[float, Float[np.ndarray, "piece coordinate"]] | None:
    """Return (eps, w) of the mixed-integer program with `pieces` functions, None where it has no answer."""
    import cvxpy as cp

    drifts, count = _drifts(model), len(model.modes)
    support = np.array([[float(k in mode.support) for k in range(model.size)] for mode in model.modes])
    reach = float(np.abs(drifts).sum(axis=1).max()) + 1.0
    weights, margin = cp.Variable((pieces, model.size)), cp.Variable()
    falls = cp.Variable((count, pieces), boolean=True)
    # |w| <= 1, so 1 and `reach` are enough to switch a row off
    constraints = [drifts @ weights.T <= -margin + reach * (1 - falls), weights >= 0, weights <= 1, margin <= 1]
    for i in range(pieces):
        covered = falls[:, i]
        for j in range(pieces):
            if i != j:
                below = cp.Variable(count, boolean=True)
                gap = np.ones((count, 1)) @ cp.reshape(weights[i] - weights[j], (1, model.size), order="C")
                off = cp.reshape(1 - below, (count, 1), order="C") @ np.ones((1, model.size))
                constraints += [cp.multiply(support, gap) <= off, below <= falls[:, j]]
                covered = covered + below
        constraints.append(covered >= 1)
    if not _solve(cp.Problem(cp.Maximize(margin), constraints)):
        return None
    return float(margin.value), np.clip(np.asarray(weights.value), 0.0, 1.0)
