r"""Coefficients of least robust loss, through the simulator.

    sum_i psi(r_i / sigma_i) g_i = 0,   r_i = log(predicted_i / measured_i),  theta >= 0

with Huber's psi, sigma the robust spread of its kind (TTFT of one run, TPOT of one run, ...), and g_i the slope of log
predicted_i. Slopes of even replications meet residuals of odd ones and the reverse: what an arrival happens to meet is
in both, and would pull the solution otherwise. Gauss-Newton steps in u = theta/reference, each a bounded least-squares
problem (u >= 0, a trust region); a step may raise the loss by the noise of the simulation, and the answer is the mean
of the last ones.
"""

from __future__ import annotations

__all__ = ["Refined", "Slopes", "bounded_move", "refine", "slopes", "spreads", "weights_of"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from tileq_profiling.fit.huber import huber, huber_weights
from tileq_profiling.inverse.forward import Forward

KNEE = 1.345
_ROUNDS = 16
_AVERAGED = 5  # last states, of whose coefficients the mean is taken
_HALVINGS = 6
_NOISE = 0.02  # of the loss, per value, between two simulations of much the same coefficients
_RIDGE = 1.0  # one standard error of one reference: a direction that nothing tells does not move
_STILL = 0.02  # largest move of u below which averaging begins
_LEAST_EACH, _LEAST_FIGURE = 0.005, 0.02  # smallest spread of one request's figure, and of one over all requests
_FAR = 3.0  # a residual beyond e^3 says no more than e^3


@dataclass(frozen=True, slots=True, eq=False)
class Refined:
    """Where the search stands.

    Parameters
    ----------
    theta
        Coefficients in the order of `forward.PARAMETERS`.
    residual, sigma
        log(predicted/measured) there, and what each was divided by.
    loss
        Sum of Huber's loss and of log sigma: a kind that fits well may not be given up for one that cannot.
    """

    theta: Float[np.ndarray, "8"]
    residual: Float[np.ndarray, "value"]
    sigma: Float[np.ndarray, "value"]
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class Slopes:
    """Residuals and their slopes (d / d (theta/reference), active coefficients), by even and odd replications."""

    residual: Float[np.ndarray, "2 value"]
    moves: Float[np.ndarray, "2 value active"]

    def normal(
        self, weight: Float[np.ndarray, "value"], seen: Bool[np.ndarray, "value"] | None = None
    ) -> Float[np.ndarray, "active active"]:
        """Return J1'WJ2, symmetric: without what the noise of one replication would add to its diagonal."""
        rows = slice(None) if seen is None else seen
        product = self.moves[0][rows].T @ (self.moves[1][rows] * weight[rows][:, None])
        return np.asarray(0.5 * (product + product.T))

    def scores(self, weight: Float[np.ndarray, "value"]) -> Float[np.ndarray, "value active"]:
        """Return each value's part of the estimating equation."""
        crossed = self.moves[0] * self.residual[1][:, None] + self.moves[1] * self.residual[0][:, None]
        return np.asarray(0.5 * weight[:, None] * crossed)


def spreads(forward: Forward, residual: Float[np.ndarray, "value"]) -> Float[np.ndarray, "value"]:
    """Return the robust spread about 0 of each value's kind; figures over all requests are pooled."""
    out = np.empty(residual.size)
    figure = np.array([not each for _, _, each in forward.kinds])[forward.kind]
    for k in np.unique(forward.kind[~figure]):
        mask = forward.kind == k
        out[mask] = max(_LEAST_EACH, 1.4826 * float(np.median(np.abs(residual[mask]))))
    if figure.any():
        out[figure] = max(_LEAST_FIGURE, 1.4826 * float(np.median(np.abs(residual[figure]))))
    return out


def _clean(residual: np.ndarray) -> np.ndarray:
    """Return residuals with those of requests that were not served at 0 (they say nothing) and none absurd."""
    kept: np.ndarray = np.clip(np.nan_to_num(residual, nan=0.0), -_FAR, _FAR)
    return kept


def at(forward: Forward, theta: Float[np.ndarray, "8"], sigma: Float[np.ndarray, "value"] | None = None) -> Refined:
    """Return the state at theta; sigma is estimated when None."""
    residual = _clean(forward.residual(theta))
    scale = spreads(forward, residual) if sigma is None else sigma
    return Refined(theta, residual, scale, float(huber(residual / scale, KNEE).sum() + np.log(scale).sum()))


def weights_of(state: Refined) -> Float[np.ndarray, "value"]:
    """Return each value's weight in least squares: Huber's over its variance."""
    out: np.ndarray = huber_weights(state.residual / state.sigma, KNEE) / state.sigma**2
    return out


def slopes(
    forward: Forward, theta: Float[np.ndarray, "8"], reference: Float[np.ndarray, "8"], active: Sequence[int]
) -> Slopes:
    """Return residuals and slopes at theta."""
    residual, moves = forward.slopes(theta, active)
    lost = ~np.isfinite(residual)
    moves = np.where(lost[:, :, None], 0.0, np.nan_to_num(moves, nan=0.0, posinf=0.0, neginf=0.0))
    return Slopes(_clean(residual), moves * reference[list(active)])


def refine(
    forward: Forward,
    start: Float[np.ndarray, "8"],
    reference: Float[np.ndarray, "8"],
    active: Sequence[int],
    rounds: int = _ROUNDS,
) -> Refined:
    """Return the state found from `start`, moving only the active coefficients."""
    state, trust, last = at(forward, start), 0.5, list[np.ndarray]()
    for _ in range(rounds):
        before = state.theta
        found = slopes(forward, before, reference, active)
        better, trust = _step(forward, state, found, reference, active, trust)
        if better is None:
            break
        state = better
        if last or float(np.max(np.abs(better.theta - before)[list(active)] / reference[list(active)])) < _STILL:
            last.append(better.theta)
        if len(last) == _AVERAGED:
            break
    return at(forward, np.mean(last, axis=0) if last else state.theta)


def _step(
    forward: Forward,
    state: Refined,
    found: Slopes,
    reference: Float[np.ndarray, "8"],
    active: Sequence[int],
    trust: float,
) -> tuple[Refined | None, float]:
    """Return the state one step on, and the next trust region; None when no step is any good."""
    chosen = list(active)
    for _ in range(_HALVINGS):
        move = bounded_move(found, state, state.theta[chosen] / reference[chosen], trust)
        theta = state.theta.copy()
        theta[chosen] = np.maximum(0.0, theta[chosen] + move * reference[chosen])
        trial = at(forward, theta)
        if trial.loss < state.loss + _NOISE * state.sigma.size:
            return trial, min(2 * trust, 1.0)
        trust /= 3
    return None, trust


def bounded_move(
    found: Slopes,
    state: Refined,
    place: Float[np.ndarray, "active"],
    trust: float,
    seen: Bool[np.ndarray, "value"] | None = None,
) -> Float[np.ndarray, "active"]:
    """Return the d of least d'Hd/2 + g'd over the values seen, with place + d >= 0 and |d| <= trust max(place, 1)."""
    from scipy.optimize import lsq_linear

    weight = weights_of(state)
    rows = slice(None) if seen is None else seen
    gradient = found.scores(weight)[rows].sum(axis=0)
    value, vector = np.linalg.eigh(found.normal(weight, seen))
    root = np.sqrt(np.maximum(value, 0.0) + _RIDGE)
    reach = trust * np.maximum(place, 1.0)
    low = np.maximum(-place, -reach) - 1e-12
    answer: np.ndarray = lsq_linear(root[:, None] * vector.T, -(vector.T @ gradient) / root, bounds=(low, reach)).x
    return answer
