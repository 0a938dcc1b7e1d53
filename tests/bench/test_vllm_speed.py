"""Time to decide at 128 residents: vLLM's own scheduler, and Tileq's in its place (run with -m bench, -s).

All run in one process, in turn, iteration by iteration, on the same requests: asynchronous, one iteration in flight,
prefix caching and statistics on, as vLLM serves. Processor time of the thread, so that neighbours do not count.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.bench, pytest.mark.vllm]
pytest.importorskip("vllm.v1", reason="no vLLM here: tools/vllm_environment.sh makes an environment with it")
sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "vllm_schedulers"))

from vllm_harness import make_request, make_scheduler, output_of  # noqa: E402

_WARM, _ROUNDS, _SEATS, _BUDGET = 60, 400, 128, 512
_LEVELS = [[512, 384, 128, 1.0], [256, 128, 128, 1.0]]
SCHEDULERS: dict[str, dict[str, Any] | None] = {
    "vLLM's own": None,
    "Sarathi": {"policy": "sarathi"},
    "SLAI": {"policy": "slai", "params": {"order": "paying_spf", "mean": "ewma"}},
    "RAD": {"policy": "rad_general", "params": {"levels": _LEVELS}},
    "aging": {"policy": "aging", "params": {"base": "sarathi"}},
}


class Lane:
    """A scheduler with its iterations in flight and what they took."""

    def __init__(self, kind: type, tileq: dict[str, Any] | None) -> None:
        self.scheduler = make_scheduler(
            kind,
            tileq=tileq,
            max_num_seqs=_SEATS,
            max_num_batched_tokens=_BUDGET,
            blocks=20_000,
            max_model_len=8000,
            asynchronous=True,
            prefix_caching=True,
            log_stats=True,
        )
        self.flights: deque[Any] = deque()
        self.came = 0
        self.deciding: list[int] = []
        self.updating: list[int] = []
        self.members: list[int] = []

    def fill(self, mixed: bool) -> None:
        """Let requests come: 128 long answers, or such that twelve wait and some prefill at any time."""
        while self.came < _SEATS if not mixed else len(self.scheduler.requests) < _SEATS + 12:
            k = self.came
            prompt, answer = (100 + 37 * k % 500, 60 + 53 * k % 140) if mixed else (40 + k, 3000)
            extra = {"tileq_tier": "paying" if k % 10 == 0 else "standard"}
            self.scheduler.add_request(make_request(f"r{k}", prompt, answer, block_tokens=16, extra=extra))
            self.came += 1

    def step(self, noted: bool) -> None:
        """Decide an iteration, then take in the output of the one before."""
        began = time.thread_time_ns()
        scheduled = self.scheduler.schedule()
        decided = time.thread_time_ns()
        self.flights.append((scheduled, output_of(self.scheduler, scheduled)))
        if len(self.flights) < 2:
            return
        landed = self.flights.popleft()
        updating = time.thread_time_ns()
        self.scheduler.update_from_output(*landed)
        if noted:
            self.updating.append(time.thread_time_ns() - updating)
            self.deciding.append(decided - began)
            self.members.append(len(scheduled.num_scheduled_tokens))


@pytest.mark.parametrize("mixed", [False, True], ids=["all decoding", "mixed"])
def test_deciding_at_128_residents(mixed: bool) -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    from tileq_engine.vllm import TileqScheduler

    lanes = {name: Lane(TileqScheduler if own else AsyncScheduler, own) for name, own in SCHEDULERS.items()}
    for step in range(_WARM * (1 + 4 * mixed) + _ROUNDS):
        for lane in lanes.values():
            lane.fill(mixed)
            lane.step(step >= _WARM * (1 + 4 * mixed))
    print(f"\n{'mixed' if mixed else 'all decoding'}: median, us  (p90)      members")  # noqa: T201
    for name, lane in lanes.items():
        whole = np.add(lane.deciding, lane.updating) / 1e3
        line = f"{name:11} schedule {_of(np.array(lane.deciding) / 1e3)}, with update {_of(whole)}"
        print(f"{line}, {np.mean(lane.members):5.1f}")  # noqa: T201
        assert mixed or set(lane.members) == {_SEATS}
        assert len(lane.scheduler.running) >= _SEATS - 2
    stock = float(np.median(lanes["vLLM's own"].deciding))
    for name, lane in lanes.items():
        if lane.scheduler.__class__ is TileqScheduler:
            assert lane.scheduler.report.stock_decisions == 0
            assert np.median(lane.deciding) <= stock, f"{name}: deciding takes longer than vLLM's own scheduler"


def _of(values: Any) -> str:
    return f"{np.median(values):6.0f} ({np.quantile(values, 0.9):6.0f})"
