r"""Huber's loss of relative residuals, and its minimum over nonnegative coefficients.

    rho(r) = r^2/2 for |r| <= M,  M |r| - M^2/2 beyond

(Huber, Ann. Math. Statist. 35, 1964). Minimised by iteratively reweighted nonnegative least squares: each round solves
a least-squares problem with weights min(1, M/|r|) exactly (Lawson & Hanson's active set on the 7 x 7 normal equations), and
no round raises the loss (Huber & Dutter). It is the fast twin of the convex program in `program`, which the tests hold
it against.
"""

from __future__ import annotations

__all__ = ["huber", "huber_weights", "minimise", "nonnegative_solution", "spread"]

import numpy as np
from jaxtyping import Float

_ROUNDS = 60
_TOLERANCE = 1e-9


def huber(residual: Float[np.ndarray, "row"], knee: float) -> Float[np.ndarray, "row"]:
    """Return rho(r) of each residual."""
    size = np.abs(residual)
    return np.where(size <= knee, 0.5 * size**2, knee * size - 0.5 * knee**2)


def huber_weights(residual: Float[np.ndarray, "row"], knee: float) -> Float[np.ndarray, "row"]:
    """Return min(1, M/|r|), the weights under which least squares agrees with Huber's loss."""
    return np.minimum(1.0, knee / np.maximum(np.abs(residual), 1e-300))


def spread(residual: Float[np.ndarray, "row"]) -> float:
    """Return the robust standard deviation: 1.4826 times the median of |r - median r|."""
    return float(1.4826 * np.median(np.abs(residual - np.median(residual))))


def nonnegative_solution(gram: Float[np.ndarray, "p p"], right: Float[np.ndarray, "p"]) -> Float[np.ndarray, "p"]:
    """Return argmin over x >= 0 of x'G x/2 - g'x (columns that are all 0 get 0)."""
    from scipy.optimize import nnls

    size = np.sqrt(np.diag(gram))
    live = size > 0
    out = np.zeros(right.size)
    if not live.any():
        return out
    unit = gram[np.ix_(live, live)] / np.outer(size[live], size[live])
    # the ridge keeps exactly collinear columns solvable; it moves a well-conditioned answer by 1e-12
    factor = np.linalg.cholesky(unit + 1e-12 * np.eye(unit.shape[0]))
    target = np.linalg.solve(factor, right[live] / size[live])
    solution, _ = nnls(factor.T, target)
    out[live] = solution / size[live]
    return out


def minimise(
    columns: Float[np.ndarray, "row p"],
    target: Float[np.ndarray, "row"],
    knee: float,
    weights: Float[np.ndarray, "row"] | None = None,
) -> tuple[Float[np.ndarray, "p"], float]:
    """Return argmin over x >= 0 of sum v rho(columns x - target) and its loss; `weights` v are 1 unless given."""
    own = np.ones(target.size) if weights is None else weights
    x = _weighted(columns, target, own)
    loss = float(own @ huber(columns @ x - target, knee))
    for _ in range(_ROUNDS):
        step = _weighted(columns, target, own * huber_weights(columns @ x - target, knee))
        after = float(own @ huber(columns @ step - target, knee))
        if after < loss:
            x = step
        if after >= loss * (1 - _TOLERANCE):
            break
        loss = after
    return x, min(loss, after)


def _weighted(columns: np.ndarray, target: np.ndarray, weights: np.ndarray) -> np.ndarray:
    weighted = columns * weights[:, None]
    return nonnegative_solution(weighted.T @ columns, weighted.T @ target)
