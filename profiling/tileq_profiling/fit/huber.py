r"""Huber's loss of relative residuals, and its minimum over nonnegative coefficients.

    rho(r) = r^2/2 for |r| <= M,  M |r| - M^2/2 beyond

(Huber, Ann. Math. Statist. 35, 1964). Minimised by iteratively reweighted nonnegative least squares: each round solves
a least-squares problem with weights min(1, M/|r|) exactly, and no round raises the loss. It is the fast twin of the
convex program in `program`, which the tests hold it against; stacks of problems run together.
"""

from __future__ import annotations

__all__ = ["huber", "huber_weights", "minimise", "minimise_draws", "spread"]

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.nonnegative import nonnegative_solutions

_ROUNDS = 80
_TOLERANCE = 1e-8


def huber(residual: Float[np.ndarray, "*row"], knee: float) -> Float[np.ndarray, "*row"]:
    """Return rho(r) of each residual."""
    size = np.abs(residual)
    inner = np.minimum(size, knee)
    loss: np.ndarray = inner * (size - 0.5 * inner)
    return loss


def huber_weights(residual: Float[np.ndarray, "*row"], knee: float) -> Float[np.ndarray, "*row"]:
    """Return min(1, M/|r|), the weights under which least squares agrees with Huber's loss."""
    weights: np.ndarray = knee / np.maximum(np.abs(residual), knee)
    return weights


def spread(residual: Float[np.ndarray, "row"]) -> float:
    """Return the robust standard deviation: 1.4826 times the median of |r - median r|."""
    return float(1.4826 * np.median(np.abs(residual - np.median(residual))))


def minimise(
    columns: Float[np.ndarray, "problem row p"],
    target: Float[np.ndarray, "row"],
    knee: float,
    weight: Float[np.ndarray, "row"],
) -> tuple[Float[np.ndarray, "problem p"], Float[np.ndarray, "problem"]]:
    """Return argmin over x >= 0 of sum v rho(columns x - target), v the weights, for each problem, and its loss."""
    across = columns.transpose(0, 2, 1)

    def solve(weights: np.ndarray) -> np.ndarray:
        weighted = across * weights[:, None, :]
        return nonnegative_solutions(weighted @ columns, weighted @ target)

    def residuals(x: np.ndarray) -> np.ndarray:
        difference: np.ndarray = (columns @ x[:, :, None])[:, :, 0] - target
        return difference

    return _reweight(solve, residuals, np.broadcast_to(weight, (columns.shape[0], target.size)), knee)


def minimise_draws(
    columns: Float[np.ndarray, "row p"],
    target: Float[np.ndarray, "row"],
    knee: float,
    weights: Float[np.ndarray, "draw row"],
) -> tuple[Float[np.ndarray, "draw p"], Float[np.ndarray, "draw"]]:
    """Return argmin over x >= 0 of sum v rho(columns x - target) for each draw's weights v, and its loss."""
    p = columns.shape[1]
    products = (columns[:, :, None] * columns[:, None, :]).reshape(-1, p * p)
    moments = columns * target[:, None]

    def solve(total: np.ndarray) -> np.ndarray:
        return nonnegative_solutions((total @ products).reshape(-1, p, p), total @ moments)

    return _reweight(solve, lambda x: x @ columns.T - target, weights, knee)


def _reweight(
    solve: Callable[[np.ndarray], np.ndarray],
    residuals: Callable[[np.ndarray], np.ndarray],
    weights: Float[np.ndarray, "problem row"],
    knee: float,
) -> tuple[Float[np.ndarray, "problem p"], Float[np.ndarray, "problem"]]:
    """Return the minimisers and losses of a stack of problems, kept from the best round of each."""
    x = solve(weights)
    r = residuals(x)
    loss = np.sum(weights * huber(r, knee), axis=1)
    for _ in range(_ROUNDS):
        step = solve(weights * huber_weights(r, knee))
        r_step = residuals(step)
        after = np.sum(weights * huber(r_step, knee), axis=1)
        better = after < loss
        x[better] = step[better]
        done = bool(np.all(after >= loss * (1 - _TOLERANCE)))
        loss = np.minimum(loss, after)
        r = r_step
        if done:
            break
    return x, loss
