"""The simulator on recorded durations is the simulator: same events, whatever the policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.registry import policy
from tileq_engine.simulator_recorded import simulate_recorded
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

TIME = IterationTime(launch_s=0.01, token_s=1e-4, kv_token_s=1e-6, pair_s=1e-7)
CONFIG = EngineConfig(token_budget=40, max_num_seqs=6, kv_tokens=12 * 16, trace_limit=10**5, sample_limit=10**4)


def asked(seed: int = 4, n: int = 24) -> Requests:
    g = np.random.default_rng(seed)
    return Requests.from_arrays(
        arrival_s=g.exponential(0.02, n).cumsum(),
        prompt_tokens=g.integers(1, 40, n),
        output_tokens=g.integers(1, 30, n),
        tbt_limit_s=0.2,
    )


@pytest.mark.parametrize("preemption", ["recompute", "swap", "none"])
@pytest.mark.parametrize("name", ["sarathi", "vllm_v1", "slai", "static"])
def test_recorded_durations_give_the_run_they_came_from(name: str, preemption: Any) -> None:
    config = CONFIG.with_(preemption=preemption, swap_token_s=1e-5)
    original = simulate(asked(), policy(name), TIME, config, mode="stepped")
    again = simulate_recorded(asked(), policy(name), original.samples.duration_ps, config)
    # the record of a run that stalled ends where it stalled
    assert again.stop_reason == ("iterations" if original.stop_reason == "stalled" else original.stop_reason)
    for column in ("admit_ps", "first_token_ps", "finish_ps", "preemptions", "max_gap_ps", "swapped_tokens"):
        assert np.array_equal(getattr(again, column), getattr(original, column)), column
    assert again.trace.batches() == original.trace.batches()
    assert again.integrals == original.integrals


def test_durations_matter() -> None:
    """Twice the recorded times, and arrivals as they were: another run."""
    original = simulate(asked(), policy("sarathi"), TIME, CONFIG, mode="stepped")
    slow = simulate_recorded(asked(), policy("sarathi"), np.tile(2 * original.samples.duration_ps, 2), CONFIG)
    assert slow.stop_reason == "finished" and slow.end_ps > original.end_ps


def test_a_record_that_ends_early_ends_the_run() -> None:
    original = simulate(asked(), policy("sarathi"), TIME, CONFIG, mode="stepped")
    cut = simulate_recorded(asked(), policy("sarathi"), original.samples.duration_ps[:9], CONFIG)
    assert cut.stop_reason == "iterations" and cut.counters["iterations"] == 9
    assert cut.end_ps == original.samples.start_ps[9]


def test_times_of_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="iteration 1 took 0 ps"):
        simulate_recorded(asked(), policy("sarathi"), np.array([5, 0]), CONFIG)
