"""Time to decide at 128 residents: vLLM's own scheduler, and Tileq's on the same state (run with -m bench, -s).

Processor time of the thread, so that neighbours do not count.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.bench, pytest.mark.vllm]
pytest.importorskip("vllm.v1", reason="no vLLM here: tools/vllm_environment.sh makes an environment with it")
sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "vllm_schedulers"))

from vllm_harness import make_request, make_scheduler, output_of  # noqa: E402

_ROUNDS = 400


def times_us(kind: type, policy: dict[str, Any] | None) -> tuple[float, float, int]:
    """Return the 20th percentile of `schedule` and of the round with its update, microseconds, and the residents."""
    scheduler = make_scheduler(
        kind, tileq=policy, max_num_seqs=128, max_num_batched_tokens=512, blocks=20_000, max_model_len=8000
    )
    for k in range(128):
        scheduler.add_request(make_request(f"r{k}", 40 + k, 3000))
    deciding, rounds = [], []
    for step in range(60 + _ROUNDS):
        began = time.thread_time_ns()
        scheduled = scheduler.schedule()
        decided = time.thread_time_ns()
        output = output_of(scheduler, scheduled)
        made = time.thread_time_ns()
        scheduler.update_from_output(scheduled, output)
        if step >= 60:
            assert len(scheduled.num_scheduled_tokens) == 128
            deciding.append(decided - began)
            rounds.append(decided - began + time.thread_time_ns() - made)
    return float(np.percentile(deciding, 20)) / 1e3, float(np.percentile(rounds, 20)) / 1e3, len(scheduler.running)


def test_deciding_at_128_residents() -> None:
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    from tileq_engine.vllm import TileqScheduler

    lines = []
    for name, kind, settings in (
        ("vLLM's own", AsyncScheduler, None),
        ("sarathi", TileqScheduler, {"policy": "sarathi"}),
        ("slai", TileqScheduler, {"policy": "slai", "params": {"order": "paying_spf"}}),
        ("aging", TileqScheduler, {"policy": "aging", "params": {"base": "sarathi"}}),
        ("vLLM's own, again", AsyncScheduler, None),
    ):
        deciding, whole, residents = times_us(kind, settings)
        lines.append((name, deciding, whole, residents))
    print()  # noqa: T201
    for name, deciding, whole, residents in lines:
        print(f"{name:20} schedule {deciding:7.1f} us, with update {whole:7.1f} us, {residents} residents")  # noqa: T201
    stock = max(lines[0][1], lines[-1][1])
    for name, deciding, _, _ in lines[1:-1]:
        assert deciding - stock <= stock, f"{name}: deciding costs more than vLLM's whole scheduler"
