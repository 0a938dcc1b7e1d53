"""RAD's invariants at every iteration, its modes, and the reference instance's slots."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.registry import policy
from tileq_theory.iteration_time import IterationTime

REFERENCE = IterationTime.rad(t_lin_s=4000e-6, t_nl_s=5e-6, tile_tokens=128)


def reference_requests(count: int, rate_per_s: float, seed: int) -> Requests:
    """P = 128 U{1..8}, O = min(floor(Exp(mean 200)) + 1, 512)."""
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(1 / rate_per_s, count).cumsum(),
        prompt_tokens=128 * g.integers(1, 9, count),
        output_tokens=np.minimum(np.floor(g.exponential(200.0, count)) + 1, 512),
    )


def test_reference_instance_keeps_every_invariant() -> None:
    asked = reference_requests(1500, 30.0, 5)
    config = EngineConfig(convention="paper", max_num_seqs=256, check=True, trace_limit=400_000)
    run = simulate(asked, policy("rad"), REFERENCE, config, mode="stepped")
    assert run.stop_reason == "finished"
    for batch in run.trace.batches():
        chunks = [c for _, c, _ in batch if c]
        if chunks:
            assert len(batch) == 1 and chunks == [128]
        else:
            assert len(batch) <= 128


def test_a_full_slot_takes_the_tile_time() -> None:
    asked = reference_requests(400, 1000.0, 6)  # a burst: slots are full until the drain
    run = simulate(asked, policy("rad"), REFERENCE, EngineConfig(convention="paper", max_num_seqs=256))
    tile_ps = 4_640_000_000
    assert run.samples.stride >= 1
    full = (run.samples.prefill_tokens == 128) | (run.samples.decode_tokens == 128)
    assert np.all(run.samples.duration_ps[full] == tile_ps)
    drain = ~full
    assert np.all(run.samples.waiting[drain] == 0)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 9), st.sampled_from([None, 1, 3]), st.booleans())
def test_invariants_on_any_prompts(seed: int, b_col: int, cycle: int | None, multiples: bool) -> None:
    g = np.random.default_rng(seed)
    n = int(g.integers(1, 15))
    prompt = g.integers(1, 5, n) * b_col if multiples else g.integers(1, 40, n)
    asked = Requests.from_arrays(
        arrival_s=g.exponential(0.02, n).cumsum(), prompt_tokens=prompt, output_tokens=g.integers(1, 30, n)
    )
    time = IterationTime.rad(t_lin_s=0.004, t_nl_s=1e-5, tile_tokens=b_col)
    config = EngineConfig(convention="paper", max_num_seqs=b_col + 1, check=True)
    run = simulate(asked, policy("rad", cycle=cycle), time, config, mode="stepped")
    assert run.stop_reason == "finished"
    assert np.array_equal(run.tokens_done, asked.output_tokens)


def test_padding_costs_a_tile_and_can_be_switched_off() -> None:
    asked = Requests.from_arrays(arrival_s=[0.0], prompt_tokens=[130], output_tokens=[1])
    time = IterationTime.rad(t_lin_s=0.004, t_nl_s=1e-5, tile_tokens=128)
    config = EngineConfig(convention="paper")
    padded = simulate(asked, policy("rad"), time, config, mode="python")
    real = simulate(asked, policy("rad", pad=False), time, config, mode="python")
    assert padded.prefill_end_ps[0] - real.prefill_end_ps[0] == 126 * 10_000_000


@pytest.mark.parametrize("cycle", [1, 4])
def test_a_cycle_takes_in_no_more_than_it_may(cycle: int) -> None:
    asked = Requests.from_arrays(arrival_s=np.zeros(12), prompt_tokens=8, output_tokens=20)
    time = IterationTime.rad(t_lin_s=0.004, t_nl_s=0.0, tile_tokens=8)
    config = EngineConfig(convention="paper", max_num_seqs=9)
    run = simulate(asked, policy("rad", cycle=cycle), time, config, mode="python")
    ends = run.finish_ps.reshape(-1, cycle)
    starts = run.admit_ps.reshape(-1, cycle)
    assert np.all(starts[1:].min(axis=1) >= ends[:-1].max(axis=1))
