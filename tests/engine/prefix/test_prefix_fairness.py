"""Longest prefix first is not fair: who shares nothing waits behind all who share, first come first served does not."""

from __future__ import annotations

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import simulate
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.004, token_s=4e-5, kv_token_s=2e-8)
CONFIG = EngineConfig(token_budget=512, max_num_seqs=16, kv_tokens=64_000, prefix_cache=True)


def mixed(
    seed: int, load: float, count: int = 1500, strangers: float = 0.1, prompts: int = 4
) -> tuple[Requests, np.ndarray]:
    """Most requests begin with one of a few long system prompts, a tenth shares nothing; all are equally long."""
    rng = np.random.default_rng(seed)
    alone = rng.random(count) < strangers
    paths = [
        [f"{i} {k}" for k in range(32)] if alone[i] else [f"s{rng.integers(prompts)}"] * 28 + [f"{i}"] * 4
        for i in range(count)
    ]
    asked = Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(1.0 / (load * 60.0), count)),
        prompt_tokens=np.full(count, 520),
        output_tokens=rng.integers(10, 40, count),
        blocks=BlockPaths.from_lists(paths, 16),
    )
    return asked, alone


def waits_s(order: str, load: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Waits of strangers and of sharers among those who came in the middle half."""
    asked, alone = mixed(seed, load)
    run = simulate(asked, policy("sglang", order=order, fcfs_beyond=10**6), TIME, CONFIG)
    assert run.stop_reason == "finished"
    wait = (run.admit_ps - run.arrival_ps) * 1e-12
    middle = np.arange(len(asked)) // (len(asked) // 4)
    inside = (middle >= 1) & (middle < 3)
    return wait[inside & alone], wait[inside & ~alone]


def test_strangers_starve_under_longest_prefix_first() -> None:
    """Above capacity by a fifth: strangers wait tens of times as long as sharers, under FCFS as long; six seeds."""
    ratios: dict[str, list[float]] = {"longest_prefix": [], "fcfs": []}
    for seed in range(6):
        for order, found in ratios.items():
            strangers, sharers = waits_s(order, 1.3, seed)
            found.append(strangers.mean() / sharers.mean())
    assert min(ratios["longest_prefix"]) > 20.0  # seen: 70 to 120
    assert np.mean(ratios["fcfs"]) == pytest.approx(1.0, abs=0.1)


def test_what_it_buys() -> None:
    """Sixty prompts and room for some ten beside the residents: far more is found, and all is served in less time."""
    tight = CONFIG.with_(kv_tokens=14_000)
    for seed in range(3):
        asked, _ = mixed(seed, 1.3, prompts=60, strangers=0.0)
        grouped, plain = (
            simulate(asked, policy("sglang", order=order, fcfs_beyond=10**6), TIME, tight)
            for order in ("longest_prefix", "fcfs")
        )
        hits = [run.counters["prefix_hit_tokens"] / run.counters["prefix_lookup_tokens"] for run in (grouped, plain)]
        assert hits[0] > 1.5 * hits[1]  # seen: .75 to .77 against .35 to .36
        assert grouped.end_ps < 0.8 * plain.end_ps


def test_beyond_its_limit_it_is_first_come_first_served() -> None:
    """As SGLang does with more than 128 waiting: with a limit of 0 the runs are those of FCFS."""
    asked, _ = mixed(1, 1.2, count=300)
    limit = simulate(asked, policy("sglang", fcfs_beyond=0), TIME, CONFIG)
    plain = simulate(asked, policy("sglang", order="fcfs"), TIME, CONFIG)
    assert np.array_equal(limit.finish_ps, plain.finish_ps)
