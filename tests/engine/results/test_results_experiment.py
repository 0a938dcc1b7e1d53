"""Replications and sweeps: common random numbers, parallel equals serial, resume after a kill, no mixing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tileq_engine.experiment import Replications, combine_documents, replicate, statistic
from tileq_engine.experiment_parallel import run_tasks
from tileq_engine.experiment_store import ResultStore
from tileq_engine.experiment_streams import Streams
from tileq_engine.run import Run
from tileq_engine.sweep import Scenario, sweep
from tileq_theory.errors import InputError

RunMaker = Callable[..., Run]


def unit_requests(streams: Streams, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrival moments at rate 1 and service times of mean 1."""
    arrivals = np.cumsum(streams.rng("arrivals").exponential(1.0, count))
    return arrivals, streams.rng("lengths").exponential(1.0, count)


@pytest.fixture(scope="module")
def simulate(server: RunMaker) -> Callable[[Scenario], Run]:
    def one(scenario: Scenario) -> Run:
        arrivals, service = unit_requests(scenario.streams, 400)
        speed = {"slow": 1.0, "fast": 2.0}.get(scenario.policy_name, 1.0)
        return server(arrivals / scenario.rate_per_s, service / speed, policy=scenario.policy_name)

    return one


def test_streams_are_independent_of_each_other_and_reproducible() -> None:
    draws = {
        (seed, r, purpose): Streams(seed, r).rng(purpose).random()
        for seed in (0, 1)
        for r in (0, 1, 2)
        for purpose in ("arrivals", "lengths", "policy")
    }
    assert len(set(draws.values())) == len(draws)
    assert all(Streams(s, r).rng(p).random() == value for (s, r, p), value in draws.items())
    assert Streams(5, 1).integer("x") == Streams(5, 1).integer("x") != Streams(5, 2).integer("x")
    # a longer run begins with the same requests
    assert np.array_equal(unit_requests(Streams(3), 10)[0], unit_requests(Streams(3), 20)[0][:10])


@pytest.mark.parametrize("seed", [-1, 1.5, True])
def test_a_seed_that_is_no_whole_number_is_refused(seed: Any) -> None:
    with pytest.raises((InputError, TypeError), match=r"seed|type"):
        Streams(seed)


def test_policies_see_the_same_requests_and_rates_the_same_on_another_clock() -> None:
    seen: dict[tuple[str, float, int], tuple[np.ndarray, np.ndarray]] = {}

    def spy(scenario: Scenario) -> dict[str, Any]:
        arrivals, service = unit_requests(scenario.streams, 50)
        seen[scenario.policy_name, scenario.rate_per_s, scenario.streams.replication] = arrivals, service
        return {"x": 1.0}

    sweep(spy, ["a", "b"], [0.5, 1.0], replications=2, backend="serial")
    assert len(seen) == 8
    for r in (0, 1):
        first = seen["a", 0.5, r]
        for key, (arrivals, service) in seen.items():
            if key[2] == r:
                assert np.array_equal(arrivals, first[0]) and np.array_equal(service, first[1])
    assert not np.array_equal(seen["a", 0.5, 0][0], seen["a", 0.5, 1][0])


def test_parallel_equals_serial(simulate: Callable[[Scenario], Run]) -> None:
    one = sweep(simulate, ["slow", "fast"], [0.4, 0.6], replications=2, backend="serial")
    two = sweep(simulate, ["slow", "fast"], [0.4, 0.6], replications=2, backend="threads", workers=2)
    assert one.documents == two.documents


def test_common_random_numbers_decide_what_independent_runs_cannot(simulate: Callable[[Scenario], Run]) -> None:
    grid = sweep(simulate, ["slow", "fast"], [0.5], replications=5, backend="serial")
    paired = grid.difference("e2e_s.mean", "slow", "fast", 0.5)
    apart = grid.interval("e2e_s.mean", "slow", 0.5).half_width + grid.interval("e2e_s.mean", "fast", 0.5).half_width
    assert paired.low > 0 and paired.half_width < apart
    assert (
        grid.interval("e2e_s.mean", "slow", 0.5, family=True).half_width
        > grid.interval("e2e_s.mean", "slow", 0.5).half_width
    )


def test_replications_cover_the_mean_of_mm1(mm1: RunMaker) -> None:
    hits, groups = 0, 40
    for group in range(groups):

        def one(streams: Streams) -> Run:
            return mm1(0.5, 1500, streams.integer("all"))

        hits += replicate(one, 5, seed=group, backend="serial").interval("e2e_s.mean").contains(2.0)
    assert stats.binom.cdf(hits, groups, 0.92) > 1e-4  # claimed .95, finite runs start empty: .92; false alarm 1e-4


def test_combined_document_keeps_the_contract(simulate: Callable[[Scenario], Run]) -> None:
    grid = sweep(simulate, ["slow"], [0.5], replications=4, backend="serial")
    documents = grid.at("slow", 0.5)
    answer = combine_documents(documents)
    for name in ("ttft_s", "tbt_s", "tpot_s", "e2e_s"):
        assert answer[name]["mean"] == pytest.approx(np.mean([d[name]["mean"] for d in documents]))
        assert answer[name]["max"] == max(d[name]["max"] for d in documents)
        low, high = answer["ci95"][name]["p50"]
        assert low <= answer[name]["p50"] <= high
    assert answer["requests"]["offered"] == 1600
    assert answer["replications"] == 4 and answer["stable"] in ("stable", "undecided")
    json.dumps(answer, allow_nan=False)
    with pytest.raises(InputError, match="no replications"):
        combine_documents([])


def test_statistics_are_found_by_path_or_named_in_the_error() -> None:
    document = {"ttft_s": {"p50": 0.5, "p90": None}, "tiers": {"v1.0": {"x": 2}}, "stable": "stable"}
    assert statistic(document, "tiers/v1.0/x") == 2.0
    assert np.isnan(statistic(document, "ttft_s.p90"))
    with pytest.raises(InputError, match=r"'p95' is not one of p50, p90"):
        statistic(document, "ttft_s.p95")
    with pytest.raises(InputError, match="path of a number"):
        statistic(document, "stable")


CHILD = """
import sys, time
from tileq_engine.sweep import sweep

def slow(scenario):
    time.sleep(0.15)
    return {"value": scenario.rate_per_s * 10 + scenario.streams.replication}

sweep(slow, ["a"], [1.0, 2.0, 3.0], replications=4, backend=sys.argv[2], folder=sys.argv[1], workers=2)
"""


def test_processes_save_what_a_serial_sweep_computes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), "joblib"], env=environment, check=True, timeout=120)

    def never(scenario: Scenario) -> dict[str, Any]:
        raise AssertionError("every point is there already")

    stored = sweep(never, ["a"], [1.0, 2.0, 3.0], replications=4, backend="serial", folder=tmp_path)
    fresh = sweep(quick, ["a"], [1.0, 2.0, 3.0], replications=4, backend="serial")
    values = [{k: [d["value"] for d in v] for k, v in grid.documents.items()} for grid in (stored, fresh)]
    assert values[0] == values[1]


def quick(scenario: Scenario) -> dict[str, Any]:
    return {"value": scenario.rate_per_s * 10 + scenario.streams.replication}


@pytest.mark.parametrize("backend", ["serial", "threads"])
def test_a_killed_sweep_resumes_and_computes_only_what_is_missing(tmp_path: Path, backend: str) -> None:
    folder = tmp_path / "results"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(folder), backend], env=environment)
    deadline = time.monotonic() + 60
    while len(list(folder.glob("point-*.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = {p.name: p.stat().st_mtime_ns for p in folder.glob("point-*.json")}
    assert 3 <= len(before) < 12
    computed = []

    def counted(scenario: Scenario) -> dict[str, Any]:
        computed.append(scenario.point)
        return quick(scenario)

    resumed = sweep(counted, ["a"], [1.0, 2.0, 3.0], replications=4, backend="serial", folder=folder)
    assert len(computed) == 12 - len(before)
    assert all((folder / name).stat().st_mtime_ns == when for name, when in before.items())
    whole = sweep(quick, ["a"], [1.0, 2.0, 3.0], replications=4, backend="serial")
    assert {k: [d["value"] for d in v] for k, v in resumed.documents.items()} == {
        k: [d["value"] for d in v] for k, v in whole.documents.items()
    }


def test_a_failed_point_leaves_the_others(tmp_path: Path) -> None:
    def fails(scenario: Scenario) -> dict[str, Any]:
        if scenario.rate_per_s == 3.0:
            raise InputError("rate 3 is bad")
        return quick(scenario)

    with pytest.raises(InputError, match="rate 3 is bad"):
        sweep(fails, ["a"], [1.0, 2.0, 3.0], backend="serial", folder=tmp_path)
    assert len(list(tmp_path.glob("point-*.json"))) == 2


class Tuned:
    """A policy with a configuration."""

    def __init__(self, budget: int) -> None:
        self.name, self.budget = "tuned", budget

    def to_dict(self) -> dict[str, int]:
        return {"budget": self.budget}


def test_a_changed_configuration_is_an_error_and_mixes_nothing(tmp_path: Path) -> None:
    folder, options = tmp_path / "results", {"backend": "serial", "seed": 1, "settings": {"requests": 100}}
    sweep(quick, [Tuned(512)], [1.0], folder=folder, **options)
    files = {p: p.read_bytes() for p in folder.iterdir()}
    changes: list[tuple[dict[str, Any], str]] = [
        ({"policies": [Tuned(256)]}, r"policies\.tuned\.budget is 256 now but was 512"),
        ({"seed": 2}, "seed is 2 now but was 1"),
        ({"settings": {"requests": 200}}, r"settings\.requests is 200 now but was 100"),
        ({"metrics": {"rule": "none"}}, r"metrics\.rule"),
    ]
    for change, message in changes:
        arguments = {"policies": [Tuned(512)], **options, **change}
        with pytest.raises(InputError, match=message):
            sweep(quick, arguments.pop("policies"), [1.0], folder=folder, **arguments)
    assert {p: p.read_bytes() for p in folder.iterdir()} == files


def test_more_rates_and_policies_may_join_a_folder(tmp_path: Path) -> None:
    sweep(quick, ["a"], [1.0], backend="serial", folder=tmp_path)
    grid = sweep(quick, ["a", "b"], [1.0, 2.0], replications=2, backend="serial", folder=tmp_path)
    assert len(list(tmp_path.glob("point-*.json"))) == 8 and len(grid.documents) == 4
    sweep(quick, ["a"], [1.0], backend="serial", folder=tmp_path)


def test_damaged_and_foreign_folders_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    sweep(quick, ["a"], [1.0], backend="serial", folder=folder)
    (point,) = folder.glob("point-*.json")
    text = point.read_text()
    point.write_text(text[:-20])
    with pytest.raises(InputError, match="delete it to compute that point again"):
        sweep(quick, ["a"], [1.0], backend="serial", folder=folder)
    point.write_text(text.replace('"replication": 0', '"replication": 1'))
    with pytest.raises(InputError, match="another point"):
        sweep(quick, ["a"], [1.0], backend="serial", folder=folder)
    (folder / "manifest.json").write_text("{}")
    with pytest.raises(InputError, match="not a file of a Tileq experiment"):
        ResultStore(folder, {"kind": "sweep"})
    (folder / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"without manifest\.json"):
        ResultStore(folder, {"kind": "sweep"})
    with pytest.raises(InputError, match="is a file"):
        ResultStore(point, {"kind": "sweep"})


def test_full_runs_are_kept_on_request(simulate: Callable[[Scenario], Run], tmp_path: Path) -> None:
    sweep(simulate, ["slow"], [0.5], backend="serial", folder=tmp_path, save_runs=True)
    (file,) = tmp_path.glob("point-*.npz")
    assert Run.load(file).count == 400


def test_replicate_resumes(tmp_path: Path) -> None:
    calls = []

    def one(streams: Streams) -> dict[str, Any]:
        calls.append(streams.replication)
        return {"value": float(streams.replication)}

    replicate(one, 2, backend="serial", folder=tmp_path)
    answer = replicate(one, 4, backend="serial", folder=tmp_path)
    assert calls == [0, 1, 2, 3]
    assert isinstance(answer, Replications) and answer.interval("value").estimate == 1.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "joblb"}, "did you mean joblib"),
        ({"rates": []}, "rates are"),
        ({"rates": [1.0, 1.0]}, "all different"),
        ({"rates": [0.0]}, "rate is 0.0"),
        ({"rates": [float("inf")]}, "finite"),
        ({"policies": ["a", "a"]}, "given twice"),
        ({"policies": []}, "no policy"),
        ({"replications": 0}, "replications"),
        ({"workers": 0}, "workers"),
    ],
)
def test_bad_sweeps_are_refused_in_one_line(arguments: dict[str, Any], message: str) -> None:
    given = {"policies": ["a"], "rates": [1.0, 2.0], **arguments}
    with pytest.raises(InputError, match=message) as error:
        sweep(quick, given.pop("policies"), given.pop("rates"), **given)
    assert "\n" not in str(error.value)


def test_progress_is_silent_unless_asked_or_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_tasks(abs, [-1, -2], backend="serial") == [1, 2]
    silent = capsys.readouterr()
    assert silent.out == silent.err == ""
    run_tasks(abs, [-1, -2, -3], backend="serial", progress=True, title="counting")
    shown = capsys.readouterr()
    assert shown.out == "" and "counting" in shown.err and "3/3" in shown.err


def test_asking_for_what_was_not_simulated_names_what_was(simulate: Callable[[Scenario], Run]) -> None:
    grid = sweep(simulate, ["slow"], [0.5], backend="serial")
    with pytest.raises(InputError, match=r"policies slow, rates 0\.5, workloads all"):
        grid.at("fast", 0.5)
