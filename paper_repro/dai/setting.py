"""What the items on Dai et al. share: their GPU and model, their requests, their policies' settings."""

from __future__ import annotations

__all__ = ["BATCH", "BOUNDARY_TOKENS_PER_S", "DAI", "PAPER", "POLICIES", "TIME", "settings_of", "uniform_arrivals"]

from typing import Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests
from tileq_theory.iteration_time import IterationTime

PAPER = "Dai et al., arXiv 2504.07347"
# CodeLlama-34B on an A100-80GB, eq. (4); fractions of a second as text where they must be exact
DAI: dict[str, Any] = {"launch_s": "0.01128", "tile_s": "0.03547", "tile_tokens": 128}
TIME = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
BATCH = 512
BOUNDARY_TOKENS_PER_S = BATCH / float(TIME(BATCH))
_UNBOUNDED = 100_000

# label -> policy and its settings; Orca in the chunks of the source's model
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "Sarathi-Serve": ("sarathi", {}),
    "Orca": ("orca", {"chunks": True}),
    "vLLM v1": ("vllm_v1", {}),
    "vLLM v0": ("vllm_v0", {}),
    "FasterTransformer": ("static", {}),
}


def uniform_arrivals(
    rate_per_s: float, horizon_s: float, lengths: tuple[int, int], rng: np.random.Generator
) -> Requests:
    """Return Poisson arrivals over a horizon, all of the same prompt and output lengths."""
    count = int(rng.poisson(rate_per_s * horizon_s))
    arrival_s = np.sort(rng.uniform(0.0, horizon_s, count))
    return Requests.from_arrays(
        prompt_tokens=np.full(count, lengths[0]), output_tokens=np.full(count, lengths[1]), arrival_s=arrival_s
    )


def settings_of(horizon_s: float, **changes: Any) -> EngineConfig:
    """Return the engine's settings: the source's convention of tokens, its batch, no bound on memory or slots."""
    config = EngineConfig(token_budget=BATCH, max_num_seqs=_UNBOUNDED, convention="paper", stop_time_s=horizon_s)
    return config.with_(**changes)
