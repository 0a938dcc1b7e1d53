"""The plots of a calibration, as SVG text that needs no other file."""

from __future__ import annotations

__all__ = ["latencies_plot", "predicted_against_measured", "residuals_by_regime", "staircase_plot"]

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_profiling.calibration.calibration import Calibration
from tileq_profiling.fit.residuals import longest_part
from tileq_profiling.inverse.result import InverseFit
from tileq_profiling.profile.table import Profile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"prefill": "#0072b2", "decode": "#d55e00", "mixed": "#009e73", "unknown": "#555555"}


def _svg(draw: Any, width: float = 6.0, height: float = 4.2) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # a fixed salt and no date: the same calibration gives the same bytes
    with mpl.rc_context({"svg.hashsalt": "tileq", "svg.fonttype": "path"}):
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _predicted(calibration: Calibration, profile: Profile) -> np.ndarray:
    return np.asarray(calibration.time(*profile.compositions.T))


def predicted_against_measured(calibration: Calibration, profile: Profile) -> str:
    """Return the scatter of predicted against measured times with the error band, as SVG."""
    predicted, band = _predicted(calibration, profile), calibration.time.error_band

    def draw(axes: Axes) -> None:
        ends = np.array([predicted.min(), predicted.max()]) * 1e3
        axes.fill_between(ends, ends * band.low, ends * band.high, color="0.88", label="error band")
        axes.plot(ends, ends, color="0.4", lw=0.8)
        for name in np.unique(profile.phase):
            mask = profile.phase == name
            axes.scatter(1e3 * predicted[mask], 1e3 * profile.seconds[mask], s=9, color=_COLOURS[str(name)], label=name)
        axes.set(xscale="log", yscale="log", xlabel="predicted, ms", ylabel="measured, ms")
        axes.legend(frameon=False, fontsize=8)

    return _svg(draw)


def residuals_by_regime(calibration: Calibration, profile: Profile) -> str:
    """Return the relative residuals of each longest part, as SVG box plots (quartiles; whiskers 5 and 95 %)."""
    relative = 100 * (_predicted(calibration, profile) / profile.seconds - 1)
    part = longest_part(calibration.time, profile)
    names = [str(x) for x in np.unique(part)]

    def draw(axes: Axes) -> None:
        axes.boxplot([relative[part == n] for n in names], orientation="horizontal", whis=(5, 95), showfliers=False)
        axes.set_yticks(range(1, len(names) + 1), [f"{n} ({int((part == n).sum())})" for n in names])
        axes.axvline(0, color="0.5", lw=0.8)
        axes.set(xlabel="predicted / measured - 1, %", ylabel="longest part")

    return _svg(draw, height=1.2 + 0.5 * len(names))


def staircase_plot(calibration: Calibration, profile: Profile) -> str:
    """Return the measured times less attention and sequences against the tokens, with the model's staircase, as SVG."""
    t = calibration.time
    rest = profile.seconds - (_predicted(calibration, profile) - np.asarray(t.tau_s(profile.tokens)))
    n = np.unique(np.concatenate([np.arange(1, 513), np.geomspace(1, profile.tokens.max(), 2000).round()]))

    def draw(axes: Axes) -> None:
        for name in np.unique(profile.phase):
            mask = profile.phase == name
            axes.scatter(profile.tokens[mask], 1e3 * rest[mask], s=9, color=_COLOURS[str(name)], label=name)
        axes.plot(n, 1e3 * np.asarray(t.tau_s(n)), color="black", lw=1.0, label="model")
        axes.set(xscale="log", yscale="log", xlabel="tokens in the batch", ylabel="ms without attention and sequences")
        axes.set_ylim(bottom=max(1e3 * float(t.tau_s(1)) / 3, 1e-6))
        axes.legend(frameon=False, fontsize=8)

    return _svg(draw)


def latencies_plot(fit: InverseFit) -> str:
    """Return the scatter of predicted against measured latencies, as SVG."""
    colours = {"ttft_s": "#0072b2", "tpot_s": "#d55e00", "e2e_s": "#009e73", "itl_s": "#cc79a7"}
    shown = [f for f in fit.figures if f.name in colours]

    def draw(axes: Axes) -> None:
        if not shown:
            axes.set_axis_off()
            return
        values = np.concatenate([np.concatenate([f.measured, f.predicted]) for f in shown])
        ends = np.array([values.min(), values.max()])
        axes.plot(ends, ends, color="0.4", lw=0.8)
        told = set()
        for f in shown:
            style = {"s": 9, "alpha": 0.5, "linewidths": 0} if f.each else {"s": 30, "marker": "s"}
            words = f.name.removesuffix("_s").upper()
            axes.scatter(
                f.predicted, f.measured, color=colours[f.name], label=None if words in told else words, **style
            )
            told.add(words)
        axes.set(xscale="log", yscale="log", xlabel="predicted, s", ylabel="measured, s")
        axes.legend(frameon=False, fontsize=8)

    return _svg(draw)
