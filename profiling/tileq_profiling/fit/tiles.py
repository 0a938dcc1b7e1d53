"""Candidate tiles: those that GeMM kernels and their waves have, as far as the measured batches can tell them apart."""

from __future__ import annotations

__all__ = ["candidate_tiles", "neighbours", "roundest"]

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.rows import Rows
from tileq_theory.errors import InputError, positive_int

_LARGEST = 4096


def candidate_tiles(rows: Rows, given: Iterable[int] | None = None) -> list[int]:
    """Return the tiles to try: the caller's, or multiples of 8 up to 256, of 16 to 512, of 32 to 1024, of 64 beyond.

    A tile must show: some row needs one tile and another needs two, so none is as large as the largest batch. Of tiles
    that give every measured batch the same number of tiles only the roundest is kept.
    """
    if given is not None:
        tiles = sorted({positive_int("tile", b) for b in given})
        if not tiles:
            raise InputError("an empty list of candidate tiles was given; leave it out, or give at least one")
    else:
        tiles = [
            *range(8, 256, 8),
            *range(256, 512, 16),
            *range(512, 1024, 32),
            *range(1024, _LARGEST + 1, 64),
        ]
    largest = float(rows.tokens.max())
    return _distinct(rows.tokens, [b for b in tiles if b < largest])


def _distinct(tokens: Float[np.ndarray, "row"], tiles: Iterable[int]) -> list[int]:
    kept: dict[bytes, int] = {}
    distinct = np.unique(tokens)
    for b in tiles:
        steps = np.ceil(distinct / b)
        key = steps.tobytes()
        kept[key] = b if key not in kept else roundest([kept[key], b])
    return sorted(kept.values())


def roundest(tiles: Iterable[int]) -> int:
    """Return the tile that the largest power of two divides; the smallest of those.

    Examples
    --------
    >>> roundest([120, 128, 136])
    128
    """
    return min(tiles, key=lambda b: (-(b & -b), b))


def neighbours(rows: Rows, tile: int) -> list[int]:
    """Return the whole numbers around a candidate up to its neighbours in the grid, told apart by the rows."""
    step = 8 if tile < 256 else 16 if tile < 512 else 32 if tile < 1024 else 64
    near = range(max(1, tile - step + 1), tile + step)
    return _distinct(rows.tokens, [b for b in near if b < rows.tokens.max()] or [tile])
