"""Laws of every policy on instances that hypothesis makes up: nothing is lost, nothing is served twice or early."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.registry import policy
from tileq_theory.iteration_time import IterationTime

NAMES = ("static", "orca", "vllm_v0", "vllm_v1", "sarathi", "svf", "priority", "slai", "theta", "psjf")
TIME = IterationTime(launch_s=0.01, tile_s=0.003, tile_tokens=8, kv_token_s=1e-5)


@st.composite
def asked(draw: st.DrawFn) -> Requests:
    n = draw(st.integers(1, 12))
    whole = st.lists(st.integers(1, 40), min_size=n, max_size=n)
    steps = draw(st.lists(st.integers(0, 50), min_size=n, max_size=n))
    return Requests.from_arrays(
        arrival_ps=np.cumsum(steps) * 10**9,
        prompt_tokens=draw(whole),
        output_tokens=draw(whole),
        priority=draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
    )


@settings(max_examples=150)
@given(asked(), st.sampled_from(NAMES), st.integers(1, 6), st.integers(5, 30), st.sampled_from(["engine", "paper"]))
def test_everything_ends_and_adds_up(requests: Requests, name: str, slots: int, blocks: int, convention: Any) -> None:
    config = EngineConfig(token_budget=64, max_num_seqs=slots, kv_tokens=16 * blocks, convention=convention, check=True)
    run = simulate(requests, policy(name), TIME, config)
    assert run.stop_reason == "finished"
    fits = -(-(requests.prompt_tokens + requests.output_tokens - (convention == "engine")) // 16) <= blocks
    assert np.array_equal(run.status == 3, fits)
    assert np.array_equal(run.status == 4, ~fits)
    assert np.array_equal(run.tokens_done, np.where(fits, requests.output_tokens, 0))
    assert run.counters["peak_running"] <= slots
    assert run.counters["peak_kv_blocks"] <= blocks


@settings(max_examples=60)
@given(asked(), st.sampled_from([n for n in NAMES if n != "slai"]))  # its mean batch is rounded to whole ps
def test_the_unit_of_time_is_immaterial(requests: Requests, name: str) -> None:
    time = IterationTime(launch_s=2**-7, tile_s=2**-9, tile_tokens=8)  # whole picoseconds, also when tripled
    config = EngineConfig(token_budget=64, max_num_seqs=4, kv_tokens=320)
    limits = requests.with_(tbt_limit_ps=np.full(len(requests), 10**11))
    tripled = limits.with_(arrival_ps=3 * requests.arrival_ps, tbt_limit_ps=3 * limits.tbt_limit_ps)
    a = simulate(limits, policy(name), time, config)
    b = simulate(tripled, policy(name), time.scaled(3.0), config)
    assert np.array_equal(3 * a.finish_ps[a.status == 3], b.finish_ps[b.status == 3])


@settings(max_examples=60)
@given(asked())
def test_work_conserving_policies_end_together(requests: Requests) -> None:
    """One token, one tick, no batching gain: whoever is served, the server is busy as long as there is work."""
    time = IterationTime(token_s=0.001)
    config = EngineConfig(token_budget=64, max_num_seqs=12, convention="paper")
    ends = {
        int(simulate(requests, policy(n), time, config).integrals["busy_ps"]) for n in ("sarathi", "psjf", "vllm_v1")
    }
    assert len(ends) == 1
    whole = int((requests.prompt_tokens + requests.output_tokens).sum()) * 10**9
    assert ends == {whole}
