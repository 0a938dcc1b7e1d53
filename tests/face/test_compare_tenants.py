"""`tileq compare` with tenants and with a prefix cache: what each got under each policy, in table and document."""

from __future__ import annotations

import json

import pytest

import tileq as tq
from tileq.cli.run import run

TWO = ["--class", "512:64", "--tenant", "gold=3@0.5", "--tenant", "free=1@0.5"]
FEW = ["--requests", "1200", "--replications", "2"]


def test_shares_and_starvation_of_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["compare", "--policies", "sarathi,vtc", "--rates", "110", *TWO, *FEW]
    assert run([*arguments, "--json"]) == 0
    given = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    python = tq.compare(
        "sarathi,vtc", [110.0], classes=["512:64"], tenants=["gold=3@0.5", "free=1@0.5"], requests=1200,
        replications=2, progress=False,
    )  # fmt: skip
    assert given == python.to_dict()
    assert given["setting"]["tenants"]["names"] == ["gold", "free"]
    rows = {row["policy"]: row for row in given["rows"]}
    for name, row in rows.items():
        whole = next(d for d in given["results"] if d["policy"] == name)["tenants"]
        assert row["jain_index"] == whole["jain_index"] and row["share_error"] == whole["share_error"]
        assert row["starved_max_s"] == whole["starved_s"]["max"]
        assert set(row["tenants"]) == {"gold", "free"}
        assert sum(t["service_share"] for t in row["tenants"].values()) == pytest.approx(1)
        assert row["tenants"]["gold"]["weight"] == 3
    gold = {name: row["tenants"]["gold"] for name, row in rows.items()}
    # far above capacity both wait at all times: first come first served gives halves, the counter three to one
    assert gold["sarathi"]["contended_share"] == pytest.approx(0.5, abs=0.06)
    assert gold["vtc"]["contended_share"] == pytest.approx(0.75, abs=0.05)
    assert rows["vtc"]["jain_index"] > 0.98 > rows["sarathi"]["jain_index"]
    assert "jain_index" in python.theory.table() and "tenants" not in python.theory.table()
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines()]
    assert ["policy", "Jain", "tenant", "weight", "service", "contended", "fair", "starved", "TTFT", "p99"] in lines
    assert any(line[:1] == ["free"] and "25%" in line for line in lines)


def test_prefixes_found_by_every_policy(capsys: pytest.CaptureFixture[str]) -> None:
    talks = "turns=5:system=256:user=32:answer=64:think=10"
    arguments = ["compare", "--conversations", talks, "--prefix-cache", "--policies", "sarathi,sglang", "--rates", "20"]
    assert run([*arguments, "--requests", "300", "--replications", "1", "--json"]) == 0
    given = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert given["setting"]["prefix_cache"] is True
    assert all(row["hit_rate"] > 0.3 for row in given["rows"])
    assert run([*arguments, "--requests", "300", "--replications", "1"]) == 0
    assert "prefixes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tenant", "gold=3@0.5", "--tenant", "free=1"], "has no share of the requests"),
        (["--tenant", "gold=-3@0.5", "--tenant", "free=1@0.5"], "weight"),
        (["--tenant", "gold=0@0.5", "--tenant", "free=0@0.5"], "above 0"),
        (["--tenant", "gold=1:0@0.5", "--tenant", "free=1@0.5"], "at least one request"),
        (["--token-prices", "1:3"], "no tenant"),
        (["--prefix-cache"], "tells no prompt's blocks"),
        (["--backpressure", "rejct:waiting=4"], "did you mean reject"),
        (["--watermark", "2"], "watermark is 2"),
        (["--control-tbt", "0"], "is 0"),
    ],
)
def test_bad_input_gets_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compare", "--class", "512:64", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert words in printed.err


def test_everything_else_of_simulate_reaches_the_engine() -> None:
    answer = tq.compare(
        "sarathi", [60.0], classes=["512:64"], requests=300, replications=1, backpressure="reject:waiting=2",
        reservation="conservative", watermark=0.05, control_tbt=0.02, progress=False,
    )  # fmt: skip
    setting = answer.to_dict()["setting"]
    assert setting["reservation"] == "conservative" and setting["watermark"] == 0.05
    assert setting["backpressure"]["action"] == "reject" and setting["control"]["tbt_s"] == 0.02
