"""Server logs: matches of a pattern in a stream of any length, with the process each came from.

Lines are never assumed whole: processes write over each other and a log ends where the disk did. A pattern that
demands its last field finds the complete entries; the marker that opens an entry counts all of them, so the
difference is what was lost.
"""

from __future__ import annotations

__all__ = ["Entry", "LogClock", "entries", "pieces", "process_of"]

import re
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

from tileq_profiling.readers.source import Source

_PIECE_BYTES = 1 << 22
_LONGEST_LINE = 1 << 24
_PID = re.compile(rb"pid=(\d+)\)")
_RANK = re.compile(rb"EngineCore_?(?:DP)?(\d+)")
_ENGINE = re.compile(rb"Engine (\d+): ?$")


def pieces(source: Source) -> Iterator[bytes]:
    """Yield the text in pieces of whole lines, a few megabytes each."""
    with source.open_bytes() as stream:
        tail = b""
        while piece := stream.read(_PIECE_BYTES):
            piece = tail + piece
            cut = piece.rfind(b"\n") + 1
            if not cut and len(piece) < _LONGEST_LINE:
                tail = piece
                continue
            cut = cut or len(piece)
            tail = piece[cut:]
            yield piece[:cut]
        if tail:
            yield tail


class Entry(NamedTuple):
    """One log entry: its match and what stands before it on its line."""

    match: re.Match[bytes]
    before: bytes


def entries(source: Source, marker: bytes, pattern: re.Pattern[bytes]) -> Iterator[Entry | None]:
    """Yield each entry of `pattern` with the text before it on its line; None for a marker that opens no entry."""
    for piece in pieces(source):
        found = 0
        for match in pattern.finditer(piece):
            found += 1
            yield Entry(match, piece[piece.rfind(b"\n", 0, match.start()) + 1 : match.start()])
        for _ in range(piece.count(marker) - found):
            yield None


@lru_cache(maxsize=4096)  # a stamp of whole seconds: what stands before an entry repeats for many lines
def process_of(before: bytes) -> str:
    """Return which process wrote an entry, from the text before it: "engine 0 pid 123", or "" where it says nothing."""
    named = []
    engine = _ENGINE.search(before) or _last(_RANK, before)
    if engine is not None:
        named.append(f"engine {int(engine.group(1))}")
    pid = _last(_PID, before)
    if pid is not None:
        named.append(f"pid {int(pid.group(1))}")
    return " ".join(named)


def _last(pattern: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    found = list(pattern.finditer(text))
    return found[-1] if found else None


_STAMPS = (
    (re.compile(rb"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?"), "%Y-%m-%d %H:%M:%S"),
    (re.compile(rb"(\d\d-\d\d-\d{4} \d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?"), "%m-%d-%Y %H:%M:%S"),
    (re.compile(rb"\b(\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,](\d{1,6}))?"), "%Y %m-%d %H:%M:%S"),
)
_LEAP_YEAR = "2024 "  # vLLM writes no year; the 29th of February must parse
_DAY_S = 86400.0
_YEAR_S = 366 * _DAY_S


class LogClock:
    """Time stamps of log lines as seconds since the first one; a year that turns without being written is mended."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._years = 0

    def seconds(self, before: bytes) -> float | None:
        """Return the time of a line, or None when it carries no stamp."""
        for pattern, form in _STAMPS:
            found = _last(pattern, before)
            if found is not None:
                return self._since(found, form)
        return None

    def _since(self, found: re.Match[bytes], form: str) -> float | None:
        text = found.group(1).decode().replace("T", " ")
        try:
            stamp = datetime.strptime((_LEAP_YEAR if form.startswith("%Y %m") else "") + text, form)
        except ValueError:
            return None
        fraction = float("0." + found.group(2).decode()) if found.group(2) else 0.0
        time = (stamp - datetime(2000, 1, 1)).total_seconds() + fraction
        if form.startswith("%Y %m"):
            if time + self._years * _YEAR_S < self._last - 300 * _DAY_S:
                self._years += 1
            time += self._years * _YEAR_S
            self._last = time
        self._first = time if self._first is None else self._first
        return time - self._first
