"""A calibration on disk: JSON, one file."""

from __future__ import annotations

__all__ = ["CalibrationRecord", "load_calibration", "save_calibration"]

from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from tileq_profiling.calibration.calibration import Calibration
from tileq_profiling.calibration.records import Fitted, RegimeError, RegionError, TileVerdict
from tileq_profiling.edge import first_error
from tileq_profiling.profile.file import ConditionsRecord
from tileq_theory.errors import InputError, no_such_file
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand, Provenance


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class BandRecord(_Record):
    """`ErrorBand` as the file has it."""

    low: float
    high: float
    coverage: float
    basis: str


class ProvenanceRecord(_Record):
    """`Provenance` as the file has it."""

    kind: str
    source: str
    notes: list[str] = []


class TimeRecord(_Record):
    """`IterationTime` as the file has it, seconds and tokens."""

    launch_s: float
    weight_floor_s: float
    tile_s: float
    tile_tokens: int
    token_s: float
    pair_s: float
    kv_token_s: float
    sequence_s: float
    kv_counts_prefill: bool = False
    provenance: ProvenanceRecord
    error_band: BandRecord

    def time(self) -> IterationTime:
        """Return the frozen object."""
        values = self.model_dump(exclude={"provenance", "error_band"})
        p = self.provenance
        return IterationTime(
            **values,
            provenance=Provenance(p.kind, p.source, tuple(p.notes)),
            error_band=ErrorBand(**self.error_band.model_dump()),
        )


class RivalRecord(_Record):
    """A tile that was not chosen, and how often it was the best."""

    tile_tokens: int
    share: float


class TileRecord(_Record):
    """`TileVerdict` as the file has it."""

    answer: Literal["tile", "none", "undecided"]
    tile_tokens: int | None
    confidence: float
    tile_confidence: float = 0.0
    improvement: float = 0.0
    rivals: list[RivalRecord] = []
    reason: str = ""

    def verdict(self) -> TileVerdict:
        """Return the frozen object."""
        values = self.model_dump(exclude={"rivals"})
        return TileVerdict(**values, rivals=tuple((r.tile_tokens, r.share) for r in self.rivals))


class RegimeRecord(_Record):
    """`RegimeError` as the file has it."""

    regime: str
    points: int
    median_abs: float
    p90_abs: float
    bias: float
    inside: float


class RegionRecord(_Record):
    """`RegionError` as the file has it."""

    region: str
    points: int
    median_abs: float
    bias: float


class CalibrationRecord(_Record):
    """The whole file."""

    kind: Literal["tileq calibration"] = "tileq calibration"
    schema_version: Literal[1] = 1
    iteration_time: TimeRecord
    tile: TileRecord
    held_out: list[RegimeRecord] = []
    regions: list[RegionRecord] = []
    intervals: dict[str, tuple[float, float]] = {}
    draws: list[list[float]] = []
    points: int
    scope: Fitted = "iteration"
    conditions: ConditionsRecord = ConditionsRecord()
    warnings: list[str] = []


def save_calibration(calibration: Calibration, path: str | Path) -> None:
    """Write `calibration` as JSON; `load_calibration` gives it back."""
    draws = [[float(f"{x:.7g}") for x in row] for row in calibration.draws.tolist()]
    record = CalibrationRecord.model_validate({**calibration.to_dict(), "draws": draws})
    Path(path).write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")


def load_calibration(path: str | Path) -> Calibration:
    """Return the calibration at `path`; anything wrong raises `InputError` naming the file and the field."""
    where = Path(path)
    try:
        record = CalibrationRecord.model_validate_json(where.read_bytes())
    except FileNotFoundError:
        raise no_such_file(where, "a calibration; `tileq calibrate` writes them") from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({error.strerror}); `tileq calibrate` writes calibrations") from None
    except ValidationError as error:
        raise InputError(f"{where}: not a calibration: {first_error(error)}") from None
    try:
        return _object(record)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _object(record: CalibrationRecord) -> Calibration:
    if any(len(row) != 7 for row in record.draws):
        raise InputError("draws: a row does not have 7 coefficients")
    kept: dict[str, Any] = {
        "points": record.points,
        "scope": record.scope,
        "conditions": record.conditions.conditions(),
        "warnings": tuple(record.warnings),
    }
    return Calibration(
        time=record.iteration_time.time(),
        tile=record.tile.verdict(),
        held_out=tuple(RegimeError(**r.model_dump()) for r in record.held_out),
        regions=tuple(RegionError(**r.model_dump()) for r in record.regions),
        intervals=dict(record.intervals),
        draws=np.array(record.draws, dtype=float).reshape(-1, 7),
        **kept,
    )
