"""Coefficient intervals: the fit repeated on resampled batches."""

from __future__ import annotations

__all__ = ["bootstrap_draws", "intervals_of"]

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.huber import huber, minimise_draws
from tileq_profiling.fit.rows import NAMES, Rows, design, predict
from tileq_profiling.fit.screen import used_in


def bootstrap_draws(
    rows: Rows,
    tile: int | None,
    splits: Sequence[float],
    active: Sequence[int],
    knee: float,
    count: int,
    seed: int,
) -> Float[np.ndarray, "draw 7"]:
    """Return `count` coefficient vectors, each fitted to batches drawn with replacement (tile and split choices:
    given ones).

    Whole batches are drawn, so repeated measurements of one batch stay together (the cluster bootstrap).
    """
    if count == 0:
        return np.zeros((0, len(NAMES)))
    rng = np.random.default_rng(seed)
    batches, index = np.unique(rows.group, return_inverse=True)
    drawn = rng.multinomial(batches.size, np.full(batches.size, 1 / batches.size), size=count)
    weights = drawn[:, index.reshape(-1)] * rows.weight
    target = rows.seconds / rows.scale
    used = used_in(active, tile, 1.0)
    draws, best = np.zeros((count, len(NAMES))), np.full(count, np.inf)
    for split in splits:
        theta = np.zeros((count, len(NAMES)))
        theta[:, used], _ = minimise_draws(design(rows, tile, split, used), target, knee, weights)
        residual = np.stack([predict(rows, tile, one) - rows.seconds for one in theta]) / rows.scale
        loss = np.sum(weights * huber(residual, knee), axis=1)
        better = loss < best * (1 - 1e-9)
        draws[better], best[better] = theta[better], loss[better]
    return draws


def intervals_of(draws: Float[np.ndarray, "draw 7"], level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return the central interval of each coefficient over the draws."""
    if draws.shape[0] == 0:
        return {}
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(NAMES, low, high, strict=True)}
