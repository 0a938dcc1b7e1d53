"""Columns of CSV tables by name, and JSON numbers, as floats; anything else is refused with its row and field."""

from __future__ import annotations

__all__ = ["number", "numbers", "table_columns", "texts"]

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_profiling.readers.base import need_column, need_header
from tileq_profiling.readers.csv_columns import Column, Kind, read_columns
from tileq_profiling.readers.source import Source
from tileq_theory.errors import InputError

_NUMBER = "expected a finite number of 0 or more"


def table_columns(
    source: Source, numeric: Sequence[str], text: Sequence[str] = ()
) -> tuple[dict[str, Float[np.ndarray, "row"]], dict[str, list[str]]]:
    """Return the named columns of a CSV file: numbers of 0 or more as floats, and texts."""
    header = need_header(source)
    wanted: list[tuple[str, Kind]] = [*((name, "time") for name in numeric), *((name, "text") for name in text)]
    if not wanted:
        raise InputError(f"{source.name} has none of this format's columns; it has: {', '.join(header.columns)[:200]}")
    columns = [Column(need_column(source, header, name), name, kind) for name, kind in wanted]
    read = dict(zip((name for name, _ in wanted), read_columns(source, header, columns), strict=True))
    return (
        {name: np.asarray(read[name], np.float64) for name in numeric},
        {name: [value or "" for value in read[name].to_pylist()] for name in text},
    )


def texts(source: Source, name: str) -> list[str]:
    """Return one text column."""
    return table_columns(source, (), (name,))[1][name]


def number(value: Any, at: str, *, missing: bool = False) -> float:
    """Return a JSON number as a float; NaN for None when `missing`; `at` names file, place and field in the error."""
    if value is None and missing:
        return math.nan
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise InputError(f"{at}: {str(value)[:60]}; {_NUMBER}; mend or remove it")
    return float(value)


def numbers(values: Any, at: str) -> Float[np.ndarray, "entry"]:
    """Return a JSON list of numbers of 0 or more."""
    if not isinstance(values, list):
        raise InputError(f"{at}: {str(values)[:40]!r}; expected a list of numbers")
    return np.array([number(value, f"{at}, entry {place}") for place, value in enumerate(values, start=1)], np.float64)
