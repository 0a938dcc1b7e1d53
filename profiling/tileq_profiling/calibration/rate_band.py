r"""lambda* with its band: coefficient uncertainty and model error pushed through the capacity program.

The program gives lambda* at the fitted coefficients. Each bootstrap draw theta_d gives lambda(theta_d), the best
single-level rate (a closed form, exact where one level is optimal and a lower bound elsewhere); the ratio to the same
figure at the fitted coefficients moves lambda*. Model error, which the bootstrap does not see, scales every time by
at most the error band's [low, high], and lambda* scales as its inverse (`theory.md` section 3); since it averages
over many iterations the error band is wider than it needs to be, never narrower.
"""

from __future__ import annotations

__all__ = ["RateBand", "best_single_rate", "draw_times", "lambda_band"]

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from tileq_theory.capacity import Limits, capacity, single_level_rate
from tileq_theory.capacity.levels import corner_levels
from tileq_theory.capacity.plan import HasDemand
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_profiling.calibration.calibration import Calibration

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class RateBand:
    """lambda* and its bands, requests per second.

    Parameters
    ----------
    rate_per_s
        lambda* at the fitted coefficients.
    low_per_s, high_per_s
        Central 95 % of lambda* over the bootstrap's draws.
    outer_low_per_s, outer_high_per_s
        The same, widened by the model's error band.
    binding
        Which row of the program binds.
    """

    rate_per_s: float
    low_per_s: float
    high_per_s: float
    outer_low_per_s: float
    outer_high_per_s: float
    binding: str

    def to_dict(self) -> dict[str, object]:
        """Return the bands as plain data."""
        return asdict(self)


def lambda_band(calibration: Calibration, workload: HasDemand, limits: Limits) -> RateBand:
    """Return lambda* of a workload under the calibration, with its bands."""
    # the program takes the least demand of any chunking, as `tile_plan` does
    demand = workload.demand(chunk_tokens=limits.max_batch_tokens, counting="least")
    answer = capacity(calibration.time, demand, limits)
    centre = best_single_rate(calibration.time, demand, limits)
    rates = [best_single_rate(t, demand, limits) / centre for t in draw_times(calibration)] if centre > 0 else []
    low, high = np.quantile(rates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if rates else (1.0, 1.0)
    rate = float(answer.rate_per_s)
    band = calibration.time.error_band
    return RateBand(
        rate,
        rate * float(low),
        rate * float(high),
        rate * float(low) / band.high,
        rate * float(high) / band.low,
        answer.binding,
    )


def draw_times(calibration: Calibration) -> Iterator[IterationTime]:
    """Yield the iteration time of each bootstrap draw."""
    from tileq_profiling.fit.model import iteration_time

    tile = calibration.time.tile_tokens if calibration.time.tile_s > 0 else None
    for theta in calibration.draws:
        yield iteration_time(theta, tile)


def best_single_rate(time: IterationTime, demand: Demand, limits: Limits) -> float:
    """Return the largest lambda(n) over the batch sizes worth using, requests per second."""
    levels = corner_levels(time, limits)
    return float(single_level_rate(time, demand, limits, levels).max())
