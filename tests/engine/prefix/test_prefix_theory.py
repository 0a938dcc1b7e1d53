"""Theory's law of conversations, Che's time in it, against the generator, a cache alone and the engine."""

from __future__ import annotations

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.conversations import Conversations
from tileq_engine.prefix_hit_rate import hit_rate
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import simulate
from tileq_theory.iteration_time import IterationTime
from tileq_theory.prefix_cache import Conversations as Law

SHAPE = {
    "system_tokens": 512,
    "user_tokens": 64,
    "answer_tokens": 192,
    "think_s": 30.0,
    "system_prompts": 8,
    "block_tokens": 16,
}
LAW = Law(turns=5, zipf=1.0, **SHAPE)  # type: ignore[arg-type]
RATE, WARM = 4.0, 4000


@pytest.fixture(scope="module")
def asked() -> Requests:
    return Conversations(turns_mean=5, system_zipf=1.0, **SHAPE).requests(16_000, rate_per_s=RATE, seed=1)  # type: ignore[arg-type]


def test_mean_prompt(asked: Requests) -> None:
    """Turns come in sessions: the error of the mean is that of some 3200 of them; 4 sigma of it."""
    m, each = 5, 64 + 192
    spread = each * np.sqrt(3 * m**3 / len(asked))
    assert asked.prompt_tokens.mean() == pytest.approx(LAW.prompt_tokens, abs=4 * spread)


@pytest.mark.parametrize("cache_tokens", [None, 20_000, 50_000, 100_000, 200_000, 400_000])
def test_hits_over_sizes(asked: Requests, cache_tokens: int | None) -> None:
    """Within 3 points, and in fact within 1: from a third to all that can be found."""
    found = hit_rate(asked, cache_tokens).found[WARM:].sum() * 16 / asked.prompt_tokens[WARM:].sum()
    assert found == pytest.approx(LAW.hits(cache_tokens, RATE).hit_share, abs=0.03)


def test_the_engine_at_a_light_load(asked: Requests) -> None:
    """Few residents: the engine's cache is the KV memory, and finds what the law says of a cache of that size."""
    fast = IterationTime(launch_s=0.0005, token_s=1e-6)
    memory = 100_000
    config = EngineConfig(token_budget=2048, max_num_seqs=64, kv_tokens=memory, prefix_cache=True)
    run = simulate(asked, policy("vllm_v1"), fast, config)
    found = run.prefix_hit_tokens[WARM:].sum() / asked.prompt_tokens[WARM:].sum()
    assert run.samples.running.mean() < 2
    assert found == pytest.approx(LAW.hits(memory, RATE).hit_share, abs=0.03)
