r"""The least squares of every tile and every split at once.

For fixed tile and split the model is linear in its coefficients, and rows sorted by tokens make the normal equations
of all splits running sums: those of the floor up to the split plus those of the rest. So a scan over all cells costs one
pass over the rows for each tile and one 7 x 7 solve for each cell.
"""

from __future__ import annotations

__all__ = ["Cell", "affine_or_tile", "screen", "splits_of"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.huber import minimise, nonnegative_solution
from tileq_profiling.fit.rows import A, BETA, NAMES, W, Rows, design, predict

_FLOOR_ONLY, _LINEAR_ONLY = (W,), (A, BETA)


@dataclass(frozen=True, slots=True)
class Cell:
    """One tile and one split, with its coefficients and loss.

    Parameters
    ----------
    tile_tokens
        b; None for no tile.
    split_tokens
        Rows up to here lie on the floor; 0: no floor.
    theta
        Coefficients in the order of `NAMES`.
    loss
        Loss of the model with its max, per row.
    """

    tile_tokens: int | None
    split_tokens: float
    theta: Float[np.ndarray, "7"]
    loss: float


def splits_of(rows: Rows, most: int = 24) -> list[float]:
    """Return splits worth trying: none, and distinct token counts (at most `most`, evenly among the distinct)."""
    distinct = np.unique(rows.tokens)[:-1]  # a floor under every row leaves nothing to see beyond it
    if distinct.size > most:
        distinct = distinct[np.unique(np.linspace(0, distinct.size - 1, most).round().astype(int))]
    return [0.0, *distinct.tolist()]


def affine_or_tile(active: Sequence[int], tile_tokens: int | None, split_tokens: float) -> list[int]:
    """Return the coefficients that a cell has: no a without a tile, no w without a floor."""
    out = [j for j in active if not (j == A and tile_tokens is None)]
    return [j for j in out if not (j == W and split_tokens <= 0)]


def screen(
    rows: Rows,
    tiles: Sequence[int | None],
    splits: Sequence[float],
    active: Sequence[int],
    weights: Float[np.ndarray, "row"],
) -> list[Cell]:
    """Return the best cell of each tile under weighted least squares, in the order of `tiles`."""
    return [_best_split(rows, tile, splits, active, weights) for tile in tiles]


def _best_split(
    rows: Rows, tile: int | None, splits: Sequence[float], active: Sequence[int], weights: np.ndarray
) -> Cell:
    """Return the cell of least weighted squares for one tile."""
    # columns of a row as if it lay on the floor and beyond it at once; masks choose below
    both = design(rows, tile, 0.0, range(len(NAMES)))
    both[:, W] = 1.0 / rows.scale
    target = rows.seconds / rows.scale
    full = np.column_stack([both, target])
    outer = np.einsum("ri,rj->rij", full * weights[:, None], full)
    index = np.searchsorted(rows.tokens, splits, side="right")
    sums = np.concatenate([np.zeros((1, 8, 8)), np.cumsum(outer, axis=0)])
    below, total = sums[index], sums[-1]
    best: Cell | None = None
    for split, floor in zip(splits, below, strict=True):
        used = affine_or_tile(active, tile, split)
        gram = _masked(floor, _LINEAR_ONLY) + _masked(total - floor, _FLOOR_ONLY)
        theta = np.zeros(len(NAMES))
        theta[used] = nonnegative_solution(gram[np.ix_(used, used)], gram[used, -1])
        # the loss of the model as it is evaluated, max included, not of the cell's own assignment
        residual = (predict(rows, tile, theta) - rows.seconds) / rows.scale
        loss = float(np.mean(weights * residual**2) / 2)
        if best is None or loss < best.loss * (1 - 1e-9):
            best = Cell(tile, split, theta, loss)
    if best is None:
        raise ValueError("no split given")
    return best


def _masked(gram: np.ndarray, without: Sequence[int]) -> np.ndarray:
    out = gram.copy()
    out[list(without), :] = 0.0
    out[:, list(without)] = 0.0
    return out


def polish(rows: Rows, tile: int | None, splits: Sequence[float], active: Sequence[int], knee: float) -> Cell:
    """Return the cell of least Huber loss among the splits of one tile."""
    from tileq_profiling.fit.huber import huber

    target = rows.seconds / rows.scale
    best: Cell | None = None
    for split in splits:
        used = affine_or_tile(active, tile, split)
        theta = np.zeros(len(NAMES))
        theta[used], _ = minimise(design(rows, tile, split, used), target, knee)
        residual = (predict(rows, tile, theta) - rows.seconds) / rows.scale
        loss = float(np.mean(huber(residual, knee)))
        if best is None or loss < best.loss * (1 - 1e-9):
            best = Cell(tile, split, theta, loss)
    if best is None:
        raise ValueError("no split given")
    return best
