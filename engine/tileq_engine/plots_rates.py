"""Latency against rate by policy, with bands from the replications."""

from __future__ import annotations

__all__ = ["plot_rates"]

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileq_engine.plots_style import new_figure, series_style, styled
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_engine.sweep import Sweep

_WORDS = {"ttft_s": "TTFT", "tbt_s": "TBT", "tpot_s": "TPOT", "e2e_s": "end-to-end", "throughput_per_s": "throughput"}


def _label(path: str) -> str:
    """Return the axis label of a statistic, its unit included: 'TTFT p99 [s]'."""
    name, _, part = path.partition(".")
    unit = "1/s" if name.endswith("_per_s") else "s" if name.endswith("_s") else "-"
    return f"{_WORDS.get(name, path)}{' ' + part if part and name in _WORDS else ''} [{unit}]"


def _panel(axes: Any, sweep: Sweep, path: str, workload: str, level: float) -> None:
    combined = [d for d in sweep.combined(level) if d["workload"] == workload]
    for place, policy in enumerate(sweep.policies):
        style = series_style(place)
        verdicts = {d["rate_per_s"]: d["stable"] for d in combined if d["policy"] == policy}
        curve = sweep.curve(path, policy, workload, level=level)
        points = [(r, i) for r, i in zip(sweep.rates_per_s, curve, strict=True) if math.isfinite(i.estimate)]
        points.sort(key=lambda point: point[0])
        if not points:
            continue
        rates, values = [r for r, _ in points], [i.estimate for _, i in points]
        axes.plot(rates, values, **{**style, "marker": ""})
        axes.plot([], [], label=policy, **style)
        for rate, interval in points:
            face = "white" if verdicts[rate] == "unstable" else style["color"]
            axes.plot([rate], [interval.estimate], marker=style["marker"], color=style["color"], markerfacecolor=face)
        banded = [(r, i) for r, i in points if math.isfinite(i.half_width)]
        if len(banded) > 1:
            least = 0.5 * min(v for v in values if v > 0) if any(v > 0 for v in values) else 0.0
            lows, highs = [max(i.low, least) for _, i in banded], [i.high for _, i in banded]
            axes.fill_between([r for r, _ in banded], lows, highs, color=style["color"], alpha=0.15, linewidth=0)


def plot_rates(
    sweep: Sweep,
    statistics: Sequence[str] = ("ttft_s.p50", "ttft_s.p99", "tbt_s.p99"),
    *,
    workload: str | None = None,
    limits: Mapping[str, float] | None = None,
    level: float = 0.95,
    title: str = "",
) -> Any:
    """Return a figure with one panel a statistic: its mean over replications against the rate, one line a policy.

    Parameters
    ----------
    statistics
        Paths of statistics of the metrics document.
    limits
        Statistic -> objective, drawn as a horizontal line.
    level
        Level of the bands (Student intervals over replications; none with one replication).

    Hollow markers stand where the replications together are found unstable, the verdict of the tables.
    """
    if not statistics:
        raise InputError("plot_rates of no statistics; expected at least one path such as 'ttft_s.p99'")
    if workload is None and len(sweep.workloads) > 1:
        raise InputError(f"the sweep has workloads {', '.join(sweep.workloads)}; name the one to draw")
    shown = sweep.workloads[0] if workload is None else workload
    with styled():
        figure = new_figure(3.6 * len(statistics), 3.4)
        panels = figure.subplots(1, len(statistics), squeeze=False)[0]
        for axes, path in zip(panels, statistics, strict=True):
            _panel(axes, sweep, path, shown, level)
            if path.partition(".")[0].endswith("_s") and not path.endswith("per_s"):
                axes.set_yscale("log")
            if limits and path in limits:
                axes.axhline(limits[path], color="black", linewidth=0.9, linestyle=(0, (1, 2)))
                axes.annotate(
                    "objective",
                    (1.0, limits[path]),
                    xycoords=("axes fraction", "data"),
                    ha="right",
                    va="bottom",
                    fontsize="small",
                )
            axes.set_xlabel("arrival rate [requests/s]")
            axes.set_ylabel(_label(path))
        figure.legend(
            *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=min(len(sweep.policies), 6)
        )
        figure.suptitle(title or f"{len(sweep.policies)} policies, {level:.0%} bands; hollow: unstable")
        return figure
