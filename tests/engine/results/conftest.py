"""Synthetic runs with known answers: a single server in plain numpy stands in for any executor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tileq_engine.gaps import GapPairs
from tileq_engine.run import FINISHED, FUTURE, PS_PER_S, RUNNING, WAITING, GapGroup, Run, RunInfo, Slo
from tileq_engine.run_raw import request_table, sample_table

RunMaker = Callable[..., Run]


def single_server_run(
    arrival_s: np.ndarray,
    service_s: np.ndarray,
    *,
    output_tokens: int = 4,
    end_s: float | None = None,
    policy: str = "fcfs",
    rate_per_s: float | None = None,
    slo: tuple[Slo, ...] = (),
    tiers: int = 1,
) -> Run:
    """A FCFS server: a prompt of one token takes half the service, the output tokens share the rest evenly."""
    arrival = np.sort(np.round(arrival_s * PS_PER_S).astype(np.int64))
    # whole gaps, so that finish - first token is exactly (O - 1) gaps
    gap = np.round(service_s * PS_PER_S / 2 / max(output_tokens - 1, 1)).astype(np.int64)
    prefill = np.round(service_s * PS_PER_S / 2).astype(np.int64)
    service = prefill + gap * (output_tokens - 1)
    n = arrival.size
    total = np.concatenate([[0], np.cumsum(service)])
    start = total[:-1] + np.maximum.accumulate(arrival - total[:-1])
    finish = start + service
    end = int(finish[-1]) if end_s is None else round(end_s * PS_PER_S)
    first = start + prefill
    tokens = np.where(finish <= end, output_tokens, np.clip((end - first) // np.maximum(gap, 1) + 1, 0, output_tokens))
    tokens = np.where(first <= end, tokens, 0)
    status = np.where(
        finish <= end, FINISHED, np.where(start <= end, RUNNING, np.where(arrival <= end, WAITING, FUTURE))
    )
    table = request_table(
        {
            "arrival_ps": arrival,
            "admit_ps": np.where(start <= end, start, -1),
            "prefill_end_ps": np.where(first <= end, first, -1),
            "first_token_ps": np.where(first <= end, first, -1),
            "finish_ps": np.where(finish <= end, finish, -1),
            "prompt_tokens": np.ones(n),
            "output_tokens": np.full(n, output_tokens),
            "tokens_done": tokens,
            "max_gap_ps": np.where(tokens >= 2, gap, 0),
            "status": status,
            "tier": np.arange(n) % tiers,
        }
    )
    groups = []
    for tier in range(tiers):
        mine = np.arange(n) % tiers == tier
        gaps = GapPairs.of(gap[mine], np.maximum(tokens[mine] - 1, 0))
        if gaps.count:
            groups.append(GapGroup(0, tier, gaps))
    busy = int(np.clip(np.minimum(finish, end) - np.minimum(start, end), 0, None).sum())
    info = RunInfo(
        policy=policy,
        end_ps=end,
        stop_reason="finished" if end_s is None else "time",
        rate_per_s=rate_per_s,
        slo=slo,
        tier_names=tuple(f"tier {i}" for i in range(tiers)) if tiers > 1 else ("all",),
        kv_blocks_total=1,
        max_sequences=1,
        token_budget=8,
    )
    served = status == FINISHED
    samples: Any = type("Samples", (), {})()
    samples.start_ps, samples.duration_ps = start[served], service[served]
    samples.prefill_tokens, samples.decode_tokens = np.ones(served.sum()), np.full(served.sum(), output_tokens - 1)
    samples.sequences = samples.running = samples.kv_blocks_used = np.ones(served.sum())
    samples.waiting = np.searchsorted(arrival, start[served], side="right") - 1 - np.arange(served.sum())
    return Run(table, sample_table(samples), tuple(groups), {"busy_ps": busy, "iterations": int(served.sum())}, info)


def mm1_run(load: float, requests: int, seed: int, **options: Any) -> Run:
    """M/M/1 with mean service 1 s."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1.0 / load, requests))
    return single_server_run(arrival, rng.exponential(1.0, requests), rate_per_s=load, **options)


@pytest.fixture(scope="session")
def server() -> RunMaker:
    """Build a run of a FCFS server from arrival moments and service times."""
    return single_server_run


@pytest.fixture(scope="session")
def mm1() -> RunMaker:
    """Build an M/M/1 run (load, requests, seed)."""
    return mm1_run
