"""`tileq simulate`, `tileq compare` and `tileq plan --check`: documents, files, resuming, and what they refuse."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import tileq as tq
from tileq.cli.run import run
from tileq.experiments import parse_rates
from tileq.policy_text import parse_policy
from tileq_theory.errors import InputError

Capture = pytest.CaptureFixture[str]
SMALL = ["--class", "64:8", "--requests", "150", "--replications", "2"]
STATISTICS = ("ttft_s", "tbt_s", "tpot_s", "e2e_s")
COLUMNS = ("mean", "p50", "p90", "p99", "max")


def document(arguments: list[str], capsys: Capture) -> dict[str, Any]:
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    parsed: dict[str, Any] = json.loads(printed.out, parse_constant=pytest.fail)
    return parsed


def complaint(arguments: list[str], capsys: Capture) -> str:
    assert run(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and len(printed.err.splitlines()) == 1, printed
    return printed.err


# -------------------------------------------------------------------- simulate


def test_the_document_of_a_simulation(capsys: Capture) -> None:
    d = document(["simulate", *SMALL, "--load", "0.6", "--seed", "5"], capsys)
    for name in STATISTICS:
        times = d[name]
        assert set(COLUMNS) <= set(times)
        assert 0 < times["p50"] <= times["p90"] <= times["p99"] <= times["max"]
        low, high = d["ci95"][name]["mean"]
        assert low <= times["mean"] <= high
    assert d["schema_version"] == 1 and d["policy"] == "sarathi" and d["seed"] == 5 and d["replications"] == 2
    assert d["stable"] in ("stable", "unstable", "undecided")
    low, high = d["ci95"]["throughput_per_s"]["mean"]
    assert low <= d["throughput_per_s"] <= high
    assert d["utilisation"] == pytest.approx(0.6)
    assert d["rate_per_s"] == pytest.approx(0.6 * d["setting"]["capacity_per_s"])
    assert d["requests"]["finished"] + d["requests"]["rejected"] == d["requests"]["offered"] == 300
    # what is simulated is the plan
    plan = tq.plan(classes=["64:8"])
    assert (d["setting"]["token_budget"], d["setting"]["max_num_seqs"]) == (plan.token_budget, plan.tile.max_num_seqs)
    assert d["setting"]["kv_tokens"] == plan.setting.kv_tokens


def test_a_seed_decides_everything_and_python_says_the_same(capsys: Capture) -> None:
    arguments = ["simulate", "--policy", "slai:order=spf:theta=10", "--paying", "0.3", *SMALL, "--rate", "300"]
    one, again = document(arguments, capsys), document(arguments, capsys)
    assert one == again
    other = document([*arguments, "--seed", "1"], capsys)
    assert other["ttft_s"] != one["ttft_s"]
    same = tq.simulate(
        "slai:order=spf:theta=10", rate=300.0, paying=0.3, classes=["64:8"], requests=150, replications=2
    )
    assert same.to_dict() == one
    assert len(one["tiers"]) == 2


def test_overload_is_a_verdict(capsys: Capture) -> None:
    d = document(["simulate", "--class", "64:8", "--requests", "9000", "--replications", "1", "--load", "1.5"], capsys)
    assert d["stable"] == "unstable"
    assert d["throughput_per_s"] < d["setting"]["capacity_per_s"] * 1.05


def test_a_run_is_saved_exported_and_read_again(tmp_path: Path, capsys: Capture) -> None:
    from tileq_engine.run import Run

    saved, rows, table = tmp_path / "run.npz", tmp_path / "run.csv", tmp_path / "run.parquet"
    one = [*SMALL[:-1], "1"]
    d = document(["simulate", *one, "--save", str(saved), "--export", str(rows)], capsys)
    document(["simulate", *SMALL, "--export", str(table)], capsys)
    loaded = Run.load(saved)
    assert loaded.count == 150
    again = tmp_path / "again.npz"
    loaded.save(again)
    assert again.read_bytes() == saved.read_bytes()
    with rows.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 150
    assert sum(int(line["output_tokens"]) for line in lines) == 150 * 8
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(table).num_rows == 150
    # the saved run is the first replication: it tells the same times
    assert loaded.to_dict()["ttft_s"] == d["ttft_s"] and loaded.finished == d["requests"]["finished"] == 150


def test_results_are_resumed_from_their_folder(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "deep" / "results"
    arguments = ["simulate", *SMALL, "--folder", str(folder)]
    first = document(arguments, capsys)
    kept = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert len(kept) >= 3  # a manifest and a point a replication
    victim = next(file for file in kept if "manifest" not in file.name)
    victim.unlink()  # as after a kill: the missing point is computed again, and nothing else changes
    assert document(arguments, capsys) == first
    points = {file: text for file, text in kept.items() if "manifest" not in file.name}
    assert {file: file.read_bytes() for file in points} == points
    assert "seed" in complaint([*arguments, "--seed", "9"], capsys)


# -------------------------------------------------------------------- compare


def test_the_document_of_a_comparison(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "kept"
    arguments = ["compare", "--policies", "sarathi,vllm_v0", "--rates", "200,400", *SMALL, "--folder", str(folder)]
    d = document(arguments, capsys)
    assert d["schema_version"] == 1 and d["rates_per_s"] == [200.0, 400.0]
    assert {(row["policy"], row["rate_per_s"]) for row in d["rows"]} == {
        (name, rate) for name in ("sarathi", "vllm_v0") for rate in (200.0, 400.0)
    }
    for row in d["rows"]:
        assert row["stable"] in ("stable", "unstable", "undecided")
        assert 0 < row["ttft_p50_s"] <= row["ttft_p99_s"] and 0 < row["tbt_p50_s"] <= row["tbt_p99_s"]
    assert document(arguments, capsys) == d  # from the folder
    # another policy joins what is there; the old rows stay
    more = document([*arguments[:2], "sarathi,vllm_v0,static", *arguments[3:]], capsys)
    assert [row for row in more["rows"] if row["policy"] != "static"] == d["rows"]


def test_a_policy_alone_and_compared_is_the_same(capsys: Capture) -> None:
    """Common random numbers: a comparison runs the very requests of a simulation with its seed."""
    alone = document(["simulate", *SMALL, "--rate", "300"], capsys)
    row = document(["compare", "--policies", "sarathi", "--rates", "300", *SMALL], capsys)["rows"][0]
    assert row["ttft_p50_s"] == alone["ttft_s"]["p50"] and row["tbt_p99_s"] == alone["tbt_s"]["p99"]


def test_the_text_says_what_happened(capsys: Capture) -> None:
    assert run(["simulate", *SMALL]) == 0
    text = capsys.readouterr().out
    for word in ("sarathi", "64:8", "throughput", "TTFT", "TBT", "TPOT", "end to end", "of capacity", "seed 0"):
        assert word in text
    assert text.count("requests measured") == 1  # one note, though every replication has its own number
    assert run(["compare", "--policies", "sarathi,orca", "--rates", "300", *SMALL]) == 0
    text = capsys.readouterr().out
    assert "orca" in text and "At 300 requests/s" in text
    assert max(map(len, text.splitlines())) <= 80


# -------------------------------------------------------------------- plan --check


def test_a_plan_is_checked(capsys: Capture) -> None:
    d = document(["plan", "--class", "256:64", "--check"], capsys)
    check = d["check"]
    assert set(check["policies"]) == {"rad_general", "sarathi"}
    for found in check["policies"].values():
        low, high = found["ci95"]
        assert low <= found["rate_per_s"] <= high and found["reason"] is None
        assert 0.97 <= found["of_capacity"] <= 1.01
    assert check["capacity_of_these_requests_per_s"] == pytest.approx(check["capacity_per_s"], rel=0.05)


def test_a_check_of_few_residents_comes_out_at_what_is_attainable() -> None:
    plan = tq.plan(gpu="rtx-4090", classes=["geometric(1000,4000):geometric(200,800)"])
    found = plan.check(requests=3000)["policies"]["sarathi"]
    forecast = plan.to_dict()["budget"]["attainable_rate_per_s"] / plan.rate_per_s
    assert forecast < 0.97
    assert found["of_capacity"] == pytest.approx(forecast, abs=0.03)


def test_a_check_counts_no_request_twice_where_many_finish_at_once() -> None:
    """Batches that finish hundreds of requests at an instant: what ended as the window opens is not in it."""
    for found in tq.plan(classes=["1:1"]).check()["policies"].values():
        assert found["of_capacity"] == pytest.approx(1.0, abs=1e-6)


def test_a_check_that_cannot_be_made_says_why(capsys: Capture) -> None:
    found = tq.plan(classes=["256:64"]).check(requests=100)["policies"]["sarathi"]
    assert found["rate_per_s"] is None and found["ci95"] is None and found["of_capacity"] is None
    assert "finished" in found["reason"] and "\n" not in found["reason"]


# -------------------------------------------------------------------- what is refused


REFUSED = {
    "an unknown policy": (["simulate", "--policy", "sarathy"], ["'sarathy'", "did you mean sarathi"]),
    "an unknown setting": (["simulate", "--policy", "sarathi:ordr=spf"], ["'ordr'", "did you mean order"]),
    "half a setting": (["simulate", "--policy", "sarathi:order"], ["name:parameter=value"]),
    "a setting's value": (["simulate", "--policy", "slai:theta=x"], ["theta is 'x'"]),
    "two loads": (["simulate", "--rate", "3", "--load", "0.5"], ["rate 3", "load 0.5", "one of them"]),
    "no rate": (["simulate", "--rate", "0"], ["rate is 0"]),
    "an endless rate": (["simulate", "--rate", "inf"], ["'inf' is not a finite number"]),
    "no load": (["simulate", "--load", "0"], ["load is 0"]),
    "no requests": (["simulate", "--requests", "0"], ["requests is 0"]),
    "no replications": (["simulate", "--replications", "0"], ["replications is 0"]),
    "a seed below 0": (["simulate", "--seed", "-1"], ["seed is -1"]),
    "a share above 1": (["simulate", "--paying", "1.5"], ["paying is 1.5"]),
    "half a block": (["simulate", "--kv-tokens", "10"], ["--kv-tokens is 10", "block of 16"]),
    "memory below any request": (
        ["simulate", "--kv-tokens", "32", "--class", "64:8"],
        ["kv-tokens is 32", "nothing"],
    ),
    "no budget": (["simulate", "--token-budget", "0"], ["--token-budget is 0"]),
    "a kind of file": (["simulate", "--export", "x.txt"], ["--export is 'x.txt'", ".csv or .parquet"]),
    "a kind of run": (["simulate", "--save", "x.txt"], ["--save is 'x.txt'", ".npz"]),
    "no folder for it": (["simulate", "--save", "no/such/x.npz"], ["no/such", "not a folder"]),
    "a picture's kind": (["simulate", "--plot", "x.gif"], [".png, .svg, .pdf"]),
    "a folder that is a file": (["simulate", "--folder", __file__], ["cannot be made"]),
    "no policy": (["compare", "--policies", " ,"], ["no policy was given"]),
    "one unknown policy of two": (["compare", "--policies", "sarathi,nope"], ["'nope' is unknown"]),
    "rates backwards": (["compare", "--rates", "3:1:1"], ["first:last:step"]),
    "rates in words": (["compare", "--rates", "a,b"], ["'a,b'"]),
    "rates without end": (["compare", "--rates", "1:1000:0.1"], ["at most 200"]),
    "a rate of 0 among rates": (["compare", "--rates", "0,1"], ["--rates is 0"]),
    "a limit of 0": (["compare", "--slo-ttft", "0"], ["--slo-ttft is 0"]),
    "a budget that its slots overfill": (
        ["simulate", "--policy", "vllm_v1", "--token-budget", "8", "--max-num-seqs", "9"],
        ["--token-budget is 8", "--max-num-seqs 9"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str, capsys: Capture) -> None:
    arguments, says = REFUSED[case]
    line = complaint(arguments, capsys)
    assert line.startswith("tileq: error: ")
    for text in says:
        assert text in line


def test_a_smaller_budget_leaves_fewer_slots(capsys: Capture) -> None:
    d = document(["simulate", "--policy", "vllm_v1", "--token-budget", "16", *SMALL], capsys)
    assert d["setting"]["token_budget"] == d["setting"]["max_num_seqs"] == 16


def test_policies_and_rates_as_text() -> None:
    made = parse_policy("nested_wait:boundaries=8+64:thresholds=4+2+1")
    assert made.name == "nested_wait"
    assert parse_policy("wait:thresholds=3+").name == "wait"
    assert parse_policy(" vllm-v1 : order = priority".replace(" ", "")).name.startswith("vllm_v1")
    assert parse_rates("1:2:0.25") == (1.0, 1.25, 1.5, 1.75, 2.0)
    with pytest.raises(InputError, match="takes its tiles from a plan"):
        parse_policy("rad_general")


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_help_fits_a_tall_screen(command: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 60  # some thirty options, a line each
    assert max(map(len, lines)) <= 80
    assert any(line.startswith(f"Example: tileq {command}") for line in lines)


def test_no_capacity_beyond_what_theory_allows(capsys: Capture) -> None:
    """So few requests meet the limit however fast they come; the capacity is still a rate that can be sustained."""
    d = document(["compare", "--policies", "sarathi", "--rates", "300", "--slo-ttft", "0.5", *SMALL], capsys)
    (found,) = next(iter(d["capacity"].values())).values()
    assert 0.5 <= found["rate_per_s"] / d["setting"]["capacity_per_s"] <= 1
    assert "no policy is stable" in found["criterion"]
