"""Figures: written in every format, the same bytes each time, and drawing what the plan says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tileq as tq
from tileq.cli.run import run
from tileq.plan_document import budget_curve
from tileq.plots.region import around, with_origin

REGIONS = {
    2: ["--class", "1024:256", "--class", "4096:32", "--at", "5,1"],
    3: ["--class", "1024:256", "--class", "4096:32", "--class", "100:1000", "--max-num-seqs", "64"],
}


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_a_plan_is_drawn_the_same_each_time(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"{name}.{ending}" for name in ("first", "second")]
    for file in files:
        assert run(["plan", "--tbt", "0.05", "--plot", str(file), "--json"]) == 0
    first, second = (file.read_bytes() for file in files)
    assert len(first) > 5000
    assert first == second


@pytest.mark.parametrize("classes", REGIONS)
def test_a_region_is_drawn_the_same_each_time(classes: int, tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.svg" for name in ("first", "second")]
    for file in files:
        assert run(["region", *REGIONS[classes], "--plot", str(file)]) == 0
    assert files[0].read_bytes() == files[1].read_bytes()


def test_the_curve_meets_the_plan() -> None:
    plan = tq.plan(classes=["1024:256"], tbt=0.05)
    curve = budget_curve(plan)
    assert list(curve.tokens) == sorted(set(curve.tokens))
    place = list(curve.tokens).index(plan.token_budget)
    assert curve.rate_per_s[place] == pytest.approx(plan.tile.budget_rate_per_s, rel=1e-9)
    assert max(curve.rate_per_s) <= plan.rate_per_s * (1 + 1e-9)
    # at every budget that the plan compared, the curve says what the plan found
    drawn = dict(zip(curve.tokens, curve.rate_per_s, strict=True))
    compared = dict(zip(plan.tile.curve_tokens.tolist(), plan.tile.curve_rate_per_s.tolist(), strict=True))
    both = [n for n in compared if n in drawn]
    assert len(both) > 10
    for n in both:
        assert drawn[n] == pytest.approx(compared[n], rel=1e-9)


def test_no_figure_is_left_open(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    tq.region(["1024:256", "4096:32"]).plot(tmp_path / "a.png")
    assert plt.get_fignums() == before


def test_corners_go_round() -> None:
    corners = around(with_origin(np.array([[3.0, 0.0], [0.0, 0.001], [2.0, 0.0008]])))
    x, y = corners.T
    area = 0.5 * abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1)))
    assert len(corners) == 4
    assert area == pytest.approx(0.5 * abs(3 * 0.0008 - 0 + 2 * 0.001), rel=1e-9)
