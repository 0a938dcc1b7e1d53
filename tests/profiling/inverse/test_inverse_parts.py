"""The parts of the inverse fit: exact slopes, the closed loop, all runs of a file or folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.run import PS_PER_S
from tileq_engine.simulator import simulate
from tileq_profiling.fit.rows import NAMES
from tileq_profiling.inverse.engine import EngineGiven
from tileq_profiling.inverse.evidence import evidence_of, of_statistic
from tileq_profiling.inverse.forward import PARAMETERS, Forward, latency, latency_slopes
from tileq_profiling.inverse.identify import combinations, covariance
from tileq_profiling.inverse.slopes import WorkBefore, traced
from tileq_profiling.steps import MeasuredRun, holds_runs_only, read_runs
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(
    launch_s=0.004, weight_floor_s=0.012, token_s=6e-5, pair_s=3e-9, kv_token_s=1.5e-7, sequence_s=1e-5
)
CONFIG = EngineConfig(token_budget=512, max_num_seqs=16, kv_tokens=40_000)


def requests(count: int = 80, seed: int = 0, rate: float = 2.0) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=np.cumsum(rng.exponential(1 / rate, count)).round(9),
        prompt_tokens=rng.integers(8, 1500, count),
        output_tokens=rng.integers(1, 120, count),
    )


@pytest.mark.parametrize("tile", [None, 128])
def test_latencies_are_their_slopes_times_the_coefficients(tile: int | None) -> None:
    """TTFT, TPOT and end to end are linear in theta while the schedule stands: F theta gives them back to rounding."""
    time = TIME if tile is None else TIME.with_(tile_s=0.006, tile_tokens=tile)
    asked = requests()
    raw = simulate(asked, policy("vllm_v1"), time, traced(CONFIG, asked))
    work = WorkBefore(raw, time)
    theta = np.array([*(getattr(time, n) for n in NAMES), 0.0])
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        seconds = latency(name, raw, None, 0.0)
        known = np.isfinite(seconds)
        np.testing.assert_allclose((latency_slopes(name, raw, None, work) @ theta)[known], seconds[known], rtol=2e-7)


def test_a_closed_loop_is_a_full_queue() -> None:
    """Sending each request when the loop would send it gives the same completions as queueing all of them at once."""
    clients, rng = 5, np.random.default_rng(4)
    prompt, output = rng.integers(8, 900, 60), rng.integers(1, 90, 60)
    together = Requests.from_arrays(arrival_s=np.zeros(60), prompt_tokens=prompt, output_tokens=output)
    queued = simulate(together, policy("vllm_v1"), TIME, CONFIG.with_(max_num_seqs=clients))
    sent = np.zeros(60, np.int64)
    sent[clients:] = np.sort(queued.finish_ps)[: 60 - clients]
    loop = simulate(
        Requests.from_arrays(arrival_ps=sent, prompt_tokens=prompt, output_tokens=output),
        policy("vllm_v1"),
        TIME,
        CONFIG,
    )
    np.testing.assert_array_equal(queued.finish_ps, loop.finish_ps)
    np.testing.assert_allclose(
        latency("ttft_s", queued, clients, 0.0), (loop.first_token_ps - loop.arrival_ps) / PS_PER_S, rtol=1e-12
    )


def test_residuals_are_zero_at_the_truth_without_noise() -> None:
    """All at the start: nothing is moved, so the truth leaves exactly nothing."""
    rng = np.random.default_rng(1)
    asked = Requests.from_arrays(
        arrival_s=np.zeros(50), prompt_tokens=rng.integers(8, 900, 50), output_tokens=rng.integers(2, 90, 50)
    )
    raw = simulate(asked, policy("vllm_v1"), TIME, CONFIG)
    first, end = raw.first_token_ps / PS_PER_S, raw.finish_ps / PS_PER_S
    run = MeasuredRun(
        "a run", "test", asked.prompt_tokens, asked.output_tokens, np.zeros(50), ttft_s=first,
        tpot_s=(end - first) / (asked.output_tokens - 1), e2e_s=end, kv_capacity_tokens=40_000.0,
    )  # fmt: skip
    forward = Forward.of([evidence_of(run, EngineGiven(512, 16))], None)
    theta = np.array([*(getattr(TIME, n) for n in NAMES), 0.0])
    np.testing.assert_allclose(forward.residual(theta), 0.0, atol=1e-9)
    assert forward.replications == 1 and forward.measured.size == 100
    halves, slopes = forward.slopes(theta, range(len(PARAMETERS)))
    np.testing.assert_allclose(halves, 0.0, atol=1e-9)
    # the whole is linear: slopes times theta are d log t / d log scale = 1, but for the overhead, which is 0
    np.testing.assert_allclose(slopes[0] @ theta, 1.0, rtol=1e-6)


def test_combinations_come_best_first() -> None:
    """Two coefficients of which only the sum is told: that sum is the first combination, the difference the last."""
    normal = np.array([[100.0, 100.0], [100.0, 100.0]])
    found = combinations(covariance(normal, normal), (0, 1))
    assert found[0].determined and not found[-1].determined
    assert found[0].shares["launch_s"] == pytest.approx(found[0].shares["weight_floor_s"])
    assert found[-1].shares["launch_s"] == pytest.approx(-found[-1].shares["weight_floor_s"])


def test_statistics_of_the_finite() -> None:
    values = np.array([1.0, 2.0, np.nan, 3.0])
    assert of_statistic("mean", values) == of_statistic("median", values) == of_statistic("p50", values) == 2.0
    assert np.isnan(of_statistic("mean", np.array([np.nan])))


# ---------------------------------------------------------------- all runs of a place

BENCH = {
    "backend": "vllm", "tokenizer_id": "t", "completed": 3, "failed": 0, "duration": 2.0, "total_input_tokens": 300,
    "total_output_tokens": 30, "request_rate": 1.5, "mean_ttft_ms": 40.0, "mean_tpot_ms": 11.0,
}  # fmt: skip


def test_every_run_of_a_sweep_and_of_a_folder(write: Callable[..., Path], tmp_path: Path) -> None:
    sweep = write(json.dumps([{**BENCH, "max_num_seqs": n} for n in (4, 8)]), "summary.json")
    runs = read_runs(sweep)
    assert [run.totals["max_num_seqs"] for run in runs] == [4.0, 8.0]
    assert len(read_runs(sweep, run=2)) == 1 and holds_runs_only(sweep)
    write(json.dumps(BENCH), "one.json")
    write(json.dumps({**BENCH, "completed": 0, "failed": 3}), "failed.json")
    write("notes of a colleague\n", "notes.txt")
    found = read_runs(tmp_path)
    assert len(found) == 3 and holds_runs_only(tmp_path)
    assert any("left out: failed.json: no request of this run completed" in text for text in found[0].warnings)


def test_a_folder_without_a_run_is_refused(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("notes\n", "notes.txt")
    assert not holds_runs_only(tmp_path)
    with pytest.raises(InputError, match="no file of this folder holds a measured run"):
        read_runs(tmp_path)
    with pytest.raises(InputError):
        read_runs(tmp_path / "absent")


def test_step_times_are_not_taken_for_latencies(write: Callable[..., Path]) -> None:
    line = (
        "INFO 04-22 12:53:55 [core.py:359] Iteration(15769): 0 context requests, 0 context tokens, 181 generation "
        "requests, 181 generation tokens, iteration elapsed time: 21.24 ms\n"
    )
    assert not holds_runs_only(write(line * 3, "engine.log"))
    assert holds_runs_only(write("", "empty"), "vllm-bench") and not holds_runs_only(write("", "empty"), "vllm-stats")
