"""Tenants, reservations, backpressure and the TBT controller from the command: what they do, and their bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tileq as tq
from tileq.cli.run import run
from tileq.sharing import parse_backpressure, parse_prices, parse_tenants
from tileq.traffic import make_traffic
from tileq_theory.errors import InputError

SMALL = ["--requests", "400", "--replications", "1", "--class", "256:64"]


def answer(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """Return the document of `tileq simulate` with these options."""
    assert run(["simulate", *options, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def complaint(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Return the one line on standard error of a call that is refused."""
    assert run(["simulate", *options]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_tenants_divide_the_requests_and_get_their_shares(capsys: pytest.CaptureFixture[str]) -> None:
    tenants = ["--tenant", "gold=3@0.5", "--tenant", "free=1@0.5"]
    d = answer(capsys, *SMALL, "--policy", "vtc", "--load", "4", *tenants)
    found = d["tenants"]
    assert list(found["each"]) == list(d["classes"]) == ["gold", "free"]
    gold, free = found["each"]["gold"], found["each"]["free"]
    assert gold["fair_share"] == pytest.approx(0.75)
    assert gold["contended_share"] == pytest.approx(0.75, abs=0.02)
    assert 0.98 < found["jain_index"] <= 1 and found["share_error"] < 0.02
    assert gold["requests"] + free["requests"] == 400
    assert gold["ttft_s"]["p50"] < free["ttft_s"]["p50"]
    assert d["setting"]["tenants"]["weights"] == [3.0, 1.0]
    assert d["bottlenecks"]["causes"]


def test_classes_are_tenants_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    two = ["--class", "chat=256:64@1", "--class", "code=512:32@1", "--requests", "300", "--replications", "1"]
    d = answer(capsys, *two, "--policy", "vtc", "--load", "3", "--tenant", "code=2:8")
    assert d["setting"]["tenants"]["names"] == ["chat", "code"]
    assert d["setting"]["tenants"]["weights"] == [1.0, 2.0]
    assert d["setting"]["tenants"]["quotas"] == [None, 8]
    line = complaint(capsys, *two, "--tenant", "cod=2")
    assert "tenant 'cod' is unknown; did you mean code?" in line


def test_a_plain_run_names_its_bottlenecks_and_has_no_tenants(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SMALL, "--load", "3")
    assert "tenants" not in d and "tenants" not in d["setting"]
    found = d["bottlenecks"]
    assert found["causes"] and found["intervals"][0]["begin_s"] < found["intervals"][0]["end_s"]
    assert run(["simulate", *SMALL, "--load", "3"]) == 0
    assert "Why requests waited" in capsys.readouterr().out


def test_quota_and_quota_of_all_can_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SMALL, "--load", "3", "--tenant", "a=1:2@0.5", "--tenant", "b=1@0.5")
    assert "quota" not in d["bottlenecks"]["causes"] or d["bottlenecks"]["causes"]["quota"]["seconds"] > 0
    assert d["tenants"]["each"]["a"]["ttft_s"]["p50"] > d["tenants"]["each"]["b"]["ttft_s"]["p50"]


def test_priorities_and_deadlines_reach_the_policies() -> None:
    urgent = tq.simulate(
        "priority_aging:step_s=5", classes=["256:64"], load=2.0, requests=400, replications=1,
        tenants=["now=1:priority=0@0.5", "later=1:priority=3@0.5"],
    ).to_dict()["tenants"]["each"]  # fmt: skip
    assert urgent["now"]["ttft_s"]["p50"] < 0.5 * urgent["later"]["ttft_s"]["p50"]
    dated = tq.simulate(
        "edf", classes=["256:64"], load=2.0, requests=400, replications=1,
        tenants=["now=1:ttft=0.1@0.5", "later=1:ttft=60@0.5"],
    ).to_dict()["tenants"]["each"]  # fmt: skip
    assert dated["now"]["ttft_s"]["p50"] < 0.5 * dated["later"]["ttft_s"]["p50"]


def test_backpressure_and_control_reach_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SMALL, "--load", "3", "--backpressure", "reject:waiting=16")
    assert d["requests"]["rejected"] > 0 and "backpressure" in d["warnings"][0] + " ".join(d["warnings"])
    assert d["setting"]["backpressure"]["action"] == "reject"
    large = [*SMALL, "--load", "1.2", "--token-budget", "1024", "--max-num-seqs", "256"]
    free = answer(capsys, *large)
    limit = 0.7 * free["tbt_s"]["p99"]
    held = answer(capsys, *large, "--control-tbt", str(limit))
    assert held["tbt_s"]["p90"] <= limit < free["tbt_s"]["p90"]
    assert held["setting"]["control"]["tbt_s"] == pytest.approx(limit)
    careful = answer(capsys, *SMALL, "--load", "3", "--reservation", "conservative", "--watermark", "0.1")
    assert careful["setting"]["reservation"] == "conservative" and careful["setting"]["watermark"] == 0.1


def test_the_shares_can_be_drawn(tmp_path: Path) -> None:
    target = tmp_path / "shares.svg"
    tenants = ["--tenant", "gold=3@0.5", "--tenant", "free=1@0.5"]
    assert run(["simulate", *SMALL, "--load", "3", *tenants, "--plot", str(target), "--picture", "tenants"]) == 0
    assert "gold" in target.read_text()
    simulated = tq.simulate(classes=["256:64"], load=0.5, requests=100, replications=1)
    with pytest.raises(InputError, match="kept no tenants"):
        simulated.plot(tmp_path / "none.svg", "tenants")


def test_a_saved_run_keeps_accounts_and_bottlenecks(tmp_path: Path) -> None:
    from tileq_engine.run import Run
    from tileq_engine.run_io import identical_runs

    made = tq.simulate(
        "vtc", classes=["256:64"], load=2.0, requests=200, replications=1, tenants=["a=2@0.5", "b=1@0.5"]
    )
    again = Run.load(made.save(tmp_path / "run.npz"))
    assert identical_runs(again, made.run) and again.tenants is not None and again.bottlenecks is not None
    assert again.to_dict()["tenants"] == made.run.to_dict()["tenants"]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["gold=-1"], "weight of tenant 'gold' is -1.0; expected 0 or more"),
        (["gold=0", "free=0"], "are all 0"),
        (["gold=3:0"], "quota of tenant 'gold' is 0; expected at least one request"),
        (["gold=3:-2"], "quota of tenant 'gold' is -2"),
        (["gold=3:1.5"], "quota '1.5'"),
        (["gold"], "has no name or no weight"),
        (["=3"], "has no name or no weight"),
        (["gold=nan"], "expected"),
        (["gold=3", "gold=1"], "given twice"),
        (["gold=3@0.5", "free=1"], "tenant 'free' has no share"),
        (["gold=3@-1", "free=1@1"], "share of tenant 'gold' is -1"),
        (["gold=3@0", "free=1@0"], "shares are all 0"),
        (["gold=3:colour=2"], "setting 'colour'"),
        (["gold=3:quota=2:quota=3"], "gives quota twice"),
        (["gold=3:ttft=0"], "deadline of tenant 'gold' is 0.0"),
    ],
)
def test_bad_tenants_get_one_line(texts: list[str], told: str) -> None:
    with pytest.raises(InputError) as error:
        parse_tenants(texts, make_traffic(classes=["256:64"]).workload)
    assert told in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("drop:waiting=3", "backpressure is 'drop'"),
        ("reject", "has no trigger"),
        ("reject:waiting=0", "waiting is 0"),
        ("reject:waiting=x", "waiting 'x'"),
        ("reject:kv=1.2", "kv_share is 1.2"),
        ("reject:depth=3", "setting 'depth=3'"),
        ("reject:waiting=1:waiting=2", "gives waiting twice"),
        ("shrink:waiting=4:tokens=0", "shrunk_tokens is 0"),
    ],
)
def test_bad_backpressure_gets_one_line(text: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        parse_backpressure(text)
    assert told in str(error.value) and "\n" not in str(error.value)


def test_bad_options_of_the_command_get_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "all 0" in complaint(capsys, *SMALL, "--tenant", "a=0", "--tenant", "b=0")
    assert "no tenant" in complaint(capsys, *SMALL, "--token-prices", "1:1")
    assert "--token-prices are '3'" in complaint(capsys, *SMALL, "--tenant", "a=1", "--token-prices", "3")
    assert "watermark is 1.0" in complaint(capsys, *SMALL, "--watermark", "1")
    assert "--control-tbt is 0.0" in complaint(capsys, *SMALL, "--control-tbt", "0")
    assert "makes none" in complaint(capsys, *SMALL, "--policy", "static", "--control-tbt", "0.05")
    assert "reservation" in complaint(capsys, *SMALL, "--reservation", "eager")
    for bad in ("1:", "a:b", "-1:2", "0:0"):
        with pytest.raises(InputError):
            parse_tenants(["a=1"], make_traffic(classes=["256:64"]).workload, parse_prices(bad))
