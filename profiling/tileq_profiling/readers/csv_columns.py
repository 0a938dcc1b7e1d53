"""Columns of a CSV file as arrays, in batches, each field checked; errors name the row as an editor shows it.

Plain files go through pyarrow, which splits a million rows in a fraction of a second. Files that contain a double
quote go through Python's csv module in strict mode, so that a stray quote that swallows lines is found. Both feed
the same conversions.
"""

from __future__ import annotations

__all__ = ["Column", "Kind", "first_fields", "read_columns", "row_number"]

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tileq_profiling.readers.source import Header, Source
from tileq_profiling.readers.values import MAX_TOKENS, WHOLE, BadValueError, parse_time, parse_whole
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["whole", "time", "stamp", "text"]

_BATCH_BYTES = 1 << 22
_BATCH_ROWS = 1 << 16
_STAMP = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?$"
_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})$"
STAMP = "expected a time like 2023-11-16 18:17:03.979, with the same kind of time zone (or none) in every row"


@dataclass(frozen=True, slots=True)
class Column:
    """A column to read: its position, its name in messages, how its fields are read."""

    index: int
    name: str
    kind: Kind


def read_columns(source: Source, header: Header, columns: list[Column]) -> list[Any]:
    """Return one array per column: int64 (whole), int64 or float64 (time), int64 ns (stamp), pyarrow text (text).

    Raises
    ------
    InputError
        Naming the first row and column that cannot be read, or a row with too few or too many fields.
    """
    import pyarrow as pa

    parts: list[list[Any]] = [[] for _ in columns]
    zone: list[bool | None] = [None]
    done = 0
    for batch in _batches(source, header, columns):
        for part, column, texts in zip(parts, columns, batch, strict=True):
            part.append(_convert(source, header, column, texts, done, zone))
        done += len(batch[0])
    if not done:
        raise InputError(f"{source.name} has a header (row {header.line}) but no rows below it")
    return [
        pa.chunked_array(part) if column.kind == "text" else np.concatenate(part)
        for part, column in zip(parts, columns, strict=True)
    ]


def row_number(source: Source, header: Header, record: int) -> int:
    """Return the line, as an editor counts, on which data record `record` (from 0) begins."""
    for number, (line, _) in enumerate(_records(source, header)):
        if number == record:
            return line
    return header.line + 1 + record


def first_fields(source: Source, header: Header) -> list[str]:
    """Return the fields of the first data row without surrounding spaces; [] when there is none."""
    for _, record in _records(source, header):
        return [field.strip() for field in record]
    return []


def _batches(source: Source, header: Header, columns: list[Column]) -> Iterator[list[pa.Array]]:
    return _quoted_batches(source, header, columns) if source.has_quotes else _plain_batches(source, header, columns)


def _plain_batches(source: Source, header: Header, columns: list[Column]) -> Iterator[list[pa.Array]]:
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    names = [f"{index}" for index in range(len(header.columns))]
    wanted = [names[column.index] for column in columns]
    try:
        with source.open_bytes() as stream:
            reader = pa_csv.open_csv(
                stream,
                read_options=pa_csv.ReadOptions(
                    use_threads=False, block_size=_BATCH_BYTES, skip_rows=header.line, column_names=names
                ),
                parse_options=pa_csv.ParseOptions(delimiter=header.delimiter, quote_char=False),
                convert_options=pa_csv.ConvertOptions(
                    include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string())
                ),
            )
            for batch in reader:
                # An empty first batch is how pyarrow reports a file without rows.
                if batch.num_rows:
                    yield [batch.column(position) for position in range(len(columns))]
    except pa.ArrowInvalid as problem:
        if not _explain(source, header):
            return
        raise InputError(f"{source.name} cannot be read as CSV: {str(problem).splitlines()[0][:160]}") from None


def _explain(source: Source, header: Header) -> int:
    """Walk the file slowly so that a ragged or undecodable row raises its own error; return how many rows there are."""
    return sum(1 for _ in _records(source, header))


def _quoted_batches(source: Source, header: Header, columns: list[Column]) -> Iterator[list[pa.Array]]:
    import pyarrow as pa

    rows: list[list[str]] = []
    for _, record in _records(source, header):
        rows.append([record[column.index] for column in columns])
        if len(rows) == _BATCH_ROWS:
            yield [pa.array(fields, pa.string()) for fields in zip(*rows, strict=True)]
            rows = []
    if rows:
        yield [pa.array(fields, pa.string()) for fields in zip(*rows, strict=True)]


def _records(source: Source, header: Header) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, fields) of each data row; a wrong number of fields is an `InputError`."""
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if source.has_quotes else csv.QUOTE_NONE
    with source.open_text() as text:
        reader = csv.reader(text, delimiter=header.delimiter, quoting=quoting, strict=True, skipinitialspace=True)
        line = 1
        while True:
            try:
                record = next(reader)
            except StopIteration:
                return
            except csv.Error as problem:
                raise InputError(f"{source.name} row {line}: {problem}; expected plain CSV fields") from None
            if line > header.line and record:
                if len(record) != len(header.columns):
                    raise InputError(
                        f"{source.name} row {line} has {len(record)} fields; expected {len(header.columns)} as in the "
                        "header; mend or remove the row"
                    )
                yield line, record
            line = reader.line_num + 1


def _convert(
    source: Source, header: Header, column: Column, texts: pa.Array, done: int, zone: list[bool | None]
) -> Any:
    import pyarrow.compute as pc

    texts = pc.ascii_trim_whitespace(texts)
    try:
        if column.kind == "text":
            return texts
        if column.kind == "whole":
            return _whole(texts)
        if column.kind == "time":
            return _time(texts)
        return _stamp(texts, zone)
    except _BadField as bad:
        field = texts[bad.row].as_py()
        row = row_number(source, header, done + bad.row)
        raise InputError(
            f"{source.name} row {row}, column {column.name}: {field[:60]!r}; {bad.expected}; mend or remove the row"
        ) from None


class _BadField(Exception):  # noqa: N818 - carries a position to the caller, never reaches a user
    def __init__(self, row: int, expected: str) -> None:
        super().__init__(expected)
        self.row = row
        self.expected = expected


def _whole(texts: pa.Array) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.match_substring_regex(texts, r"^[0-9]{1,18}$")
    if pc.all(plain).as_py():
        values = pc.cast(texts, pa.int64()).to_numpy()
        if values.max(initial=0) <= MAX_TOKENS:
            return values
        raise _BadField(int(np.argmax(values > MAX_TOKENS)), WHOLE)
    return np.array(_one_by_one(texts, parse_whole), np.int64)


def _time(texts: pa.Array) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.all(pc.match_substring_regex(texts, r"^[0-9]{1,18}$")).as_py():
        return pc.cast(texts, pa.int64()).to_numpy()
    if pc.all(pc.match_substring_regex(texts, r"^[0-9]{1,18}(\.[0-9]{0,20})?$")).as_py():
        return pc.cast(texts, pa.float64()).to_numpy()
    values = _one_by_one(texts, parse_time)
    return np.array(values, np.int64 if all(type(value) is int for value in values) else np.float64)


def _one_by_one(texts: pa.Array, parse: Any) -> list[Any]:
    values = []
    for row, text in enumerate(texts.to_pylist()):
        try:
            values.append(parse(text))
        except BadValueError as problem:
            raise _BadField(row, str(problem)) from None
    return values


def _stamp(texts: pa.Array, zone: list[bool | None]) -> Any:
    """Nanoseconds since 1970, UTC where the text names a zone; all rows must agree on having one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    good = pc.match_substring_regex(texts, _STAMP)
    _first_false(good, STAMP)
    zoned = pc.match_substring_regex(texts, _ZONE)
    if zone[0] is None:
        zone[0] = bool(zoned[0].as_py())
    _first_false(zoned if zone[0] else pc.invert(zoned), STAMP)
    kind = pa.timestamp("ns", "UTC") if zone[0] else pa.timestamp("ns")
    try:
        return pc.cast(pc.cast(texts, kind), pa.int64()).to_numpy()
    except pa.ArrowInvalid:
        pass
    for row, text in enumerate(texts):
        try:
            pc.cast(text, kind)
        except pa.ArrowInvalid:
            raise _BadField(row, STAMP) from None
    raise _BadField(0, STAMP)


def _first_false(flags: Any, expected: str) -> None:
    wrong = np.flatnonzero(~flags.to_numpy(zero_copy_only=False))
    if wrong.size:
        raise _BadField(int(wrong[0]), expected)
