"""A measured iteration time in a file: the `iteration_time` object as documents print it."""

from __future__ import annotations

__all__ = ["measured_on", "named_or_none", "read_iteration_time"]

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError, near_matches
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand, Provenance

if TYPE_CHECKING:
    from tileq_theory.calibrations import NamedCalibration

_COEFFICIENTS = (
    "launch_s",
    "weight_floor_s",
    "tile_s",
    "tile_tokens",
    "token_s",
    "pair_s",
    "kv_token_s",
    "sequence_s",
    "kv_counts_prefill",
)


def read_iteration_time(path: str | PathLike[str]) -> IterationTime:
    """Return the iteration time in a JSON file.

    The file is an object with the coefficients of `IterationTime` (seconds and tokens; missing ones are 0), or a
    document that holds such an object as `iteration_time`, as `tileq plan --json` prints.

    Raises
    ------
    InputError
        A folder, no such file, no JSON, a duplicate or unknown key, a value that is no number; the message names it.
    """
    from tileq_theory.hardware.files import read_json_object

    where = Path(path).expanduser()
    document = read_json_object(where)
    held = document.get("iteration_time", document)
    if not isinstance(held, dict):
        raise InputError(f"{where}: iteration_time is a {type(held).__name__}; expected an object of coefficients")
    coefficients = {name: value for name, value in held.items() if name not in ("provenance", "error_band")}
    for name in coefficients:
        if name not in _COEFFICIENTS:
            hint = near_matches("coefficients", name, _COEFFICIENTS)
            raise InputError(f"{where}: {name!r} is no coefficient of an iteration time; {hint}")
    try:
        return IterationTime(
            **{name: _value(name, value) for name, value in coefficients.items()},
            provenance=_provenance(held.get("provenance"), where),
            error_band=_band(held.get("error_band")),
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def measured_on(path: str | PathLike[str]) -> dict[str, Any]:
    """Return what a calibration's file says of its machine: `gpu`, `model`, `tp`, `dtype`; nothing that it leaves open.

    Format and tensor parallelism have defaults in the file, so they count only beside a named device or model.
    """
    from tileq_theory.hardware.files import read_json_object

    held = read_json_object(Path(path).expanduser()).get("conditions")
    if not isinstance(held, dict):
        return {}
    named = {to: held[name] for name, to in (("device", "gpu"), ("model", "model")) if held.get(name)}
    return {**named, **{name: held[name] for name in ("tp", "dtype") if named and held.get(name)}}


def named_or_none(given: str | PathLike[str]) -> NamedCalibration | None:
    """Return the ready-made calibration of that name; None for what is, or is named like, a file.

    Raises
    ------
    InputError
        Neither a file nor a name; the message lists the nearest names.
    """
    from tileq_theory.calibrations import calibration_names, named_calibration

    where, names = Path(given).expanduser(), calibration_names()
    if not isinstance(given, str) or where.exists():
        return None
    if given in names:
        return named_calibration(given)
    if where.suffix in (".json", ".csv", ".toml", ".txt"):
        return None
    raise InputError(f"calibration {given!r}: no such file, nor name; {near_matches('calibrations', given, names)}")


def _value(name: str, value: Any) -> Any:
    wanted = bool if name == "kv_counts_prefill" else (int, float)
    if isinstance(value, bool) != (wanted is bool) or not isinstance(value, wanted):
        raise InputError(f"{name} is {value!r}; expected {'true or false' if wanted is bool else 'a number'}")
    return value


def _provenance(held: Any, where: Path) -> Provenance:
    if not isinstance(held, dict):
        return Provenance("measured", f"file {where.name}")
    notes = held.get("notes", [])
    return Provenance(
        str(held.get("kind", "measured")),
        f"{held.get('source', '')} (file {where.name})".strip(),
        tuple(str(note) for note in notes) if isinstance(notes, list) else (),
    )


def _band(held: Any) -> ErrorBand:
    if held is None:
        return ErrorBand(basis="the file states no error")
    if not isinstance(held, dict) or not {"low", "high"} <= set(held):
        raise InputError(f"error_band is {held!r}; expected an object with low and high")
    numbers = {name: float(_value(name, held[name])) for name in ("low", "high", "coverage") if name in held}
    return ErrorBand(**numbers, basis=str(held.get("basis", "as the file states")))
