r"""Is there a tile, and which: decided by the error on batches that the fit did not see.

Whether: every fold chooses its best tile on the other folds, and the held-out losses of that choice are compared with
those of the affine model, batch by batch. The tile choice is made anew in each fold, so looking at many tiles gives
no advantage on held-out batches; the one-sided test of the mean difference then has its nominal false-alarm rate or
less. Which: the tile of least held-out loss with coefficients refitted in each fold; its confidence is the share of
bootstrap resamples of the batches in which it, or a tile that these batches cannot tell from it, has the least
held-out loss.
"""

from __future__ import annotations

__all__ = ["choose_tile", "knee_of"]

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from tileq_profiling.calibration.records import TileVerdict
from tileq_profiling.fit.folds import folds_of
from tileq_profiling.fit.huber import huber, huber_weights, spread
from tileq_profiling.fit.rows import BETA, A, Rows, predict
from tileq_profiling.fit.screen import Cell, fitted, screen, splits_of
from tileq_profiling.fit.tiles import neighbours, roundest

FALSE_ALARM = 0.025  # of "a tile is visible" on data without one
_SHORTLIST = 5
_FOLDS = 5
_AFFINE, _CHOSEN = 0, -1  # in the place of a tile: no tile, and the tile that each fold chose
_FEWEST_BATCHES = 10  # distinct batch sizes; with fewer a held-out fold is an extrapolation
_RESAMPLES = 400
_NEAR = 0.1
_SMALLEST_STEP = 0.15  # share of a tile's time in its step: a smaller ripple is nothing to schedule by


def choose_tile(rows: Rows, tiles: Sequence[int], active: Sequence[int], knee: float, seed: int = 0) -> TileVerdict:
    """Return the verdict for candidate `tiles`; coefficients `active` are fitted, `knee` is Huber's M."""
    sizes = np.unique(rows.tokens).size
    if BETA not in active or not tiles:
        reason = "the batches have one size, or none beyond one tile, so no staircase can show"
        return TileVerdict("undecided", None, 0.0, reason=reason)
    if sizes < _FEWEST_BATCHES:
        reason = (
            f"{sizes} distinct batch sizes were measured; {_FEWEST_BATCHES} or more are needed to hold some out, so "
            "the model is affine and no tile is claimed"
        )
        return TileVerdict("undecided", None, 0.0, reason=reason)
    ranked = _ranked(rows, tiles, active, knee)
    shortlist = _shortlist(rows, ranked, active, knee)
    held = _held_out(rows, tiles, shortlist, active, knee, seed)
    verdict = _verdict(rows, shortlist, held, seed)
    if verdict.answer != "tile":
        return verdict
    share = _step_share(fitted(rows, verdict.tile_tokens, splits_of(rows), active, knee))
    if share >= _SMALLEST_STEP:
        return verdict
    reason = (
        f"no tile visible: steps of {verdict.tile_tokens} tokens lower the held-out loss, but are only "
        f"{100 * share:.0f} % of what a tile's tokens cost"
    )
    rivals = ((verdict.tile_tokens or 0, verdict.tile_confidence), *verdict.rivals)
    return TileVerdict("none", None, verdict.confidence, 0.0, verdict.improvement, rivals, reason)


def _step_share(cell: Cell) -> float:
    """Return a/(a + beta b): how much of a tile's time comes at once."""
    step, slope = float(cell.theta[A]), float(cell.theta[BETA]) * (cell.tile_tokens or 0)
    return step / (step + slope) if step + slope > 0 else 0.0


def _ranked(rows: Rows, tiles: Sequence[int], active: Sequence[int], knee: float) -> list[Cell]:
    """Return the tiles' best cells, best first: least squares, then again with the best one's robust weights."""
    splits = splits_of(rows)
    cells = screen(rows, tiles, splits, active)
    best = min(cells, key=lambda cell: cell.loss)
    residual = (predict(rows, best.tile_tokens, best.theta) - rows.seconds) / rows.scale
    cells = screen(rows, tiles, splits, active, huber_weights(residual, knee))
    return sorted(cells, key=lambda cell: cell.loss)


def _shortlist(rows: Rows, ranked: Sequence[Cell], active: Sequence[int], knee: float) -> list[int]:
    """Return the few best tiles, the whole numbers around the best among them."""
    coarse = [cell.tile_tokens for cell in ranked[:_SHORTLIST] if cell.tile_tokens is not None]
    near = neighbours(rows, coarse[0])
    if len(near) > 1:
        fine = _ranked(rows, near, active, knee)
        coarse += [c.tile_tokens for c in fine[:3] if c.tile_tokens is not None]
    return list(dict.fromkeys(coarse))


def _held_out(
    rows: Rows, tiles: Sequence[int], shortlist: Sequence[int], active: Sequence[int], knee: float, seed: int
) -> dict[int, Float[np.ndarray, "row"]]:
    """Return each row's loss when held out: by the affine model, by the fold's own tile, and by each listed tile."""
    out = {name: np.empty(len(rows)) for name in (_AFFINE, _CHOSEN, *shortlist)}
    for test in folds_of(rows.group, _FOLDS, seed):
        train, kept = rows.take(~test), rows.take(test)
        splits = splits_of(train)
        ranked = _ranked(train, [b for b in tiles if b < train.tokens.max()] or tiles, active, knee)
        chosen = fitted(train, ranked[0].tile_tokens, splits, active, knee)
        out[_CHOSEN][test] = _losses(kept, chosen, knee)
        for name in (_AFFINE, *shortlist):
            tile = None if name == _AFFINE else name
            out[name][test] = _losses(kept, fitted(train, tile, splits, active, knee), knee)
    return out


def _losses(rows: Rows, cell: Cell, knee: float) -> Float[np.ndarray, "row"]:
    residual = (predict(rows, cell.tile_tokens, cell.theta) - rows.seconds) / rows.scale
    losses: np.ndarray = rows.weight * huber(residual, knee)
    return losses


def _by_group(rows: Rows, losses: Float[np.ndarray, "row"]) -> Float[np.ndarray, "batch"]:
    _, index = np.unique(rows.group, return_inverse=True)
    return np.bincount(index, losses) / np.bincount(index)


def _verdict(rows: Rows, shortlist: Sequence[int], held: dict[int, Float[np.ndarray, "row"]], seed: int) -> TileVerdict:
    from scipy.stats import t as student

    by_batch = {name: _by_group(rows, losses) for name, losses in held.items()}
    gain = by_batch[_AFFINE] - by_batch[_CHOSEN]
    error = float(np.std(gain, ddof=1)) / np.sqrt(gain.size)
    score = float(np.mean(gain)) / error if error > 0 else 0.0
    p = float(student.sf(score, gain.size - 1))
    improvement = float(np.mean(gain) / max(np.mean(by_batch[_AFFINE]), 1e-300))
    tile, share, rivals = _which(shortlist, by_batch, seed)
    if p <= FALSE_ALARM:
        reason = f"a staircase of {tile} tokens lowers the held-out loss by {100 * improvement:.0f} %"
        return TileVerdict("tile", tile, 1 - p, share, improvement, rivals, reason)
    reason = "no tile visible: a staircase predicts held-out batches no better than a straight line"
    return TileVerdict("none", None, p, 0.0, improvement, ((tile, share), *rivals), reason)


def _which(
    shortlist: Sequence[int], by_batch: dict[int, Float[np.ndarray, "batch"]], seed: int
) -> tuple[int, float, tuple[tuple[int, float], ...]]:
    """Return the tile of least held-out loss (the roundest of its equals), how often resamples agree, the others."""
    losses = np.stack([by_batch[b] for b in shortlist])
    equal = _equals(shortlist, losses)
    tile = roundest(equal)
    rng = np.random.default_rng(seed + 1)
    draws = rng.multinomial(losses.shape[1], np.full(losses.shape[1], 1 / losses.shape[1]), size=_RESAMPLES)
    winners = np.argmin(draws @ losses.T, axis=1)
    names = [tile if b in equal else b for b in shortlist]
    shares: dict[int, float] = {}
    for i in winners:
        shares[names[i]] = shares.get(names[i], 0.0) + 1 / _RESAMPLES
    others = sorted(((b, s) for b, s in shares.items() if b != tile), key=lambda item: -item[1])
    return tile, shares.get(tile, 0.0), tuple(others)


def _equals(shortlist: Sequence[int], losses: Float[np.ndarray, "tile batch"]) -> list[int]:
    """Return the best tile and those within a tenth of it and within one standard error of it on held-out batches."""
    at = int(np.argmin(losses.mean(axis=1)))
    out = []
    for b, own in zip(shortlist, losses, strict=True):
        behind = own - losses[at]
        error = float(np.std(behind, ddof=1)) / np.sqrt(behind.size)
        if abs(b - shortlist[at]) <= _NEAR * shortlist[at] and float(np.mean(behind)) <= error + 1e-15:
            out.append(b)
    return out


def knee_of(rows: Rows, cell: Cell) -> float:
    """Return Huber's M: 1.345 robust standard deviations of the cell's residuals, at least 0.1 %."""
    residual = (predict(rows, cell.tile_tokens, cell.theta) - rows.seconds) / rows.scale
    return max(1.345 * spread(residual), 1e-3)
