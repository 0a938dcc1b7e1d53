"""Coefficient intervals: the fit repeated on resampled batches."""

from __future__ import annotations

__all__ = ["bootstrap_draws", "intervals_of"]

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.huber import minimise
from tileq_profiling.fit.rows import NAMES, Rows, design, predict
from tileq_profiling.fit.screen import affine_or_tile
from tileq_profiling.fit.huber import huber


def bootstrap_draws(
    rows: Rows,
    tile: int | None,
    splits: Sequence[float],
    active: Sequence[int],
    knee: float,
    count: int,
    seed: int,
) -> Float[np.ndarray, "draw 7"]:
    """Return `count` coefficient vectors, each fitted to batches drawn with replacement (tile and split choices: given ones).

    Whole batches are drawn, so repeated measurements of one batch stay together (the cluster bootstrap).
    """
    rng = np.random.default_rng(seed)
    batches, index = np.unique(rows.group, return_inverse=True)
    target = rows.seconds / rows.scale
    columns = {split: design(rows, tile, split, affine_or_tile(active, tile, split)) for split in splits}
    draws = np.zeros((count, len(NAMES)))
    for d in range(count):
        weight = rng.multinomial(batches.size, np.full(batches.size, 1 / batches.size))[index].astype(float)
        best = np.inf
        for split in splits:
            used = affine_or_tile(active, tile, split)
            theta = np.zeros(len(NAMES))
            theta[used], _ = minimise(columns[split], target, knee, weight)
            residual = (predict(rows, tile, theta) - rows.seconds) / rows.scale
            loss = float(weight @ huber(residual, knee))
            if loss < best:
                best, draws[d] = loss, theta
    return draws


def intervals_of(draws: Float[np.ndarray, "draw 7"], level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return the central interval of each coefficient over the draws."""
    if draws.shape[0] == 0:
        return {}
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {name: (float(a), float(b)) for name, a, b in zip(NAMES, low, high, strict=True)}
