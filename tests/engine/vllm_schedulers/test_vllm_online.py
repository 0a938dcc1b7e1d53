"""Refitting while serving: the fit finds the times, the advice keeps to its limits. No vLLM."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.vllm.asked import Asked
from tileq_engine.vllm.mirror import Mirror
from tileq_engine.vllm.online import best_budget, refit, request_s
from tileq_engine.vllm.report import Reporter, report_path
from tileq_engine.vllm.settings import Online, read_settings
from tileq_theory.iteration_time import IterationTime

DEMAND = {"prefill_tokens": 900.0, "decode_tokens": 100.0, "attention_pairs": 4e5, "kv_read_tokens": 9e4}
TRUE = IterationTime(launch_s=0.01, token_s=2e-5, pair_s=1e-9, kv_token_s=1e-7, sequence_s=1e-5)


def iterations(count: int, seed: int = 1) -> list[tuple[int, int, int, int, int]]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        n, a, k, m = (int(v) for v in rng.integers([1, 0, 0, 1], [600, 200_000, 90_000, 64]))
        rows.append((n, a, k, m, round(float(TRUE(n, a, k, m)) * 1e12 * float(rng.uniform(0.98, 1.02)))))
    return rows


def test_the_fit_finds_the_times_and_the_budget_that_follows_from_them() -> None:
    limits = Online(enabled=True, least_budget=64, most_budget=1024)
    found = refit(iterations(600), DEMAND, limits, shortest_limit_s=1.0)
    assert found.time.launch_s == pytest.approx(TRUE.launch_s, rel=0.05)
    assert found.time.token_s == pytest.approx(TRUE.token_s, rel=0.05)
    expected, rate = best_budget(TRUE, DEMAND, limits, 1.0)
    assert abs(found.token_budget - expected) <= 24
    assert found.rate_per_s == pytest.approx(rate, rel=0.03)


def test_the_advice_keeps_to_its_limits() -> None:
    tight = Online(enabled=True, least_budget=64, most_budget=96, least_theta=3.0, most_theta=4.0)
    found = refit(iterations(600), DEMAND, tight, shortest_limit_s=1.0)
    assert 64 <= found.token_budget <= 96 and found.theta == 4.0
    assert refit(iterations(600), DEMAND, tight, shortest_limit_s=0.02).theta == 3.0
    hasty, _ = best_budget(TRUE, DEMAND, Online(least_budget=64, most_budget=4096), 0.0125)
    assert float(TRUE.tau_s(hasty)) <= 0.0125, "no iteration of this budget is longer than the shortest limit"


def test_a_larger_budget_pays_off_the_constant() -> None:
    costs = request_s(TRUE, DEMAND, [64, 128, 256, 512])
    assert np.all(np.diff(costs) < 0)


def _reporter(online: dict[str, Any]) -> Reporter:
    plan = {
        "question": {},
        "token_budget": 64,
        "max_num_seqs": 8,
        "rate_per_s": 10.0,
        "iteration_time": {"launch_s": 0.01},
        "workload": {"demand": DEMAND},
    }
    settings = read_settings({"plan": plan, "online": online, "log_every_s": 0}, policy="slai")
    config = SimpleNamespace(
        instance_id="test-online",
        parallel_config=SimpleNamespace(data_parallel_index=0),
        scheduler_config=SimpleNamespace(max_num_batched_tokens=700),
    )
    mirror = Mirror(settings.make_policy(), EngineConfig(kv_tokens=16_000), capacity=8)
    reporter = Reporter(settings, config, mirror)
    for row in iterations(600):
        reporter.recent.append(row)
    reporter.iterations = 600
    reporter._written = reporter._refitted = -1e9
    return reporter


def test_an_iteration_counts_from_the_end_of_the_one_before_unless_the_engine_was_idle() -> None:
    us = 1_000_000
    reporter = _reporter({"enabled": False})
    reporter.begin_anew()
    shape = (10, 55, 0, 1)
    reporter.mirror.add("a", Asked(0.5, False), prompt_tokens=10, output_tokens=9)
    reporter.ran(5100 * us, 100 * us, shape)  # the first: since it was decided
    reporter.ran(9000 * us, 5900 * us, shape)  # with the 800 us in between
    reporter.mirror.leave(["a"])
    reporter.ran(12_000 * us, 8900 * us, shape)  # decided while the one before ran; nobody is left
    reporter.ran(24_000 * us, 20_000 * us, shape)  # after an idle time
    reporter.mirror.add("b", Asked(0.5, False), prompt_tokens=10, output_tokens=9)
    reporter.ran(29_000 * us, 25_000 * us, shape)
    reporter.idles()
    reporter.ran(41_000 * us, 40_000 * us, shape)
    assert [row[4] // us for row in reporter.recent] == [5000, 3900, 3000, 4000, 4000, 1000]
    assert reporter.busy_ps == 20_900 * us


def test_budget_and_offset_move_only_where_they_are_asked_to() -> None:
    still = _reporter({})
    still.tick(logging.getLogger("test"), None)
    assert still.refits == 0 and still.to_dict()["token_budget"] == 64 and still.to_dict()["theta"] == 5.0
    moved = _reporter({"enabled": True, "least_budget": 64, "most_budget": 4096})
    moved.tick(logging.getLogger("test"), None)
    found = moved.to_dict()
    assert found["refits_total"] == 1 and 64 < found["token_budget"] <= 700
    assert found["refitted_rate_per_s"] != 10.0 and found["theta"] != 5.0
    report_path("test-online", 0).unlink()


def test_a_rate_as_planned_changes_nothing() -> None:
    reporter = _reporter({"enabled": True, "least_change": 1e9})
    reporter.tick(logging.getLogger("test"), None)
    assert reporter.refits == 1 and reporter.to_dict()["token_budget"] == 64
    report_path("test-online", 0).unlink()


@pytest.mark.parametrize("count", [0, 3])
def test_a_fit_that_fails_does_not_stop_the_server(count: int, caplog: pytest.LogCaptureFixture) -> None:
    reporter = _reporter({"enabled": True, "least_iterations": 1})
    for _ in range(len(reporter.recent) - count):
        reporter.recent.pop()
    with caplog.at_level(logging.WARNING):
        reporter.tick(logging.getLogger("test"), None)
    assert reporter.refits == 0 and "refitting failed" in caplog.text
    report_path("test-online", 0).unlink()


def test_an_iteration_takes_some_time_whatever_the_clocks_say() -> None:
    reporter = _reporter({"enabled": False})
    reporter.begin_anew()
    assert reporter.ran(5, 9, (1, 1, 0, 1)) == 1 == reporter.recent[-1][4]
