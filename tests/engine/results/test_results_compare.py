"""Comparison of policies, on a stand-in server and on the engine's own simulator."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tileq_engine.capacity_search_criteria import Within
from tileq_engine.config import EngineConfig
from tileq_engine.experiment_engine import EngineSimulation, engine_policies, replicate_policy, simulate_policy
from tileq_engine.experiment_store import settings_of
from tileq_engine.experiment_streams import Streams, crn_requests
from tileq_engine.run import PS_PER_S, Run, Slo
from tileq_engine.run_io import identical_runs
from tileq_engine.run_paths import work_path
from tileq_engine.simulator import simulate
from tileq_engine.sweep import Scenario, sweep
from tileq_engine.sweep_compare import compare
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Fixed, Independent, Uniform
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload

RunMaker = Callable[..., Run]
TIME = IterationTime(launch_s=0.02, token_s=1e-4)
CHAT = Workload([RequestClass("chat", Independent(Uniform(20, 200), Uniform(2, 20)))])


@pytest.fixture(scope="module")
def two_servers(server: RunMaker) -> Callable[[Scenario], Run]:
    def one(scenario: Scenario) -> Run:
        streams = scenario.streams
        arrivals = np.cumsum(streams.rng("arrivals").exponential(1.0, 300)) / scenario.rate_per_s
        speed = {"slow": 1.0, "fast": 2.0}[scenario.policy_name]
        return server(arrivals, streams.rng("lengths").exponential(1.0 / speed, 300), rate_per_s=scenario.rate_per_s)

    return one


def test_a_faster_server_wins_in_rows_capacity_and_differences(
    two_servers: Callable[[Scenario], Run], tmp_path: Path
) -> None:
    answer = compare(
        ["slow", "fast"],
        [0.4, 0.7],
        two_servers,
        replications=8,
        tolerance=0.05,
        criterion=Within("e2e_s.mean", 4.0),
        backend="serial",
    )
    rows = {(r["policy"], r["rate_per_s"]): r for r in answer.rows()}
    assert rows["fast", 0.7]["e2e_p50_s"] < rows["slow", 0.7]["e2e_p50_s"]
    assert rows["fast", 0.4]["capacity_per_s"] > 1.8 * rows["slow", 0.4]["capacity_per_s"]
    gap = answer.differences("all")["fast"]["e2e_s.mean"]
    assert all(interval.high < 0 for interval in gap)
    document = answer.to_dict()
    json.dumps(document, allow_nan=False)
    assert document["baseline"] == "slow" and set(document["capacity"]["all"]) == {"slow", "fast"}
    table = answer.table().splitlines()
    assert len(table) == 5 and "capacity_per_s" in table[0] and "rejected_share" not in table[0]
    answer.plot(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_requests_of_a_workload_are_common_to_all_rates() -> None:
    slow, fast = (crn_requests(CHAT, 200, Streams(3), rate) for rate in (1.0, 4.0))
    assert np.array_equal(slow.prompt_tokens, fast.prompt_tokens)
    assert np.allclose(slow.arrival_ps, 4.0 * fast.arrival_ps, atol=4)
    assert not np.array_equal(slow.prompt_tokens, crn_requests(CHAT, 200, Streams(3, 1), 1.0).prompt_tokens)
    assert np.array_equal(crn_requests(CHAT, 50, Streams(3), 1.0).arrival_ps, slow.arrival_ps[:50])
    with pytest.raises(InputError, match="no arrival rate"):
        crn_requests(CHAT, 10, Streams(0))


def engine_run(**options: object) -> Run:
    simulation = EngineSimulation(TIME, EngineConfig(kv_tokens=8000), requests=120, mode="python", **options)  # type: ignore[arg-type]
    return simulation(Scenario("sarathi", engine_policies("sarathi")["sarathi"], 5.0, "chat", CHAT, Streams(2)))


def test_the_engines_run_becomes_a_run_that_saves_and_loads(tmp_path: Path) -> None:
    run = engine_run(slo=Slo(ttft_s=1.0, tbt_s=0.2), tiers={"paying_share": 0.3})
    assert run.info.class_names == ("chat",) and run.info.tier_names == ("standard", "paying")
    assert run.info.kv_blocks_total == 500 and run.info.policy_config["name"] == "sarathi"
    answer = run.to_dict()
    assert answer["requests"]["finished"] == 120
    assert answer["tiers"]["paying"]["measured_requests"] > 10
    assert answer["measurement"]["tbt_window_s"] is not None
    assert sum(g.gaps.count for g in run.gaps) < int((run.requests["output_tokens"] - 1).sum())
    assert identical_runs(Run.load(run.save(tmp_path / "run.npz")), run)


def test_without_a_gap_window_every_gap_is_there_and_their_sum_is_exact() -> None:
    run = engine_run(measure_gaps="all")
    gaps, table = run.merged_gaps(), run.requests
    assert gaps.count == int((table["output_tokens"] - 1).sum())
    assert gaps.sum_ps == int((table["finish_ps"] - table["first_token_ps"]).sum())
    assert gaps.max_ps == int(table["max_gap_ps"].max())


def test_one_policy_by_name_and_its_replications() -> None:
    options = {"workload": CHAT, "time": TIME, "requests": 60, "mode": "python", "seed": 3}
    one = simulate_policy("sarathi", 2.0, **options)
    assert one.info.rate_per_s == 2.0 and one.info.policy == "sarathi" and one.finished == 60
    many = replicate_policy("sarathi", 2.0, replications=3, backend="serial", **options)
    assert many.documents[0]["e2e_s"] == one.to_dict()["e2e_s"]
    assert many.interval("e2e_s.mean").count == 3
    timed = simulate_policy("sarathi", **{**options, "workload": CHAT.with_rate(4.0)})
    assert timed.info.rate_per_s == 4.0
    with pytest.raises(InputError, match="rate_per_s"):
        simulate_policy("sarathi", -1.0, **options)


@pytest.mark.parametrize("convention", ["engine", "paper"])
@pytest.mark.parametrize("stop_s", [None, 20.0])
def test_work_rebuilt_from_the_table_follows_the_simulators_own_count(convention: str, stop_s: float | None) -> None:
    asked = crn_requests(CHAT, 300, Streams(6), 12.0)
    config = EngineConfig(convention=convention, stop_time_s=stop_s, token_budget=256)
    run = Run.of(simulate(asked, engine_policies("sarathi")["sarathi"], TIME, config, mode="python"))
    counted = run.samples["work_tokens"]
    rebuilt = work_path(run, run.samples["start_ps"])
    # tokens are counted when their iteration ends and rebuilt evenly before that: less than one batch on average
    assert abs(float((rebuilt - counted).mean())) < 256
    # and never further apart than the work of the residents
    residents = run.samples["running"] * (200 + 20)
    assert bool((np.abs(rebuilt - counted) <= residents + 256).all())


def test_slai_arrivals_state_their_true_rate() -> None:
    run = engine_run(arrivals="slai")
    assert run.info.rate_per_s == pytest.approx(5.0 * 1.0524, rel=1e-4)
    gaps = np.diff(run.requests["arrival_ps"], prepend=0)
    assert gaps.max() <= 3 / 5.0 * PS_PER_S + 1


def test_engine_policies_by_name_by_object_and_by_mapping() -> None:
    named = engine_policies({"small": "sarathi", "orca": engine_policies("orca")["orca"]})
    assert list(named) == ["small", "orca"] and named["small"].name == "sarathi"
    with pytest.raises(InputError, match="given twice"):
        engine_policies(["orca", "orca"])
    with pytest.raises(InputError):
        engine_policies(["sarati"])


def test_a_folder_knows_the_engines_configuration(tmp_path: Path) -> None:
    policies = engine_policies(["sarathi"])

    def run_with(requests: int) -> None:
        simulation = EngineSimulation(TIME, requests=requests, mode="python")
        sweep(simulation, policies, [2.0], {"chat": CHAT}, backend="serial", folder=tmp_path / "results")

    run_with(40)
    with pytest.raises(InputError, match=r"settings\.requests is 50 now but was 40"):
        run_with(50)
    at = partial(EngineSimulation(TIME, requests=40).at_rate, policy=policies["sarathi"], workload=CHAT)
    pinned = settings_of(at)
    assert pinned["of"]["requests"] == 40 and pinned["options"]["policy"]["name"] == "sarathi"
    assert settings_of(len) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [({"arrivals": "poisson"}, "arrivals is"), ({"measure_gaps": "some"}, "measure_gaps is")],
)
def test_bad_simulations_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EngineSimulation(TIME, **options)  # type: ignore[arg-type]


def test_compare_says_what_it_lacks(two_servers: Callable[[Scenario], Run]) -> None:
    with pytest.raises(InputError, match="iteration time and a workload"):
        compare(["sarathi"], [1.0])
    with pytest.raises(InputError, match="baseline is 'rad'"):
        compare(["slow"], [0.5], two_servers, replications=1, baseline="rad", backend="serial")


def test_fixed_lengths_meet_the_closed_form_of_one_request_at_a_time() -> None:
    # one request alone: 100 prompt tokens in one iteration, then 4 decodes; far apart, so nobody waits
    lone = Workload([RequestClass("lone", Independent(Fixed(100), Fixed(5)))])
    simulation = EngineSimulation(TIME, requests=30, mode="python")
    run = simulation(Scenario("sarathi", engine_policies("sarathi")["sarathi"], 0.01, "lone", lone, Streams(4)))
    answer = run.to_dict("none")
    assert answer["ttft_s"]["p50"] == pytest.approx(0.02 + 0.01)
    assert answer["tpot_s"]["p99"] == pytest.approx(0.02 + 1e-4)
