"""`tileq plan --replicas --disaggregate`: the section of pools, its words, and bad input."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tileq as tq
from tileq.cli.run import run


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["plan", *arguments, "--json"]) == 0
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    return parsed


def test_the_section_of_pools(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--replicas", "8", "--disaggregate", "--class", "4096:256", "--tbt", "0.03", "--link", "25"]
    given = document(arguments, capsys)
    assert given == tq.plan(nodes=8, disaggregate=True, classes=["4096:256"], tbt=0.03, link=25).to_dict()
    apart = given["disaggregation"]
    assert apart["split"]["prefill"] + apart["split"]["decode"] == apart["nodes"] == 8
    assert apart["rate_per_s"] == max(apart["rates_by_prefill_nodes"])
    assert apart["mixed_rate_per_s"] == pytest.approx(given["rate_per_s"], rel=1e-9)
    assert apart["rate_per_s"] <= apart["relaxed"]["rate_per_s"] * (1 + 1e-9)
    assert apart["kkt"]["ok"] and all(pool["kkt"]["ok"] for pool in apart["pools"].values())
    # the binding pool is full, and one more node of it helps; of the other it does not
    full = apart["binding"].split()[0]
    assert apart["pools"][full]["load"] == pytest.approx(1)
    assert apart["pools"][full]["one_more_per_s"] > 0
    assert apart["link"]["transfer_s"] == pytest.approx(4096 * apart["link"]["bytes_per_token"] / 25e9)
    best = max(apart["rate_per_s"], apart["mixed_rate_per_s"], apart["aggregated_rate_per_s"])
    winner = {"mixed": "mixed_rate_per_s", "aggregated": "aggregated_rate_per_s", "disaggregated": "rate_per_s"}
    assert apart[winner[apart["winner"]]] == pytest.approx(best, rel=1e-6)


def test_a_rate_says_how_many(capsys: pytest.CaptureFixture[str]) -> None:
    apart = document(["--disaggregate", "--class", "4096:256", "--rate", "60"], capsys)["disaggregation"]
    need = apart["nodes_needed"]
    assert apart["nodes"] == need["prefill"] + need["decode"]
    assert apart["utilisation"] <= 0.9 + 1e-9
    assert apart["rate_per_s"] >= 60 / 0.9 * (1 - 1e-9)


def test_a_slow_link_binds_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["plan", "--replicas", "4", "--disaggregate", "--class", "4096:256", "--link", "1", "--fabric", "2"]) == 0
    )
    printed = capsys.readouterr().out
    assert "the link binds" in printed
    assert "1 GB/s a node, 2 GB/s in all" in " ".join(printed.split())
    assert "links 100% used" in " ".join(printed.split())


def test_replicas_are_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert document(["--replicas", "3"], capsys) == document(["--nodes", "3"], capsys)


def test_cached_prompts_in_pools(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--replicas", "8", "--disaggregate", "--class", "4096:256"]
    plain = document(arguments, capsys)["disaggregation"]
    cached = document([*arguments, "--prefix-cache", "50%"], capsys)["disaggregation"]
    assert cached["rate_per_s"] > plain["rate_per_s"]
    assert cached["split"]["prefill"] < plain["split"]["prefill"]
    assert cached["link"]["bytes_per_request"] == plain["link"]["bytes_per_request"], "the whole prompt's KV travels"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--disaggregate"], "disaggregate needs 2 nodes or more to split, or a rate"),
        (["--disaggregate", "--replicas", "2", "--link", "0"], "link is 0.0; expected a number above 0"),
        (["--disaggregate", "--replicas", "2", "--fabric", "-1"], "fabric is -1.0"),
        (["--link", "10"], "--link is 10.0 without --disaggregate"),
        (["--disaggregate", "--replicas", "200000"], "at most 100000"),
        (["--replicas", "1.5"], "not a whole number"),
        (["--replicas", "0"], "--replicas is 0"),
        (["--disaggregate", "--rate", "1000", "--fabric", "1"], "the shared fabric carries"),
    ],
)
def test_bad_input_gets_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert words in printed.err
