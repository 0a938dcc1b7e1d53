"""From coefficients to the library's `IterationTime`, and held-out predictions."""

from __future__ import annotations

__all__ = ["held_out_predictions", "iteration_time"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.folds import folds_of
from tileq_profiling.fit.prune import pruned
from tileq_profiling.fit.rows import BETA, NAMES, A, Rows, W, predict
from tileq_profiling.fit.screen import splits_of
from tileq_theory.iteration_time import IterationTime


def iteration_time(theta: Float[np.ndarray, "7"], tile: int | None) -> IterationTime:
    """Return the model; a floor that no batch of at least one token meets is written as 0."""
    values: dict[str, Any] = {name: float(value) for name, value in zip(NAMES, theta, strict=True)}
    if tile is None:
        values["tile_s"] = 0.0
    first = (theta[A] if tile is not None else 0.0) + theta[BETA]
    if theta[W] <= first:
        values["weight_floor_s"] = 0.0
    return IterationTime(**values, tile_tokens=tile if tile is not None and values["tile_s"] > 0 else 1)


def held_out_predictions(
    rows: Rows, tile: int | None, active: Sequence[int], knee: float, folds: int, seed: int
) -> Float[np.ndarray, "row"]:
    """Return each row's time as predicted by the fit to the other folds (the tile is given, all else refitted)."""
    out = np.empty(len(rows))
    for test in folds_of(rows.group, folds, seed):
        train = rows.take(~test)
        cell, _ = pruned(train, tile, splits_of(train, 12), active, knee)
        out[test] = predict(rows.take(test), tile, cell.theta)
    return out
