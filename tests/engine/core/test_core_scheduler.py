"""The scheduler of an executor takes the simulator's decisions, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, Scheduler, simulate
from tileq_engine.clock import coefficients, duration_ps
from tileq_engine.registry import policy
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.01, token_s=1e-4)


@pytest.mark.parametrize("python", [True, False])
@pytest.mark.parametrize("name", ["sarathi", "vllm_v1", "slai"])
def test_same_batches_as_the_simulator(name: str, python: bool) -> None:
    g = np.random.default_rng(4)
    n = 20
    asked = Requests.from_arrays(
        arrival_s=g.exponential(0.02, n).cumsum(),
        prompt_tokens=g.integers(1, 60, n),
        output_tokens=g.integers(1, 30, n),
        tbt_limit_s=0.2,
    )
    config = EngineConfig(token_budget=24, max_num_seqs=6, kv_tokens=320, trace_limit=10_000)
    run = simulate(asked, policy(name), TIME, config, mode="stepped")
    scheduler = Scheduler(policy(name), config, capacity=n, python=python)
    for i in range(n):
        scheduler.add(
            prompt_tokens=int(asked.prompt_tokens[i]),
            output_tokens=int(asked.output_tokens[i]),
            arrival_ps=int(asked.arrival_ps[i]),
            tbt_limit_s=0.2,
        )
    batches, ended, now = [], [], 0
    while len(ended) < n:
        batch = scheduler.decide(now)
        if len(batch) == 0:
            now = int(asked.arrival_ps[asked.arrival_ps > now][0])
            continue
        members: list[Any] = list(
            zip(batch.ids.tolist(), batch.prefill_tokens.tolist(), batch.decode.tolist(), strict=True)
        )
        batches.append(members)
        tokens = int(batch.prefill_tokens.sum() + batch.decode.sum())
        took = duration_ps(*coefficients(TIME), tokens, 0, 0, len(batch))
        ended += scheduler.complete(took).tolist()
        now += took
    assert batches == run.trace.batches()
    assert now == run.end_ps
    assert sorted(ended) == list(range(n))
    assert len(scheduler) == 0


def test_misuse() -> None:
    scheduler = Scheduler(policy("sarathi"), capacity=1, python=True)
    with pytest.raises(InputError, match="decide first"):
        scheduler.complete(1)
    scheduler.add(prompt_tokens=5, output_tokens=2)
    with pytest.raises(InputError, match="more capacity"):
        scheduler.add(prompt_tokens=5, output_tokens=2)
    scheduler.decide(0)
    with pytest.raises(InputError, match="complete the batch first"):
        scheduler.decide(0)
