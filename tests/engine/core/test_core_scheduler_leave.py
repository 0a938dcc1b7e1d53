"""Early ends and cancellations of a scheduler: counts, blocks and work stay those of the requests that are left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, Requests, Scheduler
from tileq_engine.registry import policy
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

CONFIG = EngineConfig(token_budget=20, max_num_seqs=4, kv_tokens=8 * 16, check=True)


def work_left(scheduler: Scheduler, alive: dict[int, tuple[int, int]]) -> int:
    """Tokens that the requests in the system still need, counted from the request table."""
    raw = scheduler.raw_run(scheduler.requests(), "", IterationTime(), "")
    ids, cached = scheduler.on_device()
    held = dict(zip(ids.tolist(), cached.tolist(), strict=True))
    host, swapped = scheduler.on_host()
    held.update(zip(host.tolist(), swapped.tolist(), strict=True))
    # a request needs prompt + output - 1 passes of a token; what is cached is done
    return sum(prompt + int(raw.requests.output_tokens[i]) - 1 - held.get(i, 0) for i, (prompt, _) in alive.items())


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**20),
    name=st.sampled_from(["sarathi", "vllm_v1", "sjf", "slai"]),
    preemption=st.sampled_from(["recompute", "swap"]),
)
def test_books_balance_whoever_leaves(seed: int, name: str, preemption: str) -> None:
    g = np.random.default_rng(seed)
    scheduler = Scheduler(policy(name), CONFIG.with_(preemption=preemption), capacity=20, python=True)
    lengths = [(int(g.integers(1, 30)), int(g.integers(1, 20))) for _ in range(12)]
    for prompt, output in lengths:
        scheduler.add(prompt_tokens=prompt, output_tokens=output)
    scheduler.close()
    alive = dict(enumerate(lengths))
    for _ in range(400):
        scheduler.arrive(scheduler.now_ps)
        if not alive:
            break
        assert scheduler.facts("work")[0] == work_left(scheduler, alive)
        if g.random() < 0.1:
            gone = int(g.choice(list(alive)))
            scheduler.cancel(gone)
            del alive[gone]
            assert len(scheduler) == len(alive)
            continue
        batch = scheduler.decide(scheduler.now_ps)
        if len(batch) == 0:
            continue
        after = batch.context_tokens + batch.prefill_tokens
        deciding = batch.ids[batch.decode == 1]
        if deciding.size and g.random() < 0.3:
            scheduler.end_early(deciding[:1])
        for i in scheduler.complete(1000).tolist():
            del alive[i]
        assert (after <= 8 * 16).all()
    assert not alive and len(scheduler) == 0
    assert scheduler.kv_blocks_used == 0 and scheduler.facts("work")[0] == 0


def test_misuse_is_named() -> None:
    scheduler = Scheduler(policy("sarathi"), CONFIG, capacity=4, python=True)
    scheduler.add(prompt_tokens=30, output_tokens=2)
    with pytest.raises(InputError, match="has not arrived yet"):
        scheduler.cancel(0)
    with pytest.raises(InputError, match="request 7 is unknown"):
        scheduler.cancel(7)
    with pytest.raises(InputError, match="end_early was called without a batch"):
        scheduler.end_early(np.array([0]))
    scheduler.decide(0)
    with pytest.raises(InputError, match="gets no token from this batch"):
        scheduler.end_early(np.array([0]))  # its prompt of 30 is only begun
    with pytest.raises(InputError, match="with an open batch"):
        scheduler.cancel(0)
    scheduler.complete(5)
    scheduler.cancel(0)
    with pytest.raises(InputError, match="is rejected; only"):
        scheduler.cancel(0)


@pytest.mark.parametrize("python", [True, False])
def test_requests_known_beforehand(python: bool) -> None:
    """They arrive when they arrive; those that have not can be turned away."""
    asked = Requests.from_arrays(arrival_ps=[0, 50, 90], prompt_tokens=[4, 5, 6], output_tokens=[2, 2, 2])
    scheduler = Scheduler(policy("sarathi"), CONFIG, requests=asked, python=python)
    scheduler.close()
    assert scheduler.arrive(0) == 1 and scheduler.next_arrival_ps == 50
    assert scheduler.decide(0).ids.tolist() == [0]
    scheduler.complete(60)
    assert scheduler.arrive(60) == 2
    assert scheduler.turn_away() == 1 and scheduler.next_arrival_ps is None
    while len(scheduler):
        scheduler.decide(scheduler.now_ps)
        scheduler.complete(10)
    raw = scheduler.raw_run(asked, "drained", IterationTime(), "test")
    assert raw.status.tolist() == [3, 3, 0] and raw.stop_reason == "drained"
    assert scheduler.requests().prompt_tokens.tolist() == [4, 5, 6]
