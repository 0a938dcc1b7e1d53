"""The recursion for a server of whole requests, one by one, against the general loop, stepped and in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.queues import single_server
from tileq_engine.registry import policy
from tileq_engine.simulator_single import is_single
from tileq_theory.iteration_time import IterationTime

POLICIES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sarathi", {}),
    ("vllm_v0", {}),
    ("vllm_v1", {}),
    ("orca", {}),
    ("orca", {"chunks": True}),
)
SETTINGS = {"token_budget": 60, "max_num_seqs": 1, "kv_tokens": 64}


def drawn(seed: int, name: str, params: dict[str, Any]) -> tuple[Requests, Any, IterationTime, EngineConfig]:
    """A queue from idle to overloaded, with ties in time, and every coefficient of the iteration's time."""
    g = np.random.default_rng(seed)
    n = int(g.integers(1, 60))
    arrival = g.exponential(g.choice([0.001, 0.02, 0.3]), n).cumsum()
    requests = Requests.from_arrays(
        arrival_s=np.round(arrival, 2) if g.random() < 0.5 else arrival,
        prompt_tokens=g.integers(1, 61, n),
        output_tokens=1,
        class_index=g.integers(0, 3, n) if g.random() < 0.5 else None,
        paying=g.random(n) < 0.3 if g.random() < 0.5 else None,
        tbt_limit_s=g.choice([0, 0.05], n),
        predicted_output_tokens=g.integers(0, 9, n),
    )
    time = IterationTime(
        launch_s=float(g.choice([0, 0.01])),
        weight_floor_s=float(g.choice([0, 0.02])),
        tile_s=float(g.choice([0, 0.02])),
        tile_tokens=int(g.choice([1, 16, 32])),
        token_s=float(g.choice([0, 1e-4])),
        kv_token_s=float(g.choice([0, 1e-6])),
        pair_s=float(g.choice([0, 1e-7])),
        sequence_s=float(g.choice([0, 1e-4])),
        kv_counts_prefill=bool(g.integers(2)),
    )
    config = EngineConfig(
        token_budget=int(g.choice([60, 500])),
        max_num_seqs=1,
        kv_tokens=None if g.random() < 0.5 else 64,
        block_tokens=int(g.choice([1, 16, 64])),
        watermark=float(g.choice([0, 0.1])),
        preemption=str(g.choice(["recompute", "swap", "none"])),
        sample_limit=int(g.choice([2, 8, 64])),
        gap_mode="exact" if g.random() < 0.5 else "histogram",
    )
    return requests, policy(name, **params), time, config


@pytest.mark.parametrize(("name", "params"), POLICIES)
def test_the_recursion_is_the_loop(name: str, params: dict[str, Any], differ: Any) -> None:
    for seed in range(120):
        requests, rule, time, config = drawn(seed, name, params)
        assert is_single(requests, rule, time, config)
        leapt = simulate(requests, rule, time, config)
        assert differ(simulate(requests, rule, time, config, mode="stepped"), leapt) == "", seed
        if seed % 4 == 0:
            assert differ(simulate(requests, rule, time, config, mode="python"), leapt) == "", seed
        assert leapt.counters["jumped_iterations"] == 0


@pytest.mark.campaign
@pytest.mark.parametrize(("name", "params"), POLICIES)
def test_the_recursion_is_the_loop_campaign(name: str, params: dict[str, Any], differ: Any) -> None:
    for seed in range(1000, 5000):
        case = drawn(seed, name, params)
        assert differ(simulate(*case, mode="stepped"), simulate(*case)) == "", seed


def test_a_long_queue_is_the_loop(differ: Any) -> None:
    g = np.random.default_rng(5)
    gap, service = g.exponential(1.0, 30_000), g.exponential(0.95, 30_000)
    queue = single_server(gap.cumsum(), service)
    assert is_single(queue.requests, queue.policy, queue.time, queue.config)
    assert differ(queue.run("stepped"), queue.run()) == ""


def test_a_clock_that_ends_first_is_the_loops(differ: Any) -> None:
    asked = Requests.from_arrays(arrival_s=[0, 1, 2, 3.9e6], prompt_tokens=[5, 6, 7, 8], output_tokens=1)
    config = EngineConfig(**SETTINGS)
    for launch_s in (1e5, 3e6, 4e6):
        case = (asked, policy("sarathi"), IterationTime(launch_s=launch_s), config)
        assert is_single(*case) is (launch_s == 1e5)
        runs = [simulate(*case, mode=mode) for mode in ("compiled", "stepped", "python")]
        assert differ(runs[0], runs[1]) == differ(runs[1], runs[2]) == ""
        assert runs[0].stop_reason == ("finished" if launch_s == 1e5 else "time")


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    simulate(*drawn(0, "sarathi", {}), progress=lambda done, of: told.append((done, of)))
    assert told and told[-1][0] == told[-1][1]


@pytest.mark.parametrize(
    "change",
    [
        {"max_num_seqs": 2},
        {"token_budget": 59},
        {"convention": "paper"},
        {"check": True},
        {"trace_limit": 10},
        {"queue_limit": 5},
        {"stop_time_s": 1.0},
        {"stop_backlog": 3},
        {"stop_iterations": 4},
        {"max_model_tokens": 60},
        {"kv_tokens": 48},
    ],
    ids=lambda c: next(iter(c)),
)
def test_what_leaves_the_loop_a_choice_goes_through_the_loop(change: dict[str, Any], differ: Any) -> None:
    prompt = np.array([60, 3, 60, 17, 60, 5])
    asked = Requests.from_arrays(arrival_s=[0, 0, 0, 0.1, 0.2, 9], prompt_tokens=prompt, output_tokens=1)
    time, rule = IterationTime(token_s=0.01), policy("sarathi")
    plain = EngineConfig(**SETTINGS)
    assert is_single(asked, rule, time, plain)
    changed = plain.with_(**change)
    assert not is_single(asked, rule, time, changed)
    runs = [simulate(asked, rule, time, changed, mode=mode) for mode in ("compiled", "stepped", "python")]
    assert differ(runs[0], runs[1]) == differ(runs[1], runs[2]) == ""
    assert is_single(asked, rule, time, plain.with_(max_model_tokens=61))


def test_who_must_go_through_the_loop() -> None:
    asked = Requests.from_arrays(arrival_s=[0, 1], prompt_tokens=[5, 6], output_tokens=1)
    time, config = IterationTime(token_s=0.01), EngineConfig(**SETTINGS)
    for name, params in (
        ("sjf", {}),
        ("priority", {}),
        ("aging", {}),
        ("static", {}),
        ("rad", {"b_col": 2}),
        ("svf", {}),
        ("slai", {}),
        ("theta", {}),
        ("psjf", {}),
        ("wait", {"thresholds": [1]}),
    ):
        assert not is_single(asked, policy(name, **params), time, config), name
    own = policy("sarathi").with_rule(order=lambda R, S, P, i: -float(i))
    assert not is_single(asked, own, time, config)
    assert is_single(asked, policy("sarathi", max_num_seqs=1), time, config)
    rule = policy("sarathi")
    assert not is_single(asked.with_(output_tokens=np.array([1, 2])), rule, time, config)
    assert not is_single(asked.with_(prefilled_tokens=np.array([5, 0])), rule, time, config)
    assert not is_single(asked.head(0), rule, time, config)
