"""The report as one HTML file with its plots inside."""

from __future__ import annotations

__all__ = ["html_report", "latency_report"]

from html import escape

from tileq_profiling.calibration.calibration import Calibration
from tileq_profiling.calibration.rate_band import RateBand
from tileq_profiling.inverse.result import InverseFit
from tileq_profiling.profile.table import Profile
from tileq_profiling.report.plots import (
    latencies_plot,
    predicted_against_measured,
    residuals_by_regime,
    staircase_plot,
)
from tileq_profiling.report.text import text_report

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
pre {{ font-size: 13px; overflow-x: auto; background: #f6f6f6; padding: 1rem; }}
figure {{ margin: 1.5rem 0; }} figure svg {{ max-width: 100%; height: auto; }}
figcaption {{ color: #555; }}
</style>
</head>
<body>
<h1>{title}</h1>
<pre>{text}</pre>
{figures}
</body>
</html>
"""


def html_report(calibration: Calibration, profile: Profile, rate: RateBand | None = None) -> str:
    """Return a self-contained page: the text report, predicted against measured, residuals by regime, the staircase."""
    c = calibration.conditions
    title = escape(" on ".join(x for x in (c.model, c.device) if x) or "measured profile")
    figures = [
        (
            predicted_against_measured(calibration, profile),
            "Measured against predicted times of all fitted iterations.",
        ),
        (
            residuals_by_regime(calibration, profile),
            "Relative residuals by the longest part of the iteration (boxes: quartiles, whiskers: 5 % and 95 %).",
        ),
        (staircase_plot(calibration, profile), "The linear layers: measured less attention, and the fitted model."),
    ]
    return _page(title, text_report(calibration, rate), figures)


def latency_report(fit: InverseFit, rate: RateBand | None = None) -> str:
    """Return a self-contained page of a fit to latencies: the text report, predicted against measured latencies."""
    c = fit.calibration.conditions
    title = escape(" on ".join(x for x in (c.model, c.device) if x) or "measured latencies")
    figures = [
        (
            latencies_plot(fit),
            "Measured against predicted latencies: dots are requests, squares are figures over all requests of a run.",
        )
    ]
    return _page(title, text_report(fit.calibration, rate) + "\n" + fit.text(), figures)


def _page(title: str, text: str, figures: list[tuple[str, str]]) -> str:
    body = "\n".join(f"<figure>{svg}<figcaption>{escape(words)}</figcaption></figure>" for svg, words in figures)
    return _PAGE.format(title=f"Calibration: {title}", text=escape(text), figures=body)
