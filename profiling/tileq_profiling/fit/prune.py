r"""Coefficients that the measurements do not ask for are left out.

Under noise a nonnegative fit gives a floor, an element-wise time or a sequence time to data that have none, and takes
it from the coefficients beside them. One is dropped when the loss it saves is less than Schwarz's criterion charges,
2 (loss without - loss with) / sigma^2 < log(batches), sigma the robust spread of the residuals. Attention and KV
times are never dropped: a small one decides how long contexts extrapolate.
"""

from __future__ import annotations

__all__ = ["pruned"]

from collections.abc import Sequence

import numpy as np

from tileq_profiling.fit.huber import spread
from tileq_profiling.fit.rows import BETA, A, Rows, S, W, predict
from tileq_profiling.fit.screen import Cell, fitted


def pruned(
    rows: Rows, tile: int | None, splits: Sequence[float], active: Sequence[int], knee: float
) -> tuple[Cell, list[int]]:
    """Return the best cell after dropping what the data do not ask for, and the coefficients that stay."""
    kept = list(active)
    best = fitted(rows, tile, splits, kept, knee)
    while True:
        removable = [j for j in (W, BETA, S) if j in kept and _may_go(j, tile, kept)]
        trials = []
        for j in removable:
            rest = [i for i in kept if i != j]
            trials.append((fitted(rows, tile, [0.0] if j == W else splits, rest, knee), rest))
        if not trials:
            return best, kept
        cell, rest = min(trials, key=lambda trial: trial[0].loss)
        if not _idle(rows, best, cell):
            return best, kept
        best, kept = cell, rest


def _may_go(j: int, tile: int | None, kept: Sequence[int]) -> bool:
    # something must grow with the tokens
    return j != BETA or (tile is not None and A in kept)


def _idle(rows: Rows, with_it: Cell, without: Cell) -> bool:
    residual = (predict(rows, with_it.tile_tokens, with_it.theta) - rows.seconds) / rows.scale
    variance = max(spread(residual), 1e-9) ** 2
    saved = 2 * len(rows) * (without.loss - with_it.loss) / variance
    return saved < float(np.log(np.unique(rows.group).size))
