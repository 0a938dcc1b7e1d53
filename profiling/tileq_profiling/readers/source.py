"""A file on disk before its format is known: opened safely, decompressed, decoded, its beginning looked at."""

from __future__ import annotations

__all__ = ["Header", "Source"]

import csv
import gzip
import io
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

from tileq_profiling.readers.strict_json import DuplicateKeyError, parse_json
from tileq_theory.errors import InputError, no_such_file

_HEAD_BYTES = 1 << 16
_SCAN_BYTES = 1 << 22
_GZIP = b"\x1f\x8b"
_JSON_START = re.compile(rb'\{|\[(?!\d+-)\s*(?:[\[{"\]\-0-9]|true|false|null|NaN|Infinity|$)')
_BINARY = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"PAR1": "a Parquet file; write it as CSV",
    b"\x28\xb5\x2f\xfd": "a zstd archive; unpack it first",
    b"BZh": "a bzip2 archive; unpack it first",
    b"\xfd7zXZ": "an xz archive; unpack it first",
    b"\x93NUMPY": "a NumPy file; write it as CSV",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
}


@dataclass(frozen=True, slots=True)
class Header:
    """First line of a CSV file: column names without surrounding spaces, its line number and the separator."""

    columns: tuple[str, ...]
    line: int
    delimiter: str

    def find(self, *names: str) -> int | None:
        """Return the position of the first of `names` that is a column (any case), or None."""
        folded = [column.casefold() for column in self.columns]
        for name in names:
            if name.casefold() in folded:
                return folded.index(name.casefold())
        return None

    def has(self, *names: str) -> bool:
        """Return whether every name is a column."""
        return all(self.find(name) is not None for name in names)


class Source:
    """One readable text file, plain or gzip, and what its beginning shows.

    Raises `InputError` at construction for what no reader could use: a missing file, a directory, an empty or a
    binary file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.name = self.path.name or str(path)
        self._check_file()
        with self.path.open("rb") as raw:
            self._gzipped = raw.read(2) == _GZIP
        with self.open_bytes() as stream:
            self.head = stream.read(_HEAD_BYTES)
        self._check_head()

    def _check_file(self) -> None:
        if self.path.is_dir():
            raise InputError(f"{self.path} is a folder; expected a trace file in it")
        if not self.path.exists():
            raise no_such_file(self.path, "a trace file")
        if not self.path.is_file():
            raise InputError(f"{self.path} is not a regular file; save the trace to a file first")

    def _check_head(self) -> None:
        for magic, meaning in _BINARY.items():
            if self.head.startswith(magic):
                raise InputError(f"{self.name} is {meaning}")
        if not self.head.strip():
            raise InputError(f"{self.name} is empty; expected at least one request or measurement")
        if b"\0" in self.head:
            raise InputError(f"{self.name} is a binary file; expected text (CSV, JSON or JSON lines, plain or gzip)")

    def open_bytes(self) -> io.BufferedIOBase:
        """Return the decompressed bytes from the start, without a byte-order mark."""
        # The caller closes it: every use is a `with`.
        stream = cast("io.BufferedIOBase", (gzip.open if self._gzipped else open)(self.path, "rb"))
        if stream.read(3) != b"\xef\xbb\xbf":
            stream.seek(0)
        return stream

    def open_text(self) -> io.TextIOWrapper:
        """Return the text from the start; line endings are left as they are."""
        return io.TextIOWrapper(cast("IO[bytes]", self.open_bytes()), encoding="utf-8", errors="strict", newline="")

    @cached_property
    def has_quotes(self) -> bool:
        """Whether the file contains a double quote; refuses NUL bytes on the way."""
        found = False
        with self.open_bytes() as stream:
            while chunk := stream.read(_SCAN_BYTES):
                found = found or b'"' in chunk
                if b"\0" in chunk:
                    raise InputError(f"{self.name} contains NUL bytes; expected a text file")
        return found

    @cached_property
    def is_json(self) -> bool:
        """Whether the text opens a JSON object or array (a log line that opens with a time in brackets does not)."""
        return _JSON_START.match(self.head.lstrip()) is not None

    @cached_property
    def header(self) -> Header | None:
        """The first line as CSV columns; None for JSON."""
        if self.is_json:
            return None
        with self.open_text() as text:
            for number, line in enumerate(text, start=1):
                if line.strip():
                    return _split_header(line, number)
        return None

    @cached_property
    def _first_line(self) -> tuple[Any, bool]:
        """First non-blank line as JSON (None if it is none) and whether another follows."""
        with self.open_text() as text:
            first = None
            for line in text:
                if not line.strip():
                    continue
                if first is not None:
                    return first, True
                try:
                    first = parse_json(line)
                except (DuplicateKeyError, ValueError):
                    return None, False
            return first, False

    @cached_property
    def is_lines(self) -> bool:
        """Whether the file is JSON lines: its first line is one whole object and another line follows."""
        first, more = self._first_line
        return self.is_json and isinstance(first, dict) and more

    @cached_property
    def document(self) -> Any:
        """The whole file as one JSON value."""
        with self.open_text() as text:
            body = text.read()
        try:
            return parse_json(body)
        except DuplicateKeyError as problem:
            raise InputError(f"{self.name}: {problem}; remove one of the two") from None
        except json.JSONDecodeError as problem:
            where = f"line {problem.lineno} column {problem.colno}"
            raise InputError(f"{self.name} {where}: not valid JSON ({problem.msg}); is the file complete?") from None
        except ValueError as problem:
            raise InputError(f"{self.name}: not usable JSON ({problem})") from None

    @cached_property
    def first(self) -> dict[str, Any]:
        """First JSON object: of the first line, of the list, or the document itself; {} when there is none."""
        if not self.is_json:
            return {}
        value = self._first_line[0] if self.is_lines else self.document
        if isinstance(value, list):
            value = value[0] if value else None
        return value if isinstance(value, dict) else {}

    @property
    def shape(self) -> str:
        """What was seen, for the message about an unknown format."""
        if self.is_json:
            keys = ", ".join(list(self.first)[:12]) or "none"
            return f"JSON {'lines' if self.is_lines else 'document'} with keys: {keys}"
        columns = ", ".join(self.header.columns[:12]) if self.header else ""
        return f"text with columns: {columns[:300]}"


def _split_header(line: str, number: int) -> Header:
    line = line.rstrip("\r\n")
    delimiter = max(",;\t", key=line.count)
    try:
        names = next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))
    except (csv.Error, StopIteration):
        names = line.split(delimiter)
    return Header(tuple(name.strip() for name in names), number, delimiter)
