"""Capacity search against queues whose capacity is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine.capacity_search import capacity_search
from tileq_engine.capacity_search_criteria import Criterion, SlaiCriterion, Stable, Within, all_of
from tileq_engine.capacity_search_saturated import saturated_throughput
from tileq_engine.experiment_streams import Streams
from tileq_engine.requests import ClockError
from tileq_engine.run import FINISHED, PS_PER_S, REJECTED, Run, RunInfo, Slo
from tileq_engine.run_raw import request_table, sample_table
from tileq_theory.errors import InputError

RunMaker = Callable[..., Run]


@pytest.fixture(scope="module")
def queue(server: RunMaker) -> Callable[[float, Streams], Run]:
    """M/M/1 of mean service 1 s, 6000 requests, common random numbers."""

    def simulate(rate: float, streams: Streams) -> Run:
        arrivals = np.cumsum(streams.rng("arrivals").exponential(1.0, 6000)) / rate
        return server(arrivals, streams.rng("lengths").exponential(1.0, 6000), rate_per_s=rate)

    return simulate


def test_capacity_under_a_mean_sojourn_of_mm1(queue: Callable[[float, Streams], Run]) -> None:
    # E[T] = 1/(1 - rate) <= 4  ->  rate = .75; 99.99 % interval, one false alarm in 10^4
    answer = capacity_search(
        queue, Within("e2e_s.mean", 4.0), start_per_s=0.5, replications=8, backend="serial", level=0.9999
    )
    assert answer.interval.contains(0.75)
    assert abs(answer.rate_per_s - 0.75) < 0.05
    assert answer.runs == len(answer.history) <= 8 * 20
    assert all(high <= low * 1.01 for low, high in answer.brackets)


def test_the_interval_holds_what_the_brackets_leave_open() -> None:
    """A capacity that all replications share, and a coarse search: the brackets hold it, so the interval must."""
    for capacity in (0.9, 1.03, 1.37):
        answer = capacity_search(
            rate_only,
            Stated(lambda rate, c=capacity: 1.0 if rate > c else -1.0),
            replications=4,
            backend="serial",
            tolerance=0.1,
        )
        assert answer.interval.contains(capacity) and answer.interval.settled
        assert answer.rate_per_s == answer.interval.estimate <= capacity
    endless = capacity_search(rate_only, Stated(lambda rate: -1.0), replications=2, backend="serial", most_runs=5)
    assert math.isinf(endless.interval.high) and not endless.interval.settled


def test_capacity_under_a_quantile_of_mm1(queue: Callable[[float, Streams], Run]) -> None:
    # P(T > t) = exp(-(1 - rate) t): p90 <= 8  ->  rate = 1 - ln(10)/8
    answer = capacity_search(
        queue, Within("e2e_s.p90", 8.0), start_per_s=2.0, replications=6, backend="serial", level=0.9999
    )
    assert answer.interval.contains(1 - math.log(10) / 8)


def test_each_rate_is_simulated_once_with_the_same_streams(queue: Callable[[float, Streams], Run]) -> None:
    seen: list[tuple[float, int, int]] = []

    def spy(rate: float, streams: Streams) -> Run:
        seen.append((rate, streams.seed, streams.replication))
        return queue(rate, streams)

    answer = capacity_search(spy, Within("e2e_s.mean", 4.0), start_per_s=0.7, replications=2, seed=9, backend="serial")
    assert len(set(seen)) == len(seen) == answer.runs
    assert {s for _, s, _ in seen} == {9}
    again = capacity_search(spy, Within("e2e_s.mean", 4.0), start_per_s=0.7, replications=2, seed=9, backend="serial")
    assert again == answer


def test_a_search_resumes_from_its_folder(queue: Callable[[float, Streams], Run], tmp_path: Path) -> None:
    seen: list[float] = []

    def dies(rate: float, streams: Streams) -> Run:
        if len(seen) == 4:
            raise RuntimeError("killed")
        seen.append(rate)
        return queue(rate, streams)

    goal = Within("e2e_s.mean", 4.0)
    options: dict[str, Any] = {"replications": 1, "backend": "serial", "folder": tmp_path / "search"}
    with pytest.raises(RuntimeError, match="killed"):
        capacity_search(dies, goal, **options)
    first, _ = seen.copy(), seen.clear()

    def counted(rate: float, streams: Streams) -> Run:
        seen.append(rate)
        return queue(rate, streams)

    resumed = capacity_search(counted, goal, **options)
    assert not set(seen) & set(first) and len(first) == 4
    assert resumed == capacity_search(queue, goal, replications=1, backend="serial")
    with pytest.raises(InputError, match="criterion is"):
        capacity_search(queue, Within("e2e_s.mean", 5.0), **options)


def test_stability_capacity_of_a_deterministic_server(server: RunMaker) -> None:
    def simulate(rate: float, streams: Streams) -> Run:
        return server(np.arange(1, 2001) / rate, np.full(2000, 0.5), rate_per_s=rate)

    answer = capacity_search(simulate, Stable(), start_per_s=1.0, replications=1, tolerance=0.002, backend="serial")
    # a growth of up to 2 % of the arriving work passes: 2 <= capacity <= 2/(1 - .02)
    assert 2.0 * 0.998 <= answer.rate_per_s <= 2.0 / 0.98
    assert answer.interval.low == answer.brackets[0][0] and answer.interval.high == answer.brackets[0][1]


class Stated(Criterion):
    """A criterion with a margin given as a function of the rate, for the search itself."""

    def __init__(self, margin: Callable[[float], float]) -> None:
        self.margin = margin

    def __call__(self, run: Run) -> float:
        return self.margin(float(run.info.rate_per_s or 0.0))

    def describe(self) -> str:
        return "stated"


def rate_only(rate: float, streams: Streams) -> Run:
    table = request_table({name: np.zeros(0) for name in ("arrival_ps", "prompt_tokens", "output_tokens")})
    return Run(table, sample_table(), (), {}, RunInfo("x", 0, rate_per_s=rate))


def find(margin: Callable[[float], float], **options: Any) -> Any:
    return capacity_search(rate_only, Stated(margin), replications=1, backend="serial", **options)


@pytest.mark.parametrize("capacity", [1e-4, 0.3, 1.0, 17.0, 5e5])
@pytest.mark.parametrize("shape", ["smooth", "step"])
def test_any_capacity_is_found_from_any_start(capacity: float, shape: str) -> None:
    smooth = shape == "smooth"
    answer = find(lambda rate: math.log(rate / capacity) if smooth else (1.0 if rate > capacity else -1.0))
    low, high = answer.brackets[0]
    assert low <= capacity <= high <= low * 1.01
    assert answer.runs < 45 and not answer.violations and not answer.notes


def rejecting(reason: int, share_at: Callable[[float], float]) -> Callable[[float, Streams], Run]:
    """A run of 100 requests of which a share, a function of the rate, is rejected for `reason`."""

    def simulate(rate: float, streams: Streams) -> Run:
        turned_away = np.arange(100) < 100 * share_at(rate)
        moment = np.arange(100) * PS_PER_S
        served = np.where(turned_away, -1, moment + 1)
        table = request_table(
            {
                "arrival_ps": moment,
                "first_token_ps": served,
                "finish_ps": served,
                "prompt_tokens": np.ones(100),
                "output_tokens": np.ones(100),
                "status": np.where(turned_away, REJECTED, FINISHED),
                "reject_reason": np.where(turned_away, reason, 0),
            }
        )
        return Run(table, sample_table(), (), {}, RunInfo("x", 100 * PS_PER_S, rate_per_s=rate))

    return simulate


def test_turning_requests_away_does_not_meet_an_objective() -> None:
    # an empty house is quick to serve: everything is met, but from rate 5 on a tenth is turned away
    def turns_away(rate: float) -> float:
        return 0.1 if rate > 5.0 else 0.0

    quick = Stated(lambda rate: rate / 9.0 - 1.0)
    options: dict[str, Any] = {"replications": 1, "backend": "serial"}
    full = capacity_search(rejecting(4, turns_away), quick, **options)
    assert full.rate_per_s == pytest.approx(5.0, rel=0.01) and "system full" in full.notes[0]
    allowed = capacity_search(rejecting(4, turns_away), quick, allowed_rejections=0.2, **options)
    assert allowed.rate_per_s == pytest.approx(9.0, rel=0.01)


def test_requests_that_never_fit_end_the_search_at_once() -> None:
    answer = capacity_search(
        rejecting(3, lambda rate: 0.5), Stated(lambda rate: -1.0), replications=1, backend="serial"
    )
    assert answer.rate_per_s == 0.0 and answer.runs == 1
    assert "50 of 100 longer than the token budget" in answer.notes[0]
    run = rejecting(3, lambda rate: 0.5)(1.0, Streams(0))
    verdict = run.verdict()
    assert verdict.verdict == "unstable" and "never be served" in verdict.reason
    assert run.to_dict()["slo_attainment"]["all"] == pytest.approx(0.5)


def test_secant_steps_save_runs() -> None:
    smooth = find(lambda rate: (rate / 7.3) ** 3 - 1, tolerance=1e-4)
    step = find(lambda rate: 1.0 if rate > 7.3 else -1.0, tolerance=1e-4)
    assert smooth.runs < step.runs


def test_an_island_above_is_found_counted_and_reported() -> None:
    # met below 1 and again in [1.1, 2): the largest rate is 2
    answer = find(lambda rate: -1.0 if rate < 1.0 or 1.1 <= rate < 2.0 else 1.0, start_per_s=0.25, tolerance=0.005)
    assert answer.brackets[0][0] == pytest.approx(2.0, rel=0.006)
    assert answer.violations >= 1 and "although a higher one met it" in answer.notes[0]


def test_an_objective_out_of_reach_or_without_limit_is_said() -> None:
    never = find(lambda rate: 1.0, most_runs=10)
    assert never.rate_per_s == 0.0 and "out of reach" in never.notes[0]
    always = find(lambda rate: -1.0, most_runs=10)
    assert math.isinf(always.brackets[0][1]) and "above the rate given" in always.notes[0]
    assert always.to_dict()["brackets_per_s"][0][1] is None
    short = find(lambda rate: 1.0 if rate > 0.77 else -1.0, tolerance=1e-9, most_runs=12)
    assert short.runs == 12 and "allowance" in short.notes[-1]


def test_rates_too_low_for_the_clock_end_the_search() -> None:
    """Halving goes on until the clock cannot hold the requests; that is an answer, 0, and not an error."""

    def simulate(rate: float, streams: Streams) -> Any:
        if rate < 0.01:
            raise ClockError("too rare")
        return rate_only(rate, streams)

    answer = capacity_search(simulate, Stated(lambda rate: 1.0), replications=1, backend="serial")
    assert answer.rate_per_s == 0.0 and "out of reach" in answer.notes[0] and 5 <= answer.runs <= 8
    with pytest.raises(ClockError):
        capacity_search(simulate, Stated(lambda rate: 1.0), start_per_s=1e-3, replications=1, backend="serial")


def test_criteria_combine_and_describe_themselves(queue: Callable[[float, Streams], Run]) -> None:
    run = queue(0.5, Streams(1))
    both = all_of(Within("e2e_s.mean", 4.0), Within("throughput_per_s", 0.4, at_least=True))
    assert both(run) == max(part(run) for part in both.parts) < 0  # type: ignore[attr-defined]
    assert both.describe() == "e2e_s.mean <= 4 and throughput_per_s >= 0.4"
    assert Within("e2e_s.mean", 1e-3)(run) > 0
    assert SlaiCriterion()(run) in (-1.0, 1.0) and "SLAI" in SlaiCriterion().describe()
    with pytest.raises(InputError, match="limit"):
        Within("e2e_s.mean", 0.0)
    with pytest.raises(InputError, match="not one of"):
        Within("e2e_s.p95", 1.0)(run)


def test_slai_capacity_needs_its_tiers(server: RunMaker) -> None:
    def simulate(rate: float, streams: Streams) -> Run:
        return server(np.arange(1, 301) / rate, np.full(300, 0.6), slo=(Slo(tbt_s=0.2),))

    answer = capacity_search(simulate, SlaiCriterion(), replications=1, backend="serial")
    # a deterministic queue: TTFT .3 s until the server saturates at 1/.6, then half the final backlog passes .2 s
    assert answer.rate_per_s == pytest.approx(1 / 0.6, rel=0.02)


def test_saturated_throughput_of_a_known_server(server: RunMaker) -> None:
    rng = np.random.default_rng(31)
    run = server(np.zeros(4000), rng.exponential(0.25, 4000))
    interval = saturated_throughput(run, level=0.9999)
    assert interval.contains(4.0) and interval.half_width < 0.6
    finish = run.requests["finish_ps"] / PS_PER_S
    assert interval.estimate == pytest.approx(3600 / (finish[-1] - finish[399]), rel=0.01)


def test_an_unsaturated_run_has_no_saturated_throughput(
    queue: Callable[[float, Streams], Run], server: RunMaker
) -> None:
    with pytest.raises(InputError, match="not saturated"):
        saturated_throughput(queue(0.3, Streams(2)))
    with pytest.raises(InputError, match="needs 200"):
        saturated_throughput(server(np.zeros(10), np.ones(10)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"start_per_s": 0.0}, "start_per_s"), ({"tolerance": -1.0}, "tolerance"), ({"most_runs": 2}, "most_runs")],
)
def test_bad_searches_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        find(lambda rate: 1.0, **arguments)
