"""Folds that hold out whole batches: rows that measured the same batch are never on both sides."""

from __future__ import annotations

__all__ = ["folds_of"]

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int


def folds_of(group: Int[np.ndarray, "row"], folds: int, seed: int) -> Iterator[Bool[np.ndarray, "row"]]:
    """Yield the mask of held-out rows of each fold; every row is held out exactly once."""
    distinct = np.unique(group)
    count = min(folds, distinct.size)
    order = np.random.default_rng(seed).permutation(distinct.size)
    fold_of_group = np.empty(distinct.size, dtype=np.int64)
    fold_of_group[order] = np.arange(distinct.size) % count
    fold = fold_of_group[np.searchsorted(distinct, group)]
    for k in range(count):
        yield fold == k
