"""Azure LLM inference traces of 2023 and 2024, and NanoFlow's lengths, which share one header.

Columns TIMESTAMP, ContextTokens, GeneratedTokens. 2023 has times without a zone and 7 fractional digits, 2024 has
times with a zone, NanoFlow writes XXX: lengths alone. Sources: Patel et al., Splitwise, ISCA 2024; Stojkovic et
al., DynamoLLM, HPCA 2025; Zhu et al., NanoFlow, 2024. A row without prompt or output tokens is a request that the
service did not serve: it is left out and counted.
"""

from __future__ import annotations

__all__ = ["READERS"]

import re

from tileq_profiling.readers.base import Options, Reader, need_column, need_header
from tileq_profiling.readers.build import Rows, build_trace
from tileq_profiling.readers.csv_columns import Column, first_fields, read_columns, row_number
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

_COLUMNS = ("ContextTokens", "GeneratedTokens", "TIMESTAMP")
_ZONE = re.compile(r"(Z|[+-]\d\d:?\d\d)$")
NO_TIME = "XXX"


def _first_time(source: Source) -> str:
    """Return the time field of the first data row, '' when there is none."""
    header = source.header
    if header is None or not header.has(*_COLUMNS):
        return ""
    fields = first_fields(source, header)
    return fields[header.find("TIMESTAMP") or 0] if fields else ""


def _kind(source: Source) -> str:
    first = _first_time(source)
    if first == NO_TIME:
        return "nanoflow"
    return "azure-2024" if _ZONE.search(first[10:]) else "azure-2023"


def _read(source: Source, options: Options) -> Trace:
    header = need_header(source)
    kind = _kind(source)
    times = kind != "nanoflow"
    columns = [Column(need_column(source, header, name), name, "whole") for name in _COLUMNS[:2]]
    columns.append(Column(need_column(source, header, "TIMESTAMP"), "TIMESTAMP", "stamp" if times else "text"))
    prompts, outputs, stamps = read_columns(source, header, columns)
    rows = Rows(prompts, outputs, where=lambda row: f"row {row_number(source, header, row)}")
    if times:
        rows.times, rows.per_s = stamps, 1e9
    else:
        for index, text in enumerate(stamps.to_pylist()):
            if text != NO_TIME:
                raise InputError(
                    f"{source.name} {rows.where(index)}, column TIMESTAMP: {text[:60]!r}; expected {NO_TIME} as in the "
                    "first row, or a time in every row"
                )
        rows.warnings.append(f"TIMESTAMP is {NO_TIME} in every row: lengths without arrivals; pass a rate")
    return build_trace(source, kind, rows, options.zeros or "skip")


def _reader(name: str, summary: str) -> Reader:
    def sniff(source: Source) -> float:
        header = source.header
        return 3.0 if header is not None and header.has(*_COLUMNS) and _kind(source) == name else 0.0

    return Reader(name, summary, sniff, _read)


READERS = (
    _reader("azure-2023", "Azure LLM inference trace 2023 (CSV; times without a zone)"),
    _reader("azure-2024", "Azure LLM inference trace 2024 (CSV; times with a zone)"),
    _reader("nanoflow", "NanoFlow lengths (CSV; TIMESTAMP is XXX, no arrivals)"),
)
