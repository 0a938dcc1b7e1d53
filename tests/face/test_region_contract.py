"""The document of `tileq region`, and the region it describes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tileq as tq
from tileq.cli.run import run

TWO = ["--class", "chat=1024:256", "--class", "code=4096:32", "--max-num-seqs", "64"]


def document(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["region", *arguments, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    parsed: dict[str, Any] = json.loads(printed.out, parse_constant=pytest.fail)
    return parsed


def test_the_command_prints_what_python_returns(capsys: pytest.CaptureFixture[str]) -> None:
    answer = tq.region(["chat=1024:256", "code=4096:32"], max_num_seqs=64, at=[5, 1])
    assert document([*TWO, "--at", "5,1"], capsys) == answer.to_dict()


def test_corners_lie_on_facets_and_no_corner_beyond_one(capsys: pytest.CaptureFixture[str]) -> None:
    answer = document(TWO, capsys)
    corners = np.array(answer["vertices"])
    prices = np.array([facet["prices"] for facet in answer["facets"]])
    loads = corners @ prices.T
    assert answer["complete"] is True
    assert loads.max() <= 1 + 1e-6
    assert (loads.max(axis=1) > 1 - 1e-6).all()
    assert [c["name"] for c in answer["classes"]] == ["chat", "code"]


def test_a_corner_on_an_axis_is_the_capacity_of_that_class_alone() -> None:
    """Without a TBT limit; with one, the rows that tie reads to tokens know the lengths of every class named."""
    region = tq.region(["1024:256", "4096:32"], max_num_seqs=64)
    for axis, demand in enumerate(region.theory.demands):
        alone = tq.capacity(region.theory.time, demand, region.theory.limits).rate_per_s
        corner = [v for v in region.theory.vertices if np.count_nonzero(v) == 1 and v[axis] > 0]
        assert len(corner) == 1
        assert corner[0][axis] == pytest.approx(alone, rel=1e-6)


def test_rates_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    inside = document([*TWO, "--at", "0.5,0.5"], capsys)["at"]
    assert inside["inside"] is True and inside["utilisation"] < 1 and inside["distance_per_s"] > 0
    assert inside["headroom"] == pytest.approx(1 / inside["utilisation"])
    outside = document([*TWO, "--at", "500,500"], capsys)["at"]
    assert outside["inside"] is False and outside["utilisation"] > 1 and outside["distance_per_s"] < 0
    origin = document([*TWO, "--at", "0,0"], capsys)["at"]
    assert origin["inside"] is True and origin["utilisation"] == 0 and origin["headroom"] is None


def test_many_classes_are_judged_without_their_facets(capsys: pytest.CaptureFixture[str]) -> None:
    classes = [part for n in range(1, 14) for part in ("--class", f"{100 * n}:{10 * n}")]
    answer = document([*classes, "--at", ",".join(["0.5"] * 13)], capsys)
    assert answer["complete"] is False
    assert answer["at"]["inside"] is True and answer["at"]["distance_per_s"] > 0
    assert run(["region", *classes]) == 0
    assert "--at judges" in capsys.readouterr().out


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_text_fits_80_columns(
    count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    classes = [part for n in range(count) for part in ("--class", f"{512 * (n + 1)}:{64 * (3 - n)}")]
    assert run(["region", *classes, "--at", ",".join(["1"] * count)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
