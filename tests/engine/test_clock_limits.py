"""The ends of the integer clock: nothing wraps around in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, simulate
from tileq_engine.queues import single_server
from tileq_engine.registry import policy
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

MODES = ["python", "stepped", "compiled"]
TWO = Requests.from_arrays(arrival_s=[0.0, 1.0], prompt_tokens=[10, 10], output_tokens=[3, 3])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("launch_s", [5e6, 1e9, 1e25])
def test_an_iteration_beyond_the_clock_is_refused(launch_s: float, mode: Any) -> None:
    with pytest.raises(InputError, match=r"launch_s is .* \(the clock counts picoseconds\)"):
        simulate(TWO, policy("sarathi"), IterationTime(launch_s=launch_s), mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_swap_beyond_the_clock_is_refused(mode: Any) -> None:
    asked = Requests.from_arrays(arrival_s=[0.0, 0.0], prompt_tokens=[31, 31], output_tokens=[10, 10])
    config = EngineConfig(kv_tokens=64, preemption="swap", swap_token_s=6e5)  # 32 tokens: 1.9e19 ps, which wraps
    with pytest.raises(InputError, match="longer than the clock counts"):
        simulate(asked, policy("vllm_v0"), IterationTime.constant(0.01), config, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_to_the_end_of_the_clock_says_so(mode: Any) -> None:
    asked = Requests.from_arrays(arrival_s=[0.0], prompt_tokens=[1], output_tokens=[2000])
    run = simulate(asked, policy("sarathi"), IterationTime(launch_s=4600.0), mode=mode)
    assert run.stop_reason == "time" and "the clock ended" in run.notes[0]
    assert 4.6e18 < run.end_ps < 2**63
    asked_for = simulate(
        asked, policy("sarathi"), IterationTime(launch_s=4600.0), EngineConfig(stop_time_s=1e4), mode=mode
    )
    assert asked_for.stop_reason == "time" and not asked_for.notes


@pytest.mark.parametrize("discipline", ["fcfs", "sjf"])
def test_the_area_under_a_huge_backlog_is_exact(discipline: str) -> None:
    """30 000 customers of 10^8 ticks at load 2: the area passes 2**87."""
    g = np.random.default_rng(1)
    arrival, service = np.cumsum(g.exponential(50.0, 30_000)), g.exponential(100.0, 30_000)
    run = single_server(arrival, service, discipline=discipline, tick_s=1e-6).run()
    prompt, ends, starts = (v.tolist() for v in (run.requests.prompt_tokens, run.finish_ps, run.arrival_ps))
    exact = sum(p * (e - a) for p, e, a in zip(prompt, ends, starts, strict=True))
    assert exact > 2**87
    assert run.integrals["work_token_ps"] == exact


@pytest.mark.parametrize("mode", MODES)
def test_a_single_server_stops_at_the_end_of_the_clock(mode: Any) -> None:
    asked = Requests.from_arrays(arrival_s=np.zeros(3000), prompt_tokens=10, output_tokens=1)
    config = EngineConfig(token_budget=10, max_num_seqs=1)
    run = simulate(asked, policy("sarathi"), IterationTime(launch_s=2000.0), config, mode=mode)
    assert run.stop_reason == "time" and "the clock ended" in run.notes[0]
    assert 2**62 <= run.end_ps < 2**63 and run.counters["finished"] == 2306


def test_leaps_leave_the_same_areas_as_steps() -> None:
    g = np.random.default_rng(2)
    arrival, service = np.cumsum(g.exponential(50.0, 300)), g.exponential(100.0, 300)
    setting = single_server(arrival, service, discipline="srpt", tick_s=0.01)
    leaps, steps = (setting.run(mode) for mode in ("compiled", "stepped"))
    assert leaps.counters["jumped_iterations"] > 0.9 * leaps.counters["iterations"]
    assert leaps.integrals == steps.integrals


def test_leaps_over_a_huge_backlog_are_exact() -> None:
    """One leap after the other over 2**30 ticks beside 2**38 waiting tokens: an area of 2**68 token-ticks a leap."""
    n, size = 150, 2**31 - 2
    asked = Requests.from_arrays(arrival_s=np.zeros(n), prompt_tokens=size, output_tokens=1)
    config = EngineConfig(token_budget=1, max_num_seqs=1)
    run = simulate(asked, policy("srpt"), IterationTime(token_s=1e-6), config)
    assert run.counters["iterations"] == n * size
    waiting = sum(k * size for k in range(n))  # whole requests behind, over the ticks of one
    assert run.integrals["work_token_ps"] == 10**6 * (size * waiting + n * size * (size + 1) // 2)


def test_a_request_longer_than_the_records_is_refused() -> None:
    with pytest.raises(InputError, match="prompt_tokens \\+ output_tokens of request 1"):
        Requests.from_arrays(arrival_s=[0, 0], prompt_tokens=[1, 2**31 - 2], output_tokens=[1, 2**30])


@pytest.mark.parametrize("mode", MODES)
def test_a_large_theta_is_counted_exactly(mode: Any) -> None:
    """Theta 1000 with iterations of 5000 s: Theta * mean is 5e18 ps, times a thousand no longer an int64."""
    asked = Requests.from_arrays(arrival_s=[0.0, 0.0], prompt_tokens=[4, 40], output_tokens=[3, 1], tbt_limit_s=4e6)
    config = EngineConfig(token_budget=4, trace_limit=100)
    run = simulate(asked, policy("slai", theta=700), IterationTime(launch_s=5000.0), config, mode=mode)
    # limit 4e6 s, Theta * mean 3.5e6 s: the decode is due .5e6 s after its token, so the other's chunks go first
    assert run.trace.request[:3].tolist() == [0, 1, 1]
    with pytest.raises(InputError, match="at most 1000 mean batches"):
        policy("slai", theta=1001)
