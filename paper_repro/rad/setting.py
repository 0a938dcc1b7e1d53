"""What the items on RAD share: the reference instance of eq. (7), its requests and its capacity."""

from __future__ import annotations

__all__ = ["MODEL", "PAPER", "TILE", "TIME", "capacity_per_s", "draw", "mean_output"]

from typing import Any

import numpy as np

from tileq_engine.requests import Requests
from tileq_theory.iteration_time import IterationTime

PAPER = "Bari et al., arXiv 2508.01002"
TILE = 128
TIME = IterationTime.rad(t_lin_s=0.004, t_nl_s=0.000005, tile_tokens=TILE)
MODEL: dict[str, Any] = {"t_lin_s": "0.004", "t_nl_s": "0.000005", "b_col_tokens": TILE, "b_lcm_tokens": TILE}
MEAN_PROMPT = 576.0


def mean_output() -> float:
    """Return E[min(floor(Exp(200)) + 1, 512)]."""
    from tileq_theory.closed_forms import closed_form

    return float(closed_form("capped_exponential_mean").evaluate(mean_tokens=200, cap_tokens=512))


def capacity_per_s() -> float:
    """Return lambda* of the reference instance."""
    from tileq_theory.closed_forms import closed_form

    demand = {"prefill_tokens": MEAN_PROMPT, "decode_tokens": mean_output()}
    return float(closed_form("rad_capacity").evaluate(nodes=1, **demand, **MODEL))


def draw(rate_per_s: float, count: int, rng: np.random.Generator) -> Requests:
    """Return Poisson arrivals, prompts 128 U{1..8}, outputs min(floor(Exp(200)) + 1, 512)."""
    return Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(1 / rate_per_s, count)),
        prompt_tokens=TILE * rng.integers(1, 9, count),
        output_tokens=np.minimum(np.floor(rng.exponential(200.0, count)) + 1, 512),
    )
