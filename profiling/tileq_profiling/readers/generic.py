"""Any CSV whose header says what its columns are: the last resort.

Lengths by their usual names (prompt_tokens, input_len, ...). A numeric time must say its unit in its name
(arrival_s, timestamp_ms, "arrival (ns)"): without a unit it is refused rather than guessed. Times like 2024-05-10
10:00:00 need none.
"""

from __future__ import annotations

__all__ = ["READERS"]

import re

from tileq_profiling.readers.base import Options, Reader, need_header
from tileq_profiling.readers.build import Rows, build_trace
from tileq_profiling.readers.csv_columns import Column, first_fields, read_columns, row_number
from tileq_profiling.readers.source import Header, Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

_TOKENS = r"(num_|n_)?({words})(_|s_)?(tokens|token_count|toks|len|length|size|tokens_count)"
_PROMPT = re.compile(_TOKENS.format(words="prompt|input|context|prefill|request") + "|isl")
_OUTPUT = re.compile(_TOKENS.format(words="output|generated|generation|completion|decode|response") + "|osl")
_TIME = re.compile(
    r"(request_)?(arrival|arrived_at|arrival_time|arrival_timestamp|timestamp|time|start|start_time|launch_time|"
    r"send_time)(_(?P<unit>s|sec|secs|seconds|ms|milliseconds|us|microseconds|ns|nanoseconds))?"
)
_PER_S = {"s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0, "ms": 1e3, "milliseconds": 1e3} | {
    "us": 1e6,
    "microseconds": 1e6,
    "ns": 1e9,
    "nanoseconds": 1e9,
}
_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.casefold()).strip("_")


def _matching(header: Header, pattern: re.Pattern[str]) -> list[int]:
    return [index for index, name in enumerate(header.columns) if pattern.fullmatch(_plain(name))]


def _sniff(source: Source) -> float:
    header = source.header
    found = header is not None and _matching(header, _PROMPT) and _matching(header, _OUTPUT)
    return 0.1 if found else 0.0


def _one(source: Source, header: Header, pattern: re.Pattern[str], what: str) -> Column:
    found = _matching(header, pattern)
    names = ", ".join(header.columns[index] for index in found)
    if len(found) != 1:
        told = f"several {what} columns ({names})" if found else f"no {what} column among {', '.join(header.columns)}"
        raise InputError(f"{source.name} has {told[:200]}; expected one: rename or remove the others")
    return Column(found[0], header.columns[found[0]], "whole")


def _time_column(source: Source, header: Header) -> tuple[Column, float] | None:
    found = _matching(header, _TIME)
    if not found:
        return None
    if len(found) > 1:
        names = ", ".join(header.columns[index] for index in found)
        raise InputError(f"{source.name} has several time columns ({names}); expected one: remove the others")
    name = header.columns[found[0]]
    fields = first_fields(source, header)
    if found[0] < len(fields) and _STAMP.match(fields[found[0]]):
        return Column(found[0], name, "stamp"), 1e9
    match = _TIME.fullmatch(_plain(name))
    unit = match.group("unit") if match else None
    if unit is None:
        raise InputError(
            f"{source.name}, column {name}: no unit; rename it to {name}_s, {name}_ms, {name}_us or {name}_ns"
        )
    return Column(found[0], name, "time"), _PER_S[unit]


def _read(source: Source, options: Options) -> Trace:
    header = need_header(source)
    columns = [_one(source, header, _PROMPT, "prompt-length"), _one(source, header, _OUTPUT, "output-length")]
    timed = _time_column(source, header)
    arrays = read_columns(source, header, [*columns, timed[0]] if timed else columns)
    rows = Rows(arrays[0], arrays[1], where=lambda row: f"row {row_number(source, header, row)}")
    if timed:
        rows.times, rows.per_s = arrays[2], timed[1]
    else:
        rows.warnings.append("no arrival column recognised: lengths without arrivals; pass a rate")
    names = ", ".join(column.name for column in [*columns, *([timed[0]] if timed else [])])
    rows.warnings.append(f"not a format known by name: read by its column names ({names})")
    return build_trace(source, "csv", rows, options.zeros or "error")


READERS = (Reader("csv", "Any CSV with recognisable column names; times need a unit in the name", _sniff, _read),)
