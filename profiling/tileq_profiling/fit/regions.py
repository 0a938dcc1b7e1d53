"""How the model extrapolates: fitted without a region, tested on it."""

from __future__ import annotations

__all__ = ["leave_region_out"]

from collections.abc import Sequence

import numpy as np

from tileq_profiling.calibration.records import RegionError
from tileq_profiling.fit.prune import pruned
from tileq_profiling.fit.rows import Rows, predict
from tileq_profiling.fit.screen import splits_of


def leave_region_out(rows: Rows, tile: int | None, active: Sequence[int], knee: float) -> tuple[RegionError, ...]:
    """Return the errors on the upper and lower half of the batch sizes, and on the longer contexts, each left out."""
    tokens, out = rows.tokens, []
    middle = float(np.median(np.unique(tokens)))
    regions = {
        f"batches above {middle:g} tokens": tokens > middle,
        f"batches up to {middle:g} tokens": tokens <= middle,
    }
    for name, column in (("KV tokens", rows.kv_tokens), ("query-key pairs", rows.pairs)):
        present = column[column > 0]
        if np.unique(present).size >= 4:
            regions[f"more than {np.median(present):g} {name}"] = column > np.median(present)
    for name, left_out in regions.items():
        kept = ~left_out
        if np.unique(rows.tokens[kept]).size < 3 or not left_out.any():
            continue
        train, test = rows.take(kept), rows.take(left_out)
        cell, _ = pruned(train, tile, splits_of(train, 12), active, knee)
        relative = predict(test, tile, cell.theta) / test.seconds - 1
        out.append(RegionError(name, len(test), float(np.median(np.abs(relative))), float(np.median(relative))))
    return tuple(out)
