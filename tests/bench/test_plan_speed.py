"""How long the common questions take: reported, never a gate (`pytest -m bench tests/bench`).

Wanted: one plan in a warm process under 100 ms, a 50 x 50 sweep of a region of two classes under 2 s, the whole command
from a cold start under 3 s, its help well under 1 s.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tileq as tq

pytestmark = pytest.mark.bench
Benchmark = Any


@pytest.mark.parametrize("workload", ["chat", "code", "sharegpt", "summarisation"])
def test_a_warm_plan(benchmark: Benchmark, workload: str) -> None:
    asked = {"workload": tq.named_workload(workload), "gpu": tq.load_gpu("h100-sxm"), "tbt": 0.1}
    answer = benchmark.pedantic(lambda: tq.plan(**asked), rounds=10, warmup_rounds=2)
    assert answer.rate_per_s > 0


def test_a_warm_plan_of_a_mix(benchmark: Benchmark) -> None:
    answer = benchmark.pedantic(
        lambda: tq.plan(classes=["1024:256@3", "8192:64@1"], tbt=0.1, max_num_seqs=256), rounds=10, warmup_rounds=2
    )
    assert answer.rate_per_s > 0


def test_a_sweep_of_a_region(benchmark: Benchmark) -> None:
    """2500 rate vectors judged, the region found anew each time."""

    def sweep() -> int:
        region = tq.region(["1024:256", "4096:32"], tbt=0.1, max_num_seqs=64).theory
        first, second = region.vertices.max(axis=0)
        grid = [(x, y) for x in np.linspace(0, first, 50) for y in np.linspace(0, second, 50)]
        return sum(region.contains(point) for point in grid)

    assert 0 < benchmark.pedantic(sweep, rounds=5, warmup_rounds=1) < 2500


def test_a_sweep_of_plans(benchmark: Benchmark) -> None:
    """The same grid the long way: 100 mixes of two classes, each a program of its own."""
    region = tq.region(["1024:256", "4096:32"], tbt=0.1, max_num_seqs=64).theory

    def sweep() -> float:
        mixes = [tq.Demand.mix(region.demands, (share, 1 - share)) for share in np.linspace(0.01, 0.99, 100)]
        return sum(tq.capacity(region.time, mix, region.limits).rate_per_s for mix in mixes)

    assert benchmark.pedantic(sweep, rounds=3, warmup_rounds=1) > 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["plan", "--help"],
        ["catalog", "gpus"],
        ["plan", "--json"],
        ["region", "--class", "1024:256", "--class", "4096:32", "--json"],
    ],
    ids=" ".join,
)
def test_a_cold_command(benchmark: Benchmark, arguments: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tileq", *arguments]

    def call() -> int:
        return subprocess.run(command, env=environment, capture_output=True, check=False).returncode

    assert benchmark.pedantic(call, rounds=3, warmup_rounds=1) == 0
