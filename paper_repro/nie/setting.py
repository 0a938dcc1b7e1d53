"""What the items on Nie et al. share: Llama-3-8B on an A100, its request lengths and representative batch times."""

from __future__ import annotations

__all__ = ["CHUNK", "KV_TOKENS", "PAPER", "ROWS", "config", "draw", "policy_of"]

from typing import Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.requests import Requests

PAPER = "Nie et al., arXiv 2605.04595"
KV_TOKENS, CHUNK = 131_000, 512
# prompt:decode -> prompt and output uniforms (whole numbers, both ends), batch time s, printed theory and measured rate
ROWS: dict[str, dict[str, Any]] = {
    "1:1": {"prompt": (10, 1600), "output": (10, 1600), "batch_s": "0.0372", "theory": "3.263", "gpu": "3.387"},
    "2:1": {"prompt": (10, 2133), "output": (10, 1066), "batch_s": "0.0430", "theory": "3.956", "gpu": "3.650"},
    "1:2": {"prompt": (10, 1066), "output": (10, 2133), "batch_s": "0.0337", "theory": "2.902", "gpu": "2.969"},
}


def draw(row: str, count: int, rng: np.random.Generator, rate_per_s: float | None = None) -> Requests:
    """Return requests of a row: Poisson arrivals at a rate, or (None) all there at once."""
    prompt, output = ROWS[row]["prompt"], ROWS[row]["output"]
    gaps = np.zeros(count) if rate_per_s is None else rng.exponential(1 / rate_per_s, count)
    return Requests.from_arrays(
        prompt_tokens=rng.integers(prompt[0], prompt[1] + 1, count),
        output_tokens=rng.integers(output[0], output[1] + 1, count),
        arrival_s=np.cumsum(gaps),
    )


def config(**changes: Any) -> EngineConfig:
    """Return the model's settings: memory in single tokens, as many slots as tokens, O decode steps."""
    base = EngineConfig(token_budget=CHUNK, max_num_seqs=CHUNK, kv_tokens=KV_TOKENS, block_tokens=1, convention="paper")
    return base.with_(**changes)


def policy_of(name: str) -> Any:
    """Return a policy by name."""
    from tileq_engine.registry import policy

    return policy(name)
