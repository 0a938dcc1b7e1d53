r"""Every split of a tile at once: by least squares to rank tiles, by Huber's loss to settle on one.

For fixed tile and split the model is linear in its coefficients, and rows sorted by tokens make the normal equations
of all splits running sums: those of the floor up to the split plus those of the rest. Only the products with
ceil(n/b) change with the tile. So ranking all tiles costs a pass over the rows for each and one stack of 7 x 7
problems.
"""

from __future__ import annotations

__all__ = ["Cell", "fitted", "polish", "screen", "splits_of", "used_in"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.huber import huber, huber_weights, minimise
from tileq_profiling.fit.nonnegative import nonnegative_solutions
from tileq_profiling.fit.rows import BETA, NAMES, A, Rows, W, design, predict

_ROUND_OFF = 1e-9  # relative: losses this close are the same, and the first (fewest on the floor) is kept


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
        Mean loss of the model with its max.
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


def used_in(active: Sequence[int], tile_tokens: int | None, split_tokens: float) -> list[int]:
    """Return the coefficients that a cell has: no a without a tile, no w without a floor."""
    out = [j for j in active if not (j == A and tile_tokens is None)]
    return [j for j in out if not (j == W and split_tokens <= 0)]


def screen(
    rows: Rows,
    tiles: Sequence[int | None],
    splits: Sequence[float],
    active: Sequence[int],
    weights: Float[np.ndarray, "row"] | None = None,
) -> list[Cell]:
    """Return the best cell of each tile under least squares with further `weights`, in the order of `tiles`."""
    own = rows.weight if weights is None else rows.weight * weights
    # a row's columns as if it lay on the floor and beyond it at once; masks choose which of them count
    full = np.column_stack([design(rows, None, 0.0, range(len(NAMES))), rows.seconds / rows.scale])
    full[:, W] = 1.0 / rows.scale
    index = np.searchsorted(rows.tokens, splits, side="right")
    weighted = full * own[:, None]
    base = _sums(weighted[:, :, None] * full[:, None, :], index)
    sums = np.stack([_with_tile(base, rows, tile, weighted, own, index) for tile in tiles])
    gram = np.stack([_masked(one, tile, active) for one, tile in zip(sums, tiles, strict=True)])
    p = len(NAMES)
    stack = gram.reshape(-1, p + 1, p + 1)
    theta = nonnegative_solutions(stack[:, :p, :p], stack[:, :p, p]).reshape(*gram.shape[:2], p)
    bound = gram[..., p, p] - 2 * np.sum(theta * gram[..., :p, p], axis=-1)
    bound += np.sum(theta * (gram[..., :p, :p] @ theta[..., None])[..., 0], axis=-1)
    return [_best(rows, tile, splits, own, theta[i], bound[i]) for i, tile in enumerate(tiles)]


def _sums(per_row: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the sums over the rows before each index, and over all rows last."""
    running = np.concatenate([np.zeros((1, *per_row.shape[1:])), np.cumsum(per_row, axis=0)])
    sums: np.ndarray = running[np.append(index, per_row.shape[0])]
    return sums


def _with_tile(
    base: np.ndarray, rows: Rows, tile: int | None, weighted: np.ndarray, own: np.ndarray, index: np.ndarray
) -> np.ndarray:
    """Return the sums with the products of ceil(n/b) put in."""
    if tile is None:
        return base
    tiles = np.ceil(rows.tokens / tile) / rows.scale
    cross = _sums(weighted * tiles[:, None], index)
    cross[:, A] = _sums(own * tiles**2, index)
    out = base.copy()
    out[:, A, :] = cross
    out[:, :, A] = cross
    return out


def _masked(sums: np.ndarray, tile: int | None, active: Sequence[int]) -> np.ndarray:
    """Return each split's normal equations: floor columns up to it, line columns beyond it, only the active ones."""
    below, beyond = sums[:-1].copy(), sums[-1] - sums[:-1]
    below[:, [A, BETA], :] = 0.0
    below[:, :, [A, BETA]] = 0.0
    beyond[:, W, :] = 0.0
    beyond[:, :, W] = 0.0
    gram: np.ndarray = below + beyond
    unused = [j for j in range(len(NAMES)) if j not in used_in(active, tile, 1.0)]
    gram[:, unused, :] = 0.0
    gram[:, :, unused] = 0.0
    return gram


def _best(
    rows: Rows,
    tile: int | None,
    splits: Sequence[float],
    weights: np.ndarray,
    theta: Float[np.ndarray, "split 7"],
    bound: Float[np.ndarray, "split"],
) -> Cell:
    """Return the best split by the loss of the model as it is evaluated, max included, which its own program bounds."""
    best: Cell | None = None
    for s in np.argsort(bound, kind="stable")[:3]:
        residual = (predict(rows, tile, theta[s]) - rows.seconds) / rows.scale
        loss = float(weights @ residual**2) / (2 * len(rows))
        if best is None or loss < best.loss * (1 - _ROUND_OFF):
            best = Cell(tile, splits[int(s)], theta[s], loss)
    if best is None:
        raise ValueError("no split given")
    return best


def polish(rows: Rows, tile: int | None, splits: Sequence[float], active: Sequence[int], knee: float) -> Cell:
    """Return the cell of least Huber loss among the splits of one tile."""
    target = rows.seconds / rows.scale
    used = used_in(active, tile, 1.0)
    columns = np.stack([design(rows, tile, split, used) for split in splits])
    thetas = np.zeros((len(splits), len(NAMES)))
    thetas[:, used], _bounds = minimise(columns, target, knee, rows.weight)
    best: Cell | None = None
    for theta, split in zip(thetas, splits, strict=True):
        loss = float(np.mean(rows.weight * huber((predict(rows, tile, theta) - rows.seconds) / rows.scale, knee)))
        if best is None or loss < best.loss * (1 - _ROUND_OFF):
            best = Cell(tile, split, theta, loss)
    if best is None:
        raise ValueError("no split given")
    return best


def fitted(rows: Rows, tile: int | None, splits: Sequence[float], active: Sequence[int], knee: float) -> Cell:
    """Return `polish` over the splits near the best ones of (robustly weighted) least squares: much faster, as good."""
    first = screen(rows, [tile], splits, active)[0]
    residual = (predict(rows, tile, first.theta) - rows.seconds) / rows.scale
    second = screen(rows, [tile], splits, active, huber_weights(residual, knee))[0]
    near = {0.0}
    for cell in (first, second):
        at = list(splits).index(cell.split_tokens)
        near.update(splits[max(0, at - 1) : at + 2])
    return polish(rows, tile, sorted(near & set(splits)), active, knee)
