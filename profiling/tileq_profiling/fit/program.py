r"""The fit as a convex program.

For one tile and one split,

    minimise    sum_i v_i rho((X_i theta - y_i)/scale_i)
    subject to  theta >= 0,
                w >= a ceil(n_j/b) + beta n_j             n_j: the largest batch on the floor
                a ceil(n_l/b) + beta n_l >= w             n_l: the smallest batch beyond it

is convex, and with the two last rows X theta is the family's own time, max included. Every theta satisfies them for
some split, so the best split's minimum is the global one. `fit_exactly` needs only a few: the minimum without the
rows is a lower bound of a split, and splits are solved in the order of their bounds until the next bound exceeds the
best value.
"""

from __future__ import annotations

__all__ = ["Exact", "fit_exactly", "solve_cell"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.huber import huber, minimise
from tileq_profiling.fit.rows import BETA, NAMES, A, Rows, W, design, predict
from tileq_profiling.fit.screen import used_in
from tileq_theory.errors import SolveError

_TOGETHER = 16  # splits in one stack: bounded memory
_GAP = 1e-6  # relative: below it two splits are the same fit


@dataclass(frozen=True, slots=True)
class Exact:
    """Global minimum for one tile.

    Parameters
    ----------
    theta
        Coefficients in the order of `NAMES`.
    split_tokens
        Its split (0: no floor).
    loss
        Mean loss.
    programs
        Convex programs that had to be solved.
    """

    theta: Float[np.ndarray, "7"]
    split_tokens: float
    loss: float
    programs: int


def _losses(rows: Rows, tile: int | None, theta: Float[np.ndarray, "7"], knee: float) -> float:
    return float(np.mean(rows.weight * huber((predict(rows, tile, theta) - rows.seconds) / rows.scale, knee)))


def fit_exactly(rows: Rows, tile: int | None, splits: Sequence[float], active: Sequence[int], knee: float) -> Exact:
    """Return the least Huber loss over all `splits` (0 and every distinct token count make it global)."""
    target = rows.seconds / rows.scale
    bounds: list[tuple[float, float, Float[np.ndarray, "7"]]] = []
    used = used_in(active, tile, 1.0)
    for some in range(0, len(splits), _TOGETHER):
        few = splits[some : some + _TOGETHER]
        columns = np.stack([design(rows, tile, split, used) for split in few])
        thetas = np.zeros((len(few), len(NAMES)))
        thetas[:, used], losses = minimise(columns, target, knee, rows.weight)
        bounds += [(float(v) / len(rows), split, theta) for v, split, theta in zip(losses, few, thetas, strict=True)]
    bounds.sort(key=lambda item: (item[0], item[1]))
    best: Exact | None = None
    programs = 0
    for bound, split, theta in bounds:
        if best is not None and bound >= best.loss * (1 - _GAP):
            break
        # where the split's own assignment is what max does, its minimum needs no further rows
        value = _losses(rows, tile, theta, knee)
        if value > bound * (1 + _GAP) + 1e-18:
            theta = solve_cell(rows, tile, split, active, knee)
            value = _losses(rows, tile, theta, knee)
            programs += 1
        if best is None or value < best.loss * (1 - _GAP):
            best = Exact(theta, split, value, programs)
    if best is None:
        raise SolveError("no split was given to the fit; give 0 for a model without a floor")
    return Exact(best.theta, best.split_tokens, best.loss, programs)


def solve_cell(
    rows: Rows, tile: int | None, split: float, active: Sequence[int], knee: float
) -> Float[np.ndarray, "7"]:
    """Return the minimiser of one tile's and one split's convex program."""
    import cvxpy as cp

    used = used_in(active, tile, split)
    columns = design(rows, tile, split, used)
    size = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    x = cp.Variable(len(used), nonneg=True)
    residual = (columns / size) @ x - rows.seconds / rows.scale
    # residuals are a few hundredths: in units of the knee the solver's tolerances mean something
    objective = cp.sum(cp.multiply(rows.weight, cp.huber(residual / knee, 1.0))) / len(rows)
    problem = cp.Problem(cp.Minimize(objective), _assignment(rows, tile, split, used, x, size))
    try:
        problem.solve(solver=cp.CLARABEL)
    except cp.SolverError as error:
        raise SolveError(f"the fit's convex program failed ({error}); check the profile for absurd times") from None
    if x.value is None or problem.status not in ("optimal", "optimal_inaccurate"):
        raise SolveError(f"the fit's convex program ended as {problem.status}; check the profile for absurd times")
    theta = np.zeros(len(NAMES))
    theta[used] = np.maximum(np.asarray(x.value), 0.0) / size
    return theta


def _assignment(
    rows: Rows, tile: int | None, split: float, used: Sequence[int], x: object, size: np.ndarray
) -> list[object]:
    """Return the rows that make the split's assignment to floor and line the one that max makes."""
    if W not in used:
        return []

    def line(tokens: float) -> np.ndarray:
        row = np.zeros(len(used))
        for at, j in enumerate(used):
            value = {A: np.ceil(tokens / tile) if tile else 0.0, BETA: tokens, W: -1.0}.get(j, 0.0)
            row[at] = value / size[at]
        return row

    on, beyond = rows.tokens <= split, rows.tokens > split
    out: list[object] = [line(float(rows.tokens[on].max())) @ x <= 0]
    if beyond.any():
        out.append(line(float(rows.tokens[beyond].min())) @ x >= 0)
    return out
