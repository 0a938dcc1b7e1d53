"""What a fit returns."""

from __future__ import annotations

__all__ = ["Calibration"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from tileq_profiling.calibration.records import Fitted, RegimeError, RegionError, TileVerdict
from tileq_profiling.profile.conditions import Conditions
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_profiling.calibration.rate_band import RateBand
    from tileq_theory.capacity import Limits
    from tileq_theory.capacity.plan import HasDemand


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted iteration time with its evidence.

    Parameters
    ----------
    time
        The model, with provenance "fitted" and the error band of its held-out ratios.
    tile
        Whether a tile is visible and which.
    held_out
        Relative errors on batches the fit did not see, by phase and by longest part.
    regions
        Errors on whole regions left out of the fit: how it extrapolates.
    intervals
        Coefficient -> central 95 % interval of the bootstrap.
    draws
        The bootstrap's coefficient vectors, in the order of `IterationTime`'s times (c, w, a, beta, e, k, s).
    points, scope, conditions
        Values fitted, what they measured (whole iterations, layer operators, end-to-end latencies), and under which
        conditions.
    warnings
        What is missing or doubtful, one sentence each.
    """

    time: IterationTime
    tile: TileVerdict
    held_out: tuple[RegimeError, ...]
    regions: tuple[RegionError, ...]
    intervals: Mapping[str, tuple[float, float]]
    draws: Float[np.ndarray, "draw 7"]
    points: int
    scope: Fitted = "iteration"
    conditions: Conditions = field(default=Conditions())
    warnings: tuple[str, ...] = ()

    @property
    def median_error(self) -> float:
        """Median absolute relative error of all held-out rows."""
        return next(e.median_abs for e in self.held_out if e.regime == "all")

    def lambda_band(self, workload: HasDemand, limits: Limits) -> RateBand:
        """Return lambda* of the workload with the band that coefficient uncertainty and model error leave."""
        from tileq_profiling.calibration.rate_band import lambda_band

        return lambda_band(self, workload, limits)

    def save(self, path: str | Path) -> None:
        """Write the calibration as JSON."""
        from tileq_profiling.calibration.file import save_calibration

        save_calibration(self, path)

    def to_dict(self) -> dict[str, object]:
        """Return everything but the bootstrap's draws as plain data."""
        return {
            "iteration_time": self.time.to_dict(),
            "tile": self.tile.to_dict(),
            "held_out": [e.to_dict() for e in self.held_out],
            "regions": [e.to_dict() for e in self.regions],
            "intervals": {name: list(pair) for name, pair in self.intervals.items()},
            "points": self.points,
            "scope": self.scope,
            "conditions": self.conditions.to_dict(),
            "warnings": list(self.warnings),
        }
