r"""An iteration time fitted to measured batches with numpy alone.

    t = c + max(w, beta n) + e A + k K + s m,    coefficients of 0 or more.

What is wanted is the *mean* time y of a batch, since rates are made of means, where the spread of y is proportional to
its mean. Least squares of t/y - 1 would not find it: it divides by what was measured, long times count less, and with
a relative spread v it comes out short by a factor near 1 - 2 v^2 (an eighth for v = 1/4). So t solves

    sum_i w_i x_ij (y_i - t_i)/t_i^2 = 0 for every coefficient above 0   (<= 0 for one at 0),

the quasi-likelihood equations for a variance proportional to the squared mean (Wedderburn, Biometrika 61, 1974, section
4). Multiplied by the coefficients and added they say that measured over fitted is 1 on the (weighted) mean.

With the floor's end n0 given (w = beta n0) they are solved by rounds of nonnegative least squares, divided by the fit
of the round before; each is Lawson and Hanson's active set. n0 is searched over the sizes measured, by the deviance
2 sum w (y/t - 1 - log(y/t)). `tileq_profiling.fit` does more (tiles, robust loss, held-out errors, intervals) and needs
more; this is for places where only torch and numpy are.
"""

from __future__ import annotations

__all__ = ["LightFit", "light_fit", "nonnegative_least_squares"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand, Provenance

_FOLDS = 5
_ROUNDS = 50
_SETTLED = 1e-8
_LEAST = 1e-3  # of a measured time: a batch fitted to take nothing would have an infinite weight


def nonnegative_least_squares(
    rows: Float[np.ndarray, "row column"], values: Float[np.ndarray, "row"]
) -> Float[np.ndarray, "column"]:
    """Return x >= 0 that minimises |rows x - values|^2 (Lawson and Hanson 1974, algorithm NNLS).

    Examples
    --------
    >>> nonnegative_least_squares(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -1.0])).tolist()
    [2.0, 0.0]
    """
    scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
    a = rows / scale
    x = np.zeros(a.shape[1])
    free = np.zeros(a.shape[1], dtype=bool)
    tolerance = 1e-12 * max(float(np.abs(a.T @ values).max(initial=0.0)), 1e-300)
    for _ in range(10 * a.shape[1] + 10):
        gradient = a.T @ (values - a @ x)
        gradient[free] = -np.inf
        if float(gradient.max(initial=-np.inf)) <= tolerance:
            break
        free[int(np.argmax(gradient))] = True
        while True:
            trial = np.zeros_like(x)
            trial[free] = np.linalg.lstsq(a[:, free], values, rcond=None)[0]
            low = free & (trial <= 0)
            if not low.any():
                break
            step = float(np.min(x[low] / np.maximum(x[low] - trial[low], 1e-300)))
            x = x + step * (trial - x)
            free &= x > 1e-14
            x[~free] = 0.0
        x = trial
    return np.asarray(x / scale)


@dataclass(frozen=True, slots=True)
class LightFit:
    """The fit with its relative errors (absolute values) on batches held out in turn."""

    time: IterationTime
    errors: Float[np.ndarray, "point"]

    @property
    def median_error(self) -> float:
        """Median of the held-out relative errors."""
        return float(np.median(self.errors))


def light_fit(
    compositions: Float[np.ndarray, "point 4"],
    seconds: Float[np.ndarray, "point"],
    *,
    floor: bool = True,
    weights: Float[np.ndarray, "point"] | None = None,
    stall: float | None = None,
) -> LightFit:
    """Fit (n, A, K, m) -> mean seconds; `floor` allows the floor w, `weights` say how much each point counts.

    Points that took more than `stall` times what the others say are left out; None: none is.

    Raises
    ------
    InputError
        Fewer than eight points.
    """
    if len(seconds) < 8:
        raise InputError(f"{len(seconds)} measured batches; a fit needs 8 or more")
    x = np.asarray(compositions, dtype=float)
    y = np.asarray(seconds, dtype=float)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, dtype=float)
    if stall is not None:
        kept = y <= stall * _short(x, y, w)
        x, y, w = x[kept], y[kept], w[kept]
    errors = np.zeros(len(y))
    for fold in range(_FOLDS):
        out = np.arange(len(y)) % _FOLDS == fold
        model = _fit(x[~out], y[~out], w[~out], floor)
        errors[out] = np.abs(_times(model, x[out]) / y[out] - 1)
    whole = _fit(x, y, w, floor)
    band = np.quantile(y / _times(whole, x), [0.05, 0.95])
    low, high = min(float(band[0]), 1.0), max(float(band[1]), 1.0)
    time = whole.with_(
        provenance=Provenance("fitted", f"{len(y)} batches measured through the executor"),
        error_band=ErrorBand(low, high, 0.9, "90 % of the measured batches"),
    )
    return LightFit(time, errors)


def _times(time: IterationTime, x: Float[np.ndarray, "point 4"]) -> Float[np.ndarray, "point"]:
    return np.asarray(time(x[:, 0], x[:, 1], x[:, 2], x[:, 3]), dtype=float)


def _fit(
    x: Float[np.ndarray, "point 4"], y: Float[np.ndarray, "point"], w: Float[np.ndarray, "point"], floor: bool
) -> IterationTime:
    sizes: Sequence[float] = [0.0, *np.unique(x[:, 0])[:-1].tolist()] if floor else [0.0]
    best, best_loss = None, np.inf
    for n0 in sizes:
        columns = np.column_stack([np.ones(len(y)), np.maximum(x[:, 0], n0), x[:, 1], x[:, 2], x[:, 3]])
        found, loss = _means(columns, y, w)
        if loss < best_loss * (1 - 1e-9):
            best, best_loss = (found, n0), loss
    assert best is not None  # there is always n0 = 0
    c, beta, e, k, s = (float(v) for v in best[0])
    return IterationTime(launch_s=c, weight_floor_s=beta * best[1], token_s=beta, pair_s=e, kv_token_s=k, sequence_s=s)


def _short(
    x: Float[np.ndarray, "point 4"], y: Float[np.ndarray, "point"], w: Float[np.ndarray, "point"]
) -> Float[np.ndarray, "point"]:
    """Return times by least squares of t/y - 1: too short, but a point that took ever so long moves them little."""
    columns = np.column_stack([np.ones(len(y)), x])
    root = np.sqrt(w)
    return np.asarray(columns @ nonnegative_least_squares(columns / y[:, None] * root[:, None], root))


def _means(
    columns: Float[np.ndarray, "point column"], y: Float[np.ndarray, "point"], w: Float[np.ndarray, "point"]
) -> tuple[Float[np.ndarray, "column"], float]:
    """Return the coefficients that solve the quasi-likelihood equations, and their deviance."""
    scale, found = y, np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        root = np.sqrt(w) / scale
        before, found = found, nonnegative_least_squares(columns * root[:, None], y * root)
        scale = np.maximum(columns @ found, _LEAST * y)
        if np.allclose(found, before, rtol=_SETTLED, atol=0.0):
            break
    ratio = y / scale
    return found, float(2.0 * (w * (ratio - 1.0 - np.log(ratio))).sum())
