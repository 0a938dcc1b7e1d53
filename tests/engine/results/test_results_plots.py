"""Figures: labelled with units, the same bytes every time, and clear about what cannot be drawn."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tileq_engine.plots import plot_batches, plot_gantt, plot_kv, plot_queues, plot_rates, save_figure
from tileq_engine.plots_style import GREYS
from tileq_engine.run import Run, RunInfo
from tileq_engine.run_raw import request_table, sample_table
from tileq_engine.sweep import Scenario, Sweep, sweep
from tileq_theory.errors import InputError

RunMaker = Callable[..., Run]


@pytest.fixture(scope="module")
def run(mm1: RunMaker) -> Run:
    return mm1(0.8, 60, 5)


@pytest.fixture(scope="module")
def grid(mm1: RunMaker) -> Sweep:
    def simulate(scenario: Scenario) -> Run:
        return mm1(scenario.rate_per_s, 200, scenario.streams.integer("all"))

    return sweep(simulate, ["slow", "quick"], [0.4, 0.9], replications=3, backend="serial")


DRAWINGS: dict[str, Callable[[Run, Sweep], Any]] = {
    "rates": lambda run, grid: plot_rates(grid, limits={"ttft_s.p99": 3.0}),
    "batches": lambda run, grid: plot_batches(run),
    "kv": lambda run, grid: plot_kv(run),
    "queues": lambda run, grid: plot_queues(run),
    "gantt": lambda run, grid: plot_gantt(run, first=3, count=20),
}


def test_every_axis_names_its_unit_and_every_series_is_named(run: Run, grid: Sweep) -> None:
    for name, draw in DRAWINGS.items():
        figure = draw(run, grid)
        for axes in figure.axes:
            assert re.search(r"\[(s|requests/s)\]", axes.get_xlabel()), name
            assert axes.get_ylabel(), name
        words = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
        assert words, name
        if name == "rates":
            assert words == {"slow", "quick"}
            assert [a.get_ylabel() for a in figure.axes] == ["TTFT p50 [s]", "TTFT p99 [s]", "TBT p99 [s]"]


@pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
def test_figures_are_the_same_bytes_every_time(run: Run, grid: Sweep, tmp_path: Path, ending: str) -> None:
    for name in ("queues", "gantt"):
        first, second = (
            save_figure(DRAWINGS[name](run, grid), tmp_path / f"{place}{ending}").read_bytes() for place in (1, 2)
        )
        assert first == second and len(first) > 1000


def test_curves_are_the_sweeps_numbers(grid: Sweep) -> None:
    axes = plot_rates(grid, ["e2e_s.mean"]).axes[0]
    for place, policy in enumerate(grid.policies):
        line = [item for item in axes.lines if len(item.get_xdata()) == 2][place]
        expected = [grid.interval("e2e_s.mean", policy, rate).estimate for rate in grid.rates_per_s]
        assert list(line.get_ydata()) == expected


def test_a_hollow_marker_is_the_tables_verdict(mm1: RunMaker) -> None:
    """Of three replications at twice the capacity some may be undecided; table and figure judge them together."""

    def simulate(scenario: Scenario) -> Run:
        return mm1(scenario.rate_per_s, 400, scenario.streams.integer("all"))

    grid = sweep(simulate, ["one"], [0.3, 0.9, 1.1, 1.3, 2.0], replications=3, backend="serial")
    verdicts = {d["rate_per_s"]: d["stable"] for d in grid.combined()}
    assert verdicts[2.0] == "unstable" and "unstable" not in (verdicts[0.3],)
    axes = plot_rates(grid, ["e2e_s.mean"]).axes[0]
    faces = {
        float(line.get_xdata()[0]): line.get_markerfacecolor() for line in axes.lines if len(line.get_xdata()) == 1
    }
    assert {rate for rate, face in faces.items() if face == "white"} == {
        rate for rate, verdict in verdicts.items() if verdict == "unstable"
    }


def test_fills_stay_apart_in_grey() -> None:
    def luminance(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    levels = sorted(luminance(c) for c in GREYS.values())
    assert min(b - a for a, b in itertools.pairwise(levels)) > 0.15


def test_a_trace_cuts_the_bars_into_iterations(run: Run) -> None:
    trace = SimpleNamespace(
        request=np.array([0, 0, 1]),
        start_ps=np.array([0, 10, 10]) * 10**9,
        duration_ps=np.array([10, 10, 10]) * 10**9,
        prefill_tokens=np.array([5, 0, 5]),
    )
    plain, cut = plot_gantt(run, count=2), plot_gantt(run, count=2, trace=trace)
    assert len(cut.axes[0].patches) == len(plain.axes[0].patches) + 1  # the legend's entry
    assert sum(len(bars.get_paths()) for bars in cut.axes[0].collections) == 3  # and three bars


def test_a_chart_can_be_drawn_beside_others(run: Run) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2)
    assert plot_gantt(run, count=2, axes=axes[1]) is figure
    assert axes[1].patches and not axes[0].patches and not figure.legends
    plt.close(figure)


def test_what_cannot_be_drawn_is_said(run: Run, grid: Sweep, tmp_path: Path) -> None:
    table = request_table({name: np.zeros(0) for name in ("arrival_ps", "prompt_tokens", "output_tokens")})
    empty = Run(table, sample_table(), (), {}, RunInfo("x", 0))
    for draw in (plot_batches, plot_kv, plot_queues, plot_gantt):
        with pytest.raises(InputError):
            draw(empty)
    with pytest.raises(InputError, match="at most 200"):
        plot_gantt(run, count=500)
    with pytest.raises(InputError, match=r"\.svg, \.png, \.pdf"):
        save_figure(plot_kv(run), tmp_path / "figure.jpg")
    with pytest.raises(InputError, match="no statistics"):
        plot_rates(grid, [])
