"""`Run`: paths, windows, metrics against closed forms and brute force."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tileq_engine.gaps import GapPairs
from tileq_engine.metrics_slai import slai_arrivals_s, slai_feasible, slai_true_rate
from tileq_engine.metrics_window import measure_window, mser5
from tileq_engine.run import FINISHED, PS_PER_S, REJECTED, GapGroup, Run, RunInfo, Slo
from tileq_engine.run_paths import queue_path, time_average, work_path
from tileq_engine.run_raw import request_table, sample_table
from tileq_theory.errors import InputError

RunMaker = Callable[..., Run]


def brute_work(run: Run, t: int) -> float:
    """Work in system at t, request by request, in plain Python."""
    total = 0.0
    for i in range(run.count):
        r = {name: int(column[i]) for name, column in run.requests.items()}
        if r["status"] == REJECTED or r["arrival_ps"] > t:
            continue
        decode = r["output_tokens"] - 1
        work = r["prompt_tokens"] + decode
        if r["prefill_end_ps"] >= 0:
            span = r["prefill_end_ps"] - r["admit_ps"]
            work -= r["prompt_tokens"] * min(max((t - r["admit_ps"]) / max(span, 1), 0), 1)
            done, end = (decode, r["finish_ps"]) if r["finish_ps"] >= 0 else (r["tokens_done"] - 1, run.info.end_ps)
            work -= done * min(max((t - r["prefill_end_ps"]) / max(end - r["prefill_end_ps"], 1), 0), 1)
        total += work
    return total


def test_work_and_queue_paths_equal_a_count_by_hand(mm1: RunMaker) -> None:
    run = mm1(0.9, 200, 1, end_s=150.0)
    grid = np.linspace(0, run.info.end_ps, 37).astype(np.int64)
    assert work_path(run, grid) == pytest.approx([brute_work(run, int(t)) for t in grid], abs=1e-6)
    paths, table = queue_path(run, grid), run.requests
    for k, t in enumerate(grid):
        arrived, admitted, left = (
            int(((table[c] >= 0) & (table[c] <= t)).sum()) for c in ("arrival_ps", "admit_ps", "finish_ps")
        )
        assert (paths["in_system"][k], paths["waiting"][k], paths["running"][k]) == (
            arrived - left,
            arrived - admitted,
            admitted - left,
        )


def test_time_average_is_littles_law(mm1: RunMaker) -> None:
    run = mm1(0.7, 500, 2)
    arrival, finish = run.requests["arrival_ps"], run.requests["finish_ps"]
    mean = time_average(arrival, finish, (0, run.info.end_ps))
    assert mean == pytest.approx(float((finish - arrival).sum()) / run.info.end_ps)


def test_metrics_of_five_requests_by_hand(server: RunMaker) -> None:
    # services 2 s (prefill 1 s, then 4 gaps of 1/4 s), arrivals at 0, 0, 10, 10, 10
    slo = (Slo(ttft_s=3.5, tbt_s=0.5),)
    run = server(np.array([0.0, 0.0, 10.0, 10.0, 10.0]), np.full(5, 2.0), output_tokens=5, slo=slo)
    answer = run.to_dict("none")
    ttft = [answer["ttft_s"][name] for name in ("mean", "p50", "p90", "p99", "max", "count", "unfinished")]
    assert ttft == [2.6, 3.0, 5.0, 5.0, 5.0, 5, 0]
    assert answer["tbt_s"]["mean"] == answer["tbt_s"]["max"] == answer["tpot_s"]["p50"] == 0.25
    assert answer["slo_attainment"]["ttft"] == 0.8
    assert answer["slo_attainment"]["gaps_within_limit"] == [1.0, 1.0]
    assert answer["queues"]["in_system"]["max"] == 3
    assert answer["requests"]["finished"] == 5
    assert answer["stable"] == "undecided"
    json.dumps(answer, allow_nan=False)


def test_mean_sojourn_of_mm1_lies_in_the_interval_of_replications(mm1: RunMaker) -> None:
    means = [mm1(0.5, 4000, seed).metrics().all.e2e_s.mean for seed in range(8)]
    low, high = stats.t.interval(0.9999, 7, loc=np.mean(means), scale=stats.sem(means))  # false alarm 1e-4
    assert low <= 2.0 <= high


def test_order_and_classes_do_not_change_the_whole(mm1: RunMaker) -> None:
    run = mm1(0.6, 600, 3, tiers=2)
    answer = run.to_dict()
    parts = [answer["tiers"][name] for name in ("tier 0", "tier 1")]
    assert sum(p["measured_requests"] for p in parts) == answer["measured_requests"]
    assert answer["ttft_s"]["mean"] == pytest.approx(
        sum(p["ttft_s"]["mean"] * p["measured_requests"] for p in parts) / answer["measured_requests"]
    )
    assert answer["tbt_s"]["count"] == sum(p["tbt_s"]["count"] for p in parts)
    assert answer["throughput_per_s"] == pytest.approx(sum(p["throughput_per_s"] for p in parts))
    assert all(p["goodput_per_s"] <= p["throughput_per_s"] for p in (answer, *parts))


def test_unfinished_requests_bound_the_tail_from_below(server: RunMaker) -> None:
    arrival, service = np.arange(400) * 0.5, np.full(400, 1.0)
    whole, cut = server(arrival, service), server(arrival, service, end_s=200.0)
    measured = cut.metrics("requests", warmup=0.0)
    assert measured.all.ttft_s.unfinished > 0
    truth = whole.requests["first_token_ps"] - whole.requests["arrival_ps"]
    assert measured.all.ttft_s.max <= truth.max() / PS_PER_S
    assert measured.all.ttft_s.p99 > 0.4 * truth.max() / PS_PER_S  # finished ones alone would stop far lower
    assert any("lower bounds" in w for w in measured.warnings)
    assert measured.stability.verdict == "unstable"


def test_mser_cuts_a_transient_and_leaves_a_stationary_run() -> None:
    rng = np.random.default_rng(6)
    transient = np.concatenate([np.linspace(0, 30, 500), 30 + rng.normal(0, 2, 4500)])
    drop, settled = mser5(transient)
    assert settled and 300 <= drop <= 700
    assert mser5(np.linspace(0, 1, 5000)) == (2500, False)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["mser5", "requests", "time", "none"]))
def test_window_accounts_for_every_accepted_request(mm1: RunMaker, seed: int, rule: str) -> None:
    run = mm1(0.8, 300, seed)
    window = measure_window(run, rule)
    assert window.warmup_requests + window.measured_requests + window.tail_requests == 300
    assert int(window.members(run).sum()) == window.measured_requests
    assert window.measured_requests > 0


def test_growing_run_says_that_it_never_settled(server: RunMaker) -> None:
    run = server(np.arange(2000) * 0.5, np.full(2000, 1.0))
    window = measure_window(run)
    assert not window.settled and "did not settle" in window.note
    assert any("did not settle" in w for w in run.metrics().warnings)


@pytest.mark.parametrize(
    ("rule", "warmup", "message"),
    [
        ("mser", None, "did you mean mser5"),
        ("requests", 1.5, "share"),
        ("time", 1e9, "leaves no request"),
        ("none", 3.0, "takes no amount"),
    ],
)
def test_bad_windows_are_refused(mm1: RunMaker, rule: str, warmup: float | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        measure_window(mm1(0.5, 50, 1), rule, warmup)


def test_slai_convention_by_hand(server: RunMaker) -> None:
    run = server(np.array([0.0, 5.0]), np.full(2, 2.0), output_tokens=3)
    answer = run.metrics(convention="slai")
    # per request two real gaps of .5 s and two zero gaps
    assert answer.all.tbt_s.count == 8
    assert answer.all.tbt_s.mean == 0.25
    assert (answer.all.tbt_s.p50, answer.all.tbt_s.p90) == (0.0, 0.5)
    assert answer.window.rule == "none" and answer.all.measured == 2


def test_slai_counts_finished_requests_only(server: RunMaker) -> None:
    run = server(np.zeros(4), np.full(4, 2.0), end_s=5.0)
    assert run.metrics(convention="slai").all.measured == 2


def test_slai_feasibility_needs_both_conditions(server: RunMaker) -> None:
    arrival, service = np.arange(20) * 10.0, np.full(20, 0.6)
    assert slai_feasible(server(arrival, service, slo=(Slo(tbt_s=0.11),)))
    assert not slai_feasible(server(arrival, service, slo=(Slo(tbt_s=0.09),)))
    assert not slai_feasible(server(arrival, np.full(20, 1.2), slo=(Slo(tbt_s=10.0),)))
    assert not slai_feasible(server(arrival + 1.0, service, end_s=0.5))


def test_slai_arrivals_have_the_true_rate_they_state() -> None:
    moments = slai_arrivals_s(np.random.default_rng(7), 200_000, 4.0)
    gaps = np.diff(moments, prepend=0.0)
    assert gaps.max() <= 0.75 + 1e-12
    # false alarm 1e-4: mean gap within 3.9 standard errors
    assert abs(gaps.mean() - 1 / slai_true_rate(4.0)) < 3.9 * gaps.std() / math.sqrt(gaps.size)
    assert slai_true_rate(1.0) == pytest.approx(1.0524, abs=5e-5)


def test_rejected_requests_are_counted_and_not_measured() -> None:
    table = request_table(
        {
            "arrival_ps": np.array([0, 1, 2]) * PS_PER_S,
            "admit_ps": np.array([0, -1, 2]) * PS_PER_S,
            "prefill_end_ps": np.array([1, -1, 3]) * PS_PER_S,
            "first_token_ps": np.array([1, -1, 3]) * PS_PER_S,
            "finish_ps": np.array([2, -1, 4]) * PS_PER_S,
            "prompt_tokens": np.array([5, 5000, 5]),
            "output_tokens": np.array([2, 2, 2]),
            "tokens_done": np.array([2, 0, 2]),
            "status": np.array([FINISHED, REJECTED, FINISHED]),
        }
    )
    gaps = (GapGroup(0, 0, GapPairs.of(np.array([PS_PER_S, PS_PER_S]))),)
    answer = Run(table, sample_table(), gaps, {}, RunInfo("x", 4 * PS_PER_S)).to_dict("none")
    assert answer["requests"] == {
        "rejected_share": 1 / 3,
        "offered": 3,
        "accepted": 2,
        "finished": 2,
        "rejected": 1,
        "preempted": 0,
    }
    assert answer["ttft_s"]["count"] == 2
    assert any("1 of 3 requests were rejected" in w for w in answer["warnings"])


def test_a_run_that_rejected_everything_answers_without_times() -> None:
    table = request_table(
        {
            "arrival_ps": np.arange(3) * PS_PER_S,
            "prompt_tokens": np.full(3, 9999),
            "output_tokens": np.ones(3),
            "status": np.full(3, REJECTED),
            "reject_reason": np.full(3, 2),
        }
    )
    run = Run(table, sample_table(), (), {}, RunInfo("x", 3 * PS_PER_S))
    answer = run.to_dict()
    json.dumps(answer, allow_nan=False)
    assert answer["ttft_s"]["p50"] is None and answer["measured_requests"] == 0 and answer["throughput_per_s"] == 0.0
    assert answer["requests"]["rejected_share"] == 1.0 and answer["slo_attainment"]["all"] == 0.0
    assert any("3 larger than the KV cache" in text for text in answer["warnings"])
    assert "undecided" in run.summary()


def test_a_run_without_requests_answers_without_numbers() -> None:
    table = request_table({name: np.zeros(0) for name in ("arrival_ps", "prompt_tokens", "output_tokens")})
    run = Run(table, sample_table(), (), {}, RunInfo("x", 0))
    with pytest.raises(InputError, match="no requests"):
        run.verdict()


def test_bad_tables_are_refused(mm1: RunMaker) -> None:
    run = mm1(0.5, 20, 1)
    backwards = {name: column[::-1].copy() for name, column in run.requests.items()}
    with pytest.raises(InputError, match="order of arrival"):
        Run(backwards, run.samples, run.gaps, {}, run.info)
    with pytest.raises(InputError, match="unknown request column"):
        request_table({"arrival": np.zeros(1)})
    with pytest.raises(InputError, match="missing"):
        request_table({"arrival_ps": np.zeros(1)})
    with pytest.raises(InputError, match="SLO ttft_s"):
        Slo(ttft_s=-1.0)
    with pytest.raises(InputError, match="convention"):
        run.metrics(convention="vllm")


def test_summary_names_the_verdict_and_the_warnings(mm1: RunMaker) -> None:
    text = mm1(0.5, 300, 1).summary()
    assert "fcfs at 0.5 requests/s" in text and "warning: only" in text and "ttft" in text
