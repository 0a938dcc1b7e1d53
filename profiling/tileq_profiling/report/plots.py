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
from tileq_theory.figure_style import INK, in_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# colour and marker of each phase, and of each latency: in grey the marker tells them apart
_PHASES = {"prefill": (INK[0], "o"), "decode": (INK[1], "^"), "mixed": (INK[2], "s"), "unknown": (INK[5], "x")}
_LATENCIES = {"ttft_s": (INK[0], "o"), "tpot_s": (INK[1], "^"), "e2e_s": (INK[2], "s"), "itl_s": (INK[3], "D")}


def _svg(draw: Any, width: float = 7.0, height: float = 4.8) -> str:
    from matplotlib.figure import Figure

    # the style has a fixed salt, and there is no date: the same calibration gives the same bytes
    with in_style():
        figure = Figure(figsize=(width, height))
        draw(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _points(phase: str) -> dict[str, Any]:
    """Return how the batches of a phase are drawn: hollow, so that a cloud of them shows what lies beneath."""
    colour, marker = _PHASES[phase]
    face = {} if marker == "x" else {"facecolors": "none", "edgecolors": colour}
    return {"s": 14, "linewidths": 0.8, "color": colour, "marker": marker, "label": phase, **face}


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
            axes.scatter(1e3 * predicted[mask], 1e3 * profile.seconds[mask], **_points(str(name)))
        axes.set(xscale="log", yscale="log", xlabel="predicted (ms)", ylabel="measured (ms)")
        axes.legend()

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
        axes.set(xlabel="predicted / measured - 1 (%)", ylabel="longest part (batches)")

    return _svg(draw, height=1.2 + 0.5 * len(names))


def staircase_plot(calibration: Calibration, profile: Profile) -> str:
    """Return the measured times less attention and sequences against the tokens, with the model's staircase, as SVG."""
    t = calibration.time
    rest = profile.seconds - (_predicted(calibration, profile) - np.asarray(t.tau_s(profile.tokens)))
    n = np.unique(np.concatenate([np.arange(1, 513), np.geomspace(1, profile.tokens.max(), 2000).round()]))

    def draw(axes: Axes) -> None:
        for name in np.unique(profile.phase):
            mask = profile.phase == name
            axes.scatter(profile.tokens[mask], 1e3 * rest[mask], **_points(str(name)))
        axes.plot(n, 1e3 * np.asarray(t.tau_s(n)), color="black", lw=1.0, label="model")
        axes.set(xscale="log", yscale="log", xlabel="batch (tokens)", ylabel="without attention and sequences (ms)")
        axes.set_ylim(bottom=max(1e3 * float(t.tau_s(1)) / 3, 1e-6))
        axes.legend()

    return _svg(draw)


def latencies_plot(fit: InverseFit) -> str:
    """Return the scatter of predicted against measured latencies, as SVG."""
    shown = [f for f in fit.figures if f.name in _LATENCIES]

    def draw(axes: Axes) -> None:
        if not shown:
            axes.set_axis_off()
            return
        values = np.concatenate([np.concatenate([f.measured, f.predicted]) for f in shown])
        ends = np.array([values.min(), values.max()])
        axes.plot(ends, ends, color="0.4", lw=0.8)
        told = set()
        for f in shown:
            colour, marker = _LATENCIES[f.name]
            size = {"s": 12, "alpha": 0.5, "linewidths": 0} if f.each else {"s": 40}
            words = f.name.removesuffix("_s").upper()
            label = None if words in told else words
            axes.scatter(f.predicted, f.measured, color=colour, marker=marker, label=label, **size)
            told.add(words)
        axes.set(xscale="log", yscale="log", xlabel="predicted (s)", ylabel="measured (s)")
        axes.legend()

    return _svg(draw)
