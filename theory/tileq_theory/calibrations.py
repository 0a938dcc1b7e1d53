"""Ready-made calibrations: iteration times fitted to published measurements, with their errors (`data/calibrations`).

`tools/calibrations` recomputes them from the measurements; only coefficients, errors and provenance ship.
"""

from __future__ import annotations

__all__ = ["HeldOutError", "NamedCalibration", "calibration_names", "named_calibration"]

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from tileq_theory.errors import InputError, near_matches
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand, Provenance


@dataclass(frozen=True, slots=True)
class HeldOutError:
    """Relative errors (predicted/measured - 1) on measurements that the fit did not see, of one regime.

    Parameters
    ----------
    regime
        "all", a phase or the part of an iteration that takes longest.
    points
        Measurements.
    median_abs, p90_abs, bias
        Median and 90 % quantile of the absolute error; median of the signed one.
    inside
        Share inside the error band.
    """

    regime: str
    points: int
    median_abs: float
    p90_abs: float
    bias: float
    inside: float


@dataclass(frozen=True, slots=True)
class NamedCalibration:
    """A fitted iteration time of one device and model.

    Parameters
    ----------
    name
        Slug, such as `rtx-4090/llama-3.1-8b`.
    gpu, model, dtype, tp
        What was measured; slugs of the catalogue where it has them.
    time
        The fitted model with its error band and provenance.
    tile_answer, tile_confidence
        "tile", "none", "undecided" or "published"; confidence of that answer.
    held_out
        Errors by regime; empty for published constants.
    intervals
        Coefficient -> central 95 % interval.
    warnings
        What the measurements could not tell.
    """

    name: str
    gpu: str
    model: str
    dtype: str
    tp: int
    time: IterationTime
    tile_answer: str
    tile_confidence: float
    held_out: tuple[HeldOutError, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def median_error(self) -> float | None:
        """Median absolute relative error on held-out measurements; None for published constants."""
        return next((e.median_abs for e in self.held_out if e.regime == "all"), None)

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain data."""
        return {
            "name": self.name,
            "gpu": self.gpu,
            "model": self.model,
            "dtype": self.dtype,
            "tp": self.tp,
            "iteration_time": self.time.to_dict(),
            "tile": {"answer": self.tile_answer, "confidence": self.tile_confidence},
            "held_out": [asdict(e) for e in self.held_out],
            "intervals": {name: list(pair) for name, pair in self.intervals.items()},
            "warnings": list(self.warnings),
        }


@cache
def _documents() -> dict[str, dict[str, Any]]:
    folder = files("tileq_theory") / "data" / "calibrations"
    texts = [f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".toml")]
    documents = [tomllib.loads(text) for text in texts]
    return {d["name"]: d for d in sorted(documents, key=lambda d: str(d["name"]))}


def calibration_names() -> tuple[str, ...]:
    """Return the names of the ready-made calibrations, sorted."""
    return tuple(_documents())


@cache
def named_calibration(name: str) -> NamedCalibration:
    """Return a ready-made calibration.

    Raises
    ------
    InputError
        For a name that is not in the catalogue; the message lists the nearest ones.

    Examples
    --------
    >>> c = named_calibration("a100-sxm-80gb/codellama-34b-instruct")
    >>> c.time.tile_tokens, c.time.launch_s
    (128, 0.01128)
    """
    documents = _documents()
    if name not in documents:
        raise InputError(f"unknown calibration {name!r}; {near_matches('calibrations', name, documents)}")
    d = documents[name]
    p, band, tile = d["provenance"], d["error_band"], d["tile"]
    return NamedCalibration(
        name=d["name"],
        gpu=d["gpu"],
        model=d["model"],
        dtype=d["dtype"],
        tp=d["tp"],
        time=IterationTime(
            **d["iteration_time"],
            provenance=Provenance(p["kind"], p["source"], tuple(p["notes"])),
            error_band=ErrorBand(band["low"], band["high"], band["coverage"], band["basis"]),
        ),
        tile_answer=tile["answer"],
        tile_confidence=tile["confidence"],
        held_out=tuple(HeldOutError(**row) for row in d.get("held_out", ())),
        intervals={key: (low, high) for key, (low, high) in d.get("intervals", {}).items()},
        warnings=tuple(d.get("warnings", ())),
    )
