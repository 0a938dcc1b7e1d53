"""The headline's figure: every policy's capacity, and the two numbers under each change."""

from __future__ import annotations

__all__ = ["plot"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data
from paper_repro.slai.gains import log_ratio, percent
from paper_repro.slai.serving import POLICIES
from paper_repro.slai.variants import AUTHORS, ENGINE


def _bars(data: Data, axes: Any) -> None:
    places = np.arange(len(POLICIES))[::-1]
    for k, (convention, color) in enumerate(((AUTHORS, "#0b3954"), (ENGINE, "#9db4c0"))):
        for limits, hatch in (("ttft", "//"), ("both", "")):
            found = [data.where(capacity=convention, policy=p) for p in POLICIES]
            widths = [float(np.mean([r[limits] for r in rs])) for rs in found]
            label = f"{convention}{', TTFT alone' if limits == 'ttft' else ''}"
            face = "none" if limits == "ttft" else color
            at = places + 0.2 - 0.4 * k
            axes.barh(at, widths, height=0.36, facecolor=face, edgecolor=color, hatch=hatch, label=label)
    axes.set_yticks(places, list(POLICIES))
    axes.set(xlabel="capacity, requests per second", title="Median TTFT < 0.5 s, p99 TBT within limits")
    axes.grid(axis="y", visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=9)


def _dots(data: Data, axes: Any, names: list[str], kind: str, printed: float) -> None:
    places = np.arange(len(names))[::-1]
    for shift, limits, color, marker in _SERIES[kind]:
        for place, name in zip(places, names, strict=True):
            found = data.where(variant=name)
            slai, sarathi = ([float(r[f"{p}_{limits}"]) for r in found] for p in ("slai", "sarathi"))
            change = percent(log_ratio(slai, sarathi))
            axes.plot([change.low, change.high], [place + shift] * 2, color=color, linewidth=1.4)
            first = place == places[0]
            axes.plot(change.estimate, place + shift, marker, color=color, label=_WORDS[limits] if first else None)
    axes.axvline(printed, color="#c8553d", linewidth=1.2, linestyle="--", label=f"published, {printed:+.0f} %")
    axes.set_yticks(places, names if kind == "capacity" else [""] * len(names))
    axes.set_ylim(-0.7, len(names) - 0.3)


_SERIES = {
    "capacity": ((0.14, "ttft", "#9db4c0", "s"), (-0.14, "both", "#0b3954", "o")),
    "ttft": ((0.0, "median_s", "#588b8b", "D"),),
}
_WORDS = {"ttft": "TTFT limit alone", "both": "TBT limits too", "median_s": "median TTFT at SLAI's capacity"}


def plot(data: Data, plt: Any) -> Any:
    """Draw capacities above, the sensitivity of both headline numbers below, with 95 % intervals."""
    names = list(dict.fromkeys(p["variant"] for p in data.pieces if "variant" in p))
    lower = 0.24 * len(names) + 1.4
    figure = plt.figure(figsize=(11.0, 3.4 + lower), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=[3.4, lower])
    _bars(data, figure.add_subplot(grid[0, :]))
    left = figure.add_subplot(grid[1, 0])
    _dots(data, left, names, "capacity", 26.0)
    left.set(xlabel="change from Sarathi-Serve, %", title="What moves the capacity gain")
    right = figure.add_subplot(grid[1, 1])
    _dots(data, right, names, "ttft", -53.0)
    right.set(xlabel="change from Sarathi-Serve, %", title="and the drop of the median TTFT")
    shown = [axes.get_legend_handles_labels() for axes in (left, right)]
    figure.legend(
        *([x for p in part for x in p] for part in zip(*shown, strict=True)),
        loc="outside lower center",
        ncols=5,
        fontsize=9,
    )
    return figure
