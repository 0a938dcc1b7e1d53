"""The stability verdict: its error rates on queues whose load is known, and its edges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tileq_engine.config import EngineConfig
from tileq_engine.experiment import _verdict_of
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.run import Run
from tileq_engine.simulator import simulate
from tileq_engine.verdict import GRID_POINTS, StabilityVerdict, pooled_verdict, slope_interval, stability_verdict
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

FALSE_ALARM = 1e-4
RUNS = 120


def workload_path(load: float, seconds: float, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Work in an M/M/1 (mean service 1 s) over the second half of `seconds`, empty at the start."""
    count = rng.poisson(load * seconds)
    arrival = np.sort(rng.uniform(0, seconds, count))
    work = np.cumsum(rng.exponential(1.0, count))
    before = np.concatenate([[0.0], work[:-1]]) - arrival
    after = work - arrival - np.minimum(np.minimum.accumulate(before), 0.0)
    grid = np.linspace(seconds / 2, seconds, GRID_POINTS)
    last = np.searchsorted(arrival, grid, side="right") - 1
    path = np.where(last >= 0, np.maximum(after[last] - (grid - arrival[last]), 0.0), 0.0)
    return path, float(grid[1] - grid[0])


def judged(load: float, seconds: float, seed: int) -> tuple[list[str], int]:
    """Return (verdicts of RUNS runs, how often the slope's interval held the true drift)."""
    rng, verdicts, hits = np.random.default_rng(seed), [], 0
    for _ in range(RUNS):
        path, step = workload_path(load, seconds, rng)
        answer = stability_verdict(path, step, arriving_work_per_s=load, arrivals=int(load * seconds / 2))
        verdicts.append(answer.verdict)
        hits += answer.slope_per_s.contains(max(load - 1.0, 0.0))
    return verdicts, hits


@pytest.mark.parametrize("load", [0.8, 0.9, 0.95])
def test_a_stable_queue_is_hardly_ever_called_unstable(load: float) -> None:
    verdicts, _ = judged(load, 4000.0, 21)
    assert stats.binom.sf(verdicts.count("unstable") - 1, RUNS, 0.02) > FALSE_ALARM


@pytest.mark.parametrize("load", [1.05, 1.1, 1.2])
def test_an_overloaded_queue_is_hardly_ever_called_stable(load: float) -> None:
    verdicts, _ = judged(load, 4000.0, 22)
    assert stats.binom.sf(verdicts.count("stable") - 1, RUNS, 0.02) > FALSE_ALARM


@pytest.mark.parametrize(
    ("load", "answer", "power"), [(0.8, "stable", 0.97), (1.1, "unstable", 0.9), (1.2, "unstable", 0.97)]
)
def test_a_long_run_is_decided(load: float, answer: str, power: float) -> None:
    verdicts, _ = judged(load, 16_000.0, 23)
    assert stats.binom.cdf(verdicts.count(answer), RUNS, power) > FALSE_ALARM


@pytest.mark.parametrize("load", [0.8, 0.95, 1.05, 1.2])
@pytest.mark.parametrize("seconds", [1000.0, 8000.0])
def test_the_interval_covers_the_drift(load: float, seconds: float) -> None:
    _, hits = judged(load, seconds, 24)
    assert stats.binom.cdf(hits, RUNS, 0.89) > FALSE_ALARM


def test_the_slope_is_least_squares() -> None:
    rng = np.random.default_rng(3)
    path, step = rng.normal(size=40).cumsum(), 2.5
    assert slope_interval(path, step).estimate == pytest.approx(np.polyfit(np.arange(40) * step, path, 1)[0])


def test_a_straight_line_has_no_error_and_scaling_scales() -> None:
    line = slope_interval(3.0 * np.arange(20.0), 1.0)
    assert (line.low, line.high) == pytest.approx((3.0, 3.0))
    path = np.random.default_rng(4).normal(size=65).cumsum()
    one, two = slope_interval(path, 1.0), slope_interval(10.0 * path, 5.0)
    assert (two.low, two.high) == pytest.approx((2 * one.low, 2 * one.high))


def test_a_drained_or_empty_system_is_stable_and_few_arrivals_decide_nothing() -> None:
    still = stability_verdict(np.zeros(65), 1.0, arriving_work_per_s=10.0, arrivals=1000)
    assert still.verdict == "stable"
    assert stability_verdict(np.zeros(65), 1.0, arriving_work_per_s=10.0, arrivals=10).verdict == "undecided"


def test_a_backlog_bound_that_was_hit_is_unstable_even_without_a_path() -> None:
    short = stability_verdict(np.zeros(0), 0.0, arriving_work_per_s=1.0, arrivals=5, stopped_by_backlog=True)
    assert short.verdict == "unstable"
    facts = {"arriving_work_per_s": 1.0, "arrivals": 500, "stopped_by_backlog": True}
    noisy = 100 * np.random.default_rng(5).normal(size=65).cumsum()
    noisy += np.arange(65) * (3.0 - slope_interval(noisy, 1.0).estimate)  # a rise that its noise hides
    assert stability_verdict(noisy, 1.0, arriving_work_per_s=1.0, arrivals=500).verdict == "undecided"
    assert stability_verdict(noisy, 1.0, **facts).verdict == "unstable"
    assert stability_verdict(np.zeros(65), 1.0, **facts).verdict == "undecided"


def test_a_run_that_only_fills_is_not_called_unstable() -> None:
    """Requests stay for 20 s in a server of any number of places: 30 s of it show a ramp, 300 s a level."""
    facts = {"arriving_work_per_s": 100.0, "arrivals": 3000}
    moments = np.linspace(15.0, 30.0, GRID_POINTS)
    ramp = 100 * 20 * (1 - np.exp(-moments / 20.0)) + np.random.default_rng(6).normal(0, 5, GRID_POINTS)
    assert stability_verdict(ramp, 15 / 64, **facts).verdict == "unstable"
    waiting = stability_verdict(ramp, 15 / 64, **facts, stay_s=20.0)
    assert waiting.verdict == "undecided" and "this is how the system fills" in waiting.reason
    assert stability_verdict(ramp, 15 / 64, **facts, stay_s=20.0, stopped_by_backlog=True).verdict == "unstable"
    assert stability_verdict(ramp, 15 / 64, **facts, stay_s=2.9).verdict == "unstable"
    # ten of them together are not surer of it, neither here nor when they come from a folder
    assert pooled_verdict([waiting] * 10).verdict == "undecided"
    stored = {"stability": waiting.to_dict(), "warnings": [], "measurement": {}, "provenance": {}}
    assert _verdict_of(stored) == waiting


def decodes_that_slow_each_other(load: float, stays: int, seed: int) -> Run:
    """Poisson arrivals of equal requests whose decodes read their KV, as many at once as there are.

    An iteration takes c + k K, K the tokens read; at load rho a request stays 1/(1 - rho) times as long as alone and
    the system takes 1/(1 - rho)^2 times as long to fill. The second half lasts `stays`/2 stays of a request alone.
    """
    prompt, output, launch_s, kv_s, token_s = 64, 400, 0.01, 2e-7, 1e-6
    read = (output - 1) * prompt + (output - 1) * output / 2
    rate = load / (kv_s * read + token_s * (prompt + output - 1))
    count = int(stays * output * launch_s * rate)
    arrival = np.random.default_rng([seed, stays]).exponential(1 / rate, count).cumsum()
    asked = Requests.from_arrays(arrival_s=arrival, prompt_tokens=prompt, output_tokens=output)
    config = EngineConfig(max_num_seqs=100_000, token_budget=100_000, stop_time_s=float(arrival[-1]))
    cost = IterationTime(launch_s=launch_s, token_s=token_s, kv_token_s=kv_s)
    return Run.of(simulate(asked, policy("sarathi"), cost, config))


def test_a_system_that_fills_more_slowly_than_requests_stay_is_not_called_unstable() -> None:
    """Load .98, 20 stays of a request alone in the second half; the system takes 2500 of them to fill."""
    verdicts = [decodes_that_slow_each_other(0.98, 40, seed).verdict() for seed in range(20)]
    wrong = sum(v.verdict == "unstable" for v in verdicts)
    assert stats.binom.sf(wrong - 1, len(verdicts), 0.02) > FALSE_ALARM
    assert any("how a system fills" in v.reason for v in verdicts)
    assert pooled_verdict(verdicts).verdict == "undecided"  # the mean of all is no surer of it
    stored = {"stability": verdicts[0].to_dict(), "warnings": [], "measurement": {}, "provenance": {}}
    assert _verdict_of(stored) == verdicts[0]


def test_the_same_system_overloaded_is_called_unstable() -> None:
    """Load 1.3 over 100 stays: its growth slows down at first, too, and goes on."""
    verdicts = [decodes_that_slow_each_other(1.3, 200, seed).verdict() for seed in range(4)]
    assert [v.verdict for v in verdicts] == ["unstable"] * 4
    assert pooled_verdict(verdicts).verdict == "unstable"


def test_a_backlog_to_begin_with_is_no_growth_that_slows_down() -> None:
    """2000 requests at once, and then five arrive where four are served: the queue grows as much in either half."""
    arrival = np.concatenate([np.zeros(2000), 0.008 * np.arange(1, 2001)])
    asked = Requests.from_arrays(arrival_s=arrival, prompt_tokens=100, output_tokens=1)
    config = EngineConfig(token_budget=100, max_num_seqs=1, stop_time_s=float(arrival[-1]))
    verdict = Run.of(simulate(asked, policy("sarathi"), IterationTime.constant(0.01), config)).verdict()
    assert verdict.verdict == "unstable" and verdict.growth_ratio == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("seconds", [4.0, 7.0, 12.0])
def test_few_long_requests_fill_a_system_for_long(seconds: float) -> None:
    """A fifth of the requests makes two thirds of the tokens and stays ten times as long as the median: it fills."""
    verdicts = []
    for seed in range(60):
        rng = np.random.default_rng([seed, int(seconds)])
        arrival = rng.exponential(seconds / 400, 400).cumsum()
        long = rng.random(400) < 0.2
        outputs = np.where(long, rng.geometric(1 / 1400, 400), rng.geometric(1 / 150, 400))
        asked = Requests.from_arrays(arrival_s=arrival, prompt_tokens=10, output_tokens=outputs)
        config = EngineConfig(max_num_seqs=100_000, token_budget=10**6, stop_time_s=float(arrival[-1]))
        verdicts.append(Run.of(simulate(asked, policy("sarathi"), IterationTime.constant(0.01), config)).verdict())
    wrong = sum(v.verdict == "unstable" for v in verdicts)
    assert stats.binom.sf(wrong - 1, len(verdicts), 0.02) > FALSE_ALARM


def test_far_beyond_capacity_is_unstable_although_everybody_is_served_at_once() -> None:
    """At four times the capacity of decodes that slow each other requests stay nearly as long as the run, always."""
    verdicts = [decodes_that_slow_each_other(4.0, 60, seed).verdict() for seed in range(3)]
    assert [v.verdict for v in verdicts] == ["unstable"] * 3
    unknown = decodes_that_slow_each_other(8.0, 20, 1).verdict()  # nobody of the first has ended
    assert unknown.verdict == "undecided" and "served longer than the run" in unknown.reason


def test_growth_is_compared_with_what_went_before() -> None:
    """Lines from 40, with 0 and 38 tokens at the beginning: 20 more are half of 40, and ten times 2."""
    line, facts = 40.0 + np.linspace(0, 20, GRID_POINTS), {"arriving_work_per_s": 1.0, "arrivals": 500}
    assert stability_verdict(line, 1.0, **facts).verdict == "unstable"
    slow = stability_verdict(line, 1.0, begin_work=0.0, **facts)
    assert slow.verdict == "undecided" and slow.growth_ratio == pytest.approx(0.5)
    steady = stability_verdict(line, 1.0, begin_work=38.0, **facts)
    assert steady.verdict == "unstable" and steady.growth_ratio == pytest.approx(10.0)
    bound = stability_verdict(line, 1.0, begin_work=0.0, stopped_by_backlog=True, **facts)
    assert bound.verdict == "unstable"
    drained = stability_verdict(line, 1.0, begin_work=1000.0, **facts)  # a backlog served, and then growth
    assert drained.verdict == "unstable" and drained.growth_ratio is None


@pytest.mark.parametrize(("load", "wrong", "share"), [(0.9, "unstable", 0.02), (1.2, "stable", 0.02)])
@pytest.mark.parametrize("count", [500, 2000])
def test_short_runs_of_a_batching_engine(load: float, wrong: str, share: float, count: int) -> None:
    """Dai's constants, mixed batches, geometric lengths: 100 runs that last about 2 and 8 stays (5 for a verdict)."""
    cost = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    rng, verdicts = np.random.default_rng(count), []
    for _ in range(100):
        asked = Requests.from_arrays(
            arrival_s=np.cumsum(rng.exponential(200 / (load * 512 / 0.15316), count)),
            prompt_tokens=rng.geometric(0.01, count),
            output_tokens=rng.geometric(0.01, count),
        )
        config = EngineConfig(max_num_seqs=100_000, convention="paper", stop_time_s=float(asked.arrival_ps[-1]) * 1e-12)
        verdicts.append(Run.of(simulate(asked, policy("sarathi"), cost, config)).verdict().verdict)
    assert stats.binom.sf(verdicts.count(wrong) - 1, 100, share) > FALSE_ALARM
    if (load, count) == (1.2, 2000):
        assert stats.binom.cdf(verdicts.count("unstable"), 100, 0.7) > FALSE_ALARM


def test_a_policy_that_serves_nobody_is_unstable_however_short() -> None:
    """Whole prompts beyond the budget that wait for ever: nobody stays in service, so nothing tells of a fill."""
    asked = Requests.from_arrays(arrival_s=np.arange(400) * 0.4675, prompt_tokens=290, output_tokens=990)
    config = EngineConfig(token_budget=128, max_num_seqs=100, oversize="wait", stop_time_s=187.0)
    run = simulate(asked, policy("static"), IterationTime.constant(0.04675), config)
    assert Run.of(run).verdict().verdict == "unstable"


@pytest.mark.parametrize("load", [2.0, 6.0])
def test_far_beyond_capacity_is_unstable_although_everybody_waits_long(load: float) -> None:
    """A static batch of 16 x 50 decodes: even the first tenth of the requests waits many times its service."""
    seconds = 0.02 * 51 / 16 / load  # between arrivals; a batch of 16 is one prefill and 50 decode iterations
    asked = Requests.from_arrays(arrival_s=np.arange(4000) * seconds, prompt_tokens=10, output_tokens=50)
    config = EngineConfig(
        token_budget=160, max_num_seqs=16, convention="paper", stop_time_s=float(asked.arrival_ps[-1]) * 1e-12
    )
    verdict = Run.of(simulate(asked, policy("static"), IterationTime.constant(0.02), config)).verdict()
    assert verdict.verdict == "unstable", verdict.reason


def test_a_policy_that_can_hold_nobody_is_unstable() -> None:
    """Every prompt is longer than the budget of whole prompts: all are rejected, and nobody is left to judge by."""
    asked = Requests.from_arrays(arrival_s=np.arange(200) * 0.1, prompt_tokens=300, output_tokens=9)
    run = simulate(asked, policy("vllm_v0"), IterationTime.constant(0.01), EngineConfig(token_budget=256))
    verdict = Run.of(run).verdict()
    assert verdict.verdict == "unstable" and "200 requests are longer than the token budget" in verdict.reason


def test_pooling_replications_decides_what_single_ones_cannot() -> None:
    rng, single = np.random.default_rng(25), []
    for _ in range(12):
        path, step = workload_path(1.1, 4000.0, rng)
        single.append(stability_verdict(path, step, arriving_work_per_s=1.1, arrivals=2200))
    assert {v.verdict for v in single} != {"unstable"}
    assert pooled_verdict(single).verdict == "unstable"
    with pytest.raises(InputError, match="no verdicts"):
        pooled_verdict([])


def test_verdict_to_dict_is_plain() -> None:
    answer = stability_verdict(np.zeros(0), 0.0, arriving_work_per_s=1.0, arrivals=0)
    assert isinstance(answer, StabilityVerdict) and answer.to_dict()["slope_tokens_per_s"] is not None
    assert answer.verdict == "undecided" and math.isinf(answer.slope_per_s.low)


def test_a_level_without_published_critical_values_is_refused() -> None:
    with pytest.raises(InputError, match="slope level"):
        slope_interval(np.zeros(20), 1.0, 0.42)
