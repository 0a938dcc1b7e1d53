"""A profile on disk: a CSV or Parquet table and, beside it, a JSON header with its conditions."""

from __future__ import annotations

__all__ = ["ProfileHeader", "load_profile", "save_profile"]

import csv
from codecs import BOM_UTF8
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from tileq_profiling.edge import first_error
from tileq_profiling.profile.conditions import Conditions
from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError, no_such_file

_COLUMNS = ("tokens", "pairs", "kv_tokens", "sequences", "seconds", "repeats", "prefill_tokens")


class ConditionsRecord(BaseModel):
    """`Conditions` as the file has them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    device: str = ""
    model: str = ""
    dtype: str = "bf16"
    kv_dtype: str | None = None
    tp: int = 1
    libraries: dict[str, str] = {}
    clocks: dict[str, float] = {}
    source: str = ""
    notes: list[str] = []

    def conditions(self) -> Conditions:
        """Return the frozen object."""
        values = self.model_dump()
        return Conditions(**{**values, "notes": tuple(values["notes"])})


class ProfileHeader(BaseModel):
    """What the header beside the table says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    kind: Literal["tileq profile"] = "tileq profile"
    schema_version: Literal[1] = 1
    table: str
    scope: Literal["iteration", "layer operators"] = "iteration"
    unknown: list[str] = []
    conditions: ConditionsRecord = ConditionsRecord()


def save_profile(profile: Profile, path: str | Path) -> Path:
    """Write `path` (.csv or .parquet) and its header `path` + ".json"; return the header's path."""
    table = Path(path)
    columns = {name: getattr(profile, name) for name in _COLUMNS if name not in profile.unknown}
    if table.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table(columns), table)
    elif table.suffix == ".csv":
        with table.open("w", newline="", encoding="utf-8") as out:
            writer = csv.writer(out)
            writer.writerow(columns)
            writer.writerows(zip(*(map(_shortest, c.tolist()) for c in columns.values()), strict=True))
    else:
        raise InputError(f"{table}: expected a name ending in .csv or .parquet")
    header = ProfileHeader(
        table=table.name,
        scope=profile.scope,
        unknown=list(profile.unknown),
        conditions=ConditionsRecord.model_validate(profile.conditions.to_dict()),
    )
    where = table.with_name(table.name + ".json")
    where.write_text(header.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return where


def _shortest(value: float) -> str:
    if value != value:
        return ""  # an unknown split stays an empty field
    return str(int(value)) if value == int(value) else repr(value)


def load_profile(path: str | Path) -> Profile:
    """Return the profile whose table or header is at `path`; what is wrong raises `InputError` with file and field."""
    given = Path(path)
    header_path = given if given.suffix == ".json" else given.with_name(given.name + ".json")
    try:
        header = ProfileHeader.model_validate_json(header_path.read_bytes().removeprefix(BOM_UTF8), strict=False)
    except OSError as error:
        raise InputError(
            f"{header_path}: no profile header to read ({error.strerror}); `save_profile` writes one"
        ) from None
    except ValidationError as error:
        raise InputError(f"{header_path}: {first_error(error)}") from None
    table = header_path.with_name(header.table)
    columns = _parquet(table) if table.suffix == ".parquet" else _csv(table)
    missing = [n for n in _COLUMNS if n not in columns and n not in ("repeats", "prefill_tokens", *header.unknown)]
    if missing:
        raise InputError(f"{table}: has no column {missing[0]!r}; expected {', '.join(_COLUMNS)}")
    known = {name: columns[name] for name in _COLUMNS if name in columns and name not in header.unknown}
    try:
        return Profile.of(**known, scope=header.scope, conditions=header.conditions.conditions())
    except InputError as error:
        raise InputError(f"{table}: {error}") from None


def _csv(path: Path) -> dict[str, np.ndarray]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines)
            rows = [(reader.line_num, row) for row in reader if row]  # spreadsheets leave empty lines at the end
    except FileNotFoundError:
        raise no_such_file(path, "a table of measurements, CSV or Parquet") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not rows:
        raise InputError(f"{path}: is empty; expected a header line of {', '.join(_COLUMNS)}")
    names, body = rows[0][1], [row for _, row in rows[1:]]
    out: dict[str, np.ndarray] = {}
    for number, row in rows[1:]:
        if len(row) != len(names):
            raise InputError(f"{path}, line {number}: {len(row)} fields; expected {len(names)}")
    for i, name in enumerate(names):
        try:
            out[name] = np.array([float(row[i]) if row[i] else np.nan for row in body])
        except ValueError as error:
            raise InputError(f"{path}: column {name}: {error}") from None
    return out


def _parquet(path: Path) -> dict[str, np.ndarray]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet: {error}") from None
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
