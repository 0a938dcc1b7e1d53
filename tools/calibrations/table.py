"""From a profile to the TOML that the library ships."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sources import SOURCES

from tileq_profiling.calibration import Calibration
from tileq_profiling.fit import fit

HEADER = """\
# {name}: iteration time fitted to published measurements, seconds and tokens.
#
# Written by tools/calibrations. Only coefficients, errors and provenance ship, not the measurements.
"""
_TIMES = ("launch_s", "weight_floor_s", "tile_s", "tile_tokens", "token_s", "pair_s", "kv_token_s", "sequence_s")


def file_name(name: str) -> str:
    """Return the file of a calibration."""
    return name.replace("/", "--") + ".toml"


def calibrate(name: str, data: Path) -> dict[str, Any]:
    """Return the document of one calibration."""
    source = SOURCES[name]
    if source is None:
        return _codellama(name)
    fill = source.fill_from() if source.fill_from else None
    return document(name, fit(source.profile(data), fill_from=fill))


def document(name: str, calibration: Calibration) -> dict[str, Any]:
    """Return what ships of a calibration."""
    c, t, band = calibration.conditions, calibration.time, calibration.time.error_band
    return {
        "name": name,
        "schema_version": 1,
        "gpu": c.device,
        "model": c.model,
        "dtype": c.dtype,
        "tp": c.tp,
        "warnings": list(calibration.warnings),
        "iteration_time": {key: _figure(getattr(t, key)) for key in _TIMES},
        "error_band": {
            "low": _figure(band.low),
            "high": _figure(band.high),
            "coverage": _figure(band.coverage),
            "basis": band.basis,
        },
        "tile": {"answer": calibration.tile.answer, "confidence": _figure(calibration.tile.confidence)},
        "provenance": {"kind": t.provenance.kind, "source": t.provenance.source, "notes": list(t.provenance.notes)},
        "intervals": {key: [_figure(low), _figure(high)] for key, (low, high) in calibration.intervals.items()},
        "held_out": [
            {key: _figure(value) if isinstance(value, float) else value for key, value in e.to_dict().items()}
            for e in calibration.held_out
        ],
    }


def _codellama(name: str) -> dict[str, Any]:
    times = dict.fromkeys(_TIMES, 0.0) | {"launch_s": 0.01128, "tile_s": 0.03547, "tile_tokens": 128}
    source = "Dai, Deng, Li, Peng, arXiv 2504.07347, eq. (4)"
    basis = "not stated by the source; the constants are taken as exact"
    return {
        "name": name,
        "schema_version": 1,
        "gpu": "a100-sxm-80gb",
        "model": "codellama-34b-instruct",
        "dtype": "fp16",
        "tp": 1,
        "warnings": ["attention is not in these constants: pair_s and kv_token_s are 0, so long contexts look free"],
        "iteration_time": times,
        "error_band": {"low": 1.0, "high": 1.0, "coverage": 0.0, "basis": basis},
        "tile": {"answer": "published", "confidence": 0.0},
        "provenance": {"kind": "fitted", "source": source, "notes": ["constants as published, fitted by the authors"]},
    }


def _figure(value: float) -> float | int:
    return value if isinstance(value, int) else float(f"{value:.5g}")


def to_toml(name: str, document: dict[str, Any]) -> str:
    """Return the document as TOML, one line a fact."""
    lines = [HEADER.format(name=name)]
    tables = {k: v for k, v in document.items() if isinstance(v, dict)}
    lists = {k: v for k, v in document.items() if isinstance(v, list) and v and isinstance(v[0], dict)}
    lines += [f"{k} = {_value(v)}" for k, v in document.items() if k not in tables and k not in lists]
    for key, table in tables.items():
        lines += ["", f"[{key}]", *(f"{k} = {_value(v)}" for k, v in table.items())]
    for key, rows in lists.items():
        for row in rows:
            lines += ["", f"[[{key}]]", *(f"{k} = {_value(v)}" for k, v in row.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return repr(value)
