"""The report for a terminal of 80 columns."""

from __future__ import annotations

__all__ = ["text_report"]

import textwrap

from tileq_profiling.calibration.calibration import Calibration
from tileq_profiling.calibration.rate_band import RateBand
from tileq_profiling.fit.rows import NAMES

_WIDTH = 80
_UNITS = {
    "launch_s": ("c", "launch and host", 1e3, "ms"),
    "weight_floor_s": ("w", "weight floor", 1e3, "ms"),
    "tile_s": ("a", "one tile", 1e3, "ms"),
    "token_s": ("beta", "one token", 1e6, "us"),
    "pair_s": ("e", "query-key pair", 1e9, "ns"),
    "kv_token_s": ("k", "KV token read", 1e9, "ns"),
    "sequence_s": ("s", "sequence", 1e6, "us"),
}


def text_report(calibration: Calibration, rate: RateBand | None = None) -> str:
    """Return the report: conditions, tile, coefficients, held-out errors, extrapolation, lambda*, warnings."""
    c = calibration.conditions
    what = ", ".join(x for x in (c.model, c.device, c.dtype, f"tp {c.tp}") if x)
    lines = [f"Calibration of {what}", _measured(calibration)]
    lines += ["", *_tile(calibration), "", *_coefficients(calibration), "", *_errors(calibration)]
    if calibration.regions:
        lines += [
            "",
            "Fitted without a region, tested on it",
            f"  {'left out':<44}{'points':>8}{'median':>9}{'bias':>9}",
        ]
        lines += [f"  {r.region[:43]:<44}{r.points:>8}{r.median_abs:>9.1%}{r.bias:>+9.1%}" for r in calibration.regions]
    if rate is not None:
        lines += ["", *_rate(rate)]
    for warning in calibration.warnings:
        lines += ["", *textwrap.wrap(f"Warning: {warning}", _WIDTH, subsequent_indent="  ")]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _measured(calibration: Calibration) -> str:
    if calibration.scope == "latencies":
        return f"{calibration.points} measured latencies, no step times: fitted through the simulator"
    return f"{calibration.points} measured times ({calibration.scope})"


def _tile(calibration: Calibration) -> list[str]:
    v = calibration.tile
    head = {"tile": f"Tile: {v.tile_tokens} tokens", "none": "Tile: none visible", "undecided": "Tile: undecided"}[
        v.answer
    ]
    if v.answer == "tile" and v.confidence:
        head += f" (visible: {v.confidence:.1%}; this one rather than another: {v.tile_confidence:.0%})"
    lines = [head, *textwrap.wrap(v.reason, _WIDTH, initial_indent="  ", subsequent_indent="  ")]
    if v.answer == "tile" and v.rivals:
        others = ", ".join(f"{b} ({share:.0%})" for b, share in v.rivals[:4])
        lines += [f"  rivals in resampling: {others}"]
    return lines


def _coefficients(calibration: Calibration) -> list[str]:
    lines = [f"  {'coefficient':<26}{'value':>14}  95 % interval"]
    for name in NAMES:
        symbol, words, factor, unit = _UNITS[name]
        value = factor * getattr(calibration.time, name)
        low, high = (factor * x for x in calibration.intervals.get(name, (float("nan"), float("nan"))))
        span = f"[{low:.4g}, {high:.4g}]" if low == low else ""
        lines.append(f"  {symbol + ', ' + words:<26}{value:>11.4g} {unit}  {span}")
    return lines


def _errors(calibration: Calibration) -> list[str]:
    band = calibration.time.error_band
    lines = [
        "Errors on latencies the fit did not see (predicted / measured - 1)"
        if calibration.scope == "latencies"
        else "Errors on batches the fit did not see (predicted / measured - 1)",
        f"  {'regime':<32}{'points':>8}{'median':>9}{'p90':>9}{'bias':>9}{'inside':>9}",
    ]
    for e in calibration.held_out:
        lines.append(
            f"  {e.regime:<32}{e.points:>8}{e.median_abs:>9.1%}{e.p90_abs:>9.1%}{e.bias:>+9.1%}{e.inside:>9.1%}"
        )
    lines += [f"Error band: measured / predicted in [{band.low:.3f}, {band.high:.3f}]"]
    return lines + textwrap.wrap(band.basis, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _rate(rate: RateBand) -> list[str]:
    return [
        f"lambda* = {rate.rate_per_s:.4g} requests/s (binding: {rate.binding})",
        f"  from the coefficients' uncertainty  [{rate.low_per_s:.4g}, {rate.high_per_s:.4g}]",
        f"  and the model's error band          [{rate.outer_low_per_s:.4g}, {rate.outer_high_per_s:.4g}]",
    ]
