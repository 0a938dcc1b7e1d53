"""The contract of a reader: a name, a line about it, a look at the content, and the reading itself."""

from __future__ import annotations

__all__ = ["Options", "Reader", "csv_reader", "need_column", "need_header"]

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tileq_profiling.readers.build import Rows, Zeros, build_trace, text_label
from tileq_profiling.readers.csv_columns import Column, Kind, read_columns, row_number
from tileq_profiling.readers.source import Header, Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may say beside the path.

    Parameters
    ----------
    zeros
        What to do with rows of 0 prompt or output tokens; None leaves it to the format.
    run
        Which run (from 1) of a file that holds several.
    count_tokens
        Tokenizer for formats that hold text: text -> number of tokens.
    chars_per_token
        For formats whose output length is in characters.
    """

    zeros: Zeros | None = None
    run: int | None = None
    count_tokens: Callable[[str], int] | None = None
    chars_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class Reader:
    """One format. `sniff` scores how surely the content is of it: 0 for no, higher for more specific evidence.

    `reads` is False for files of totals that are recognised only to say what to record or pass instead.
    """

    name: str
    summary: str
    sniff: Callable[[Source], float]
    read: Callable[[Source, Options], Trace]
    reads: bool = True


def need_header(source: Source) -> Header:
    """Return the CSV header, or raise `InputError` when the file is JSON."""
    if source.header is None:
        raise InputError(f"{source.name} is JSON; expected CSV with a header")
    return source.header


def need_column(source: Source, header: Header, *names: str) -> int:
    """Return the position of the first of `names`; raise `InputError` when absent or present twice."""
    folded = [column.casefold() for column in header.columns]
    for name in names:
        count = folded.count(name.casefold())
        if count > 1:
            raise InputError(f"{source.name} has {count} columns named {name!r}; expected one")
        if count:
            return folded.index(name.casefold())
    raise InputError(f"{source.name} has no column {names[0]!r}; it has: {', '.join(header.columns)[:200]}")


def csv_reader(
    name: str,
    summary: str,
    *,
    prompt: str,
    output: str,
    time: str | None = None,
    per_s: float = 1.0,
    time_kind: Kind = "time",
    also: tuple[str, ...] = (),
    never: tuple[str, ...] = (),
    labels: tuple[str, ...] = (),
    ones: tuple[str, ...] = (),
    zeros: Zeros = "error",
    note: str | None = None,
) -> Reader:
    """Return a reader of CSV files whose columns are addressed by name, wherever they stand.

    `also` names columns that must be there and `never` columns that must not, for telling formats apart; `labels`
    are read when present, `ones` must hold 1 in every row when present; `note` becomes a warning.
    """
    required = (prompt, output, *([time] if time else []), *also)

    def sniff(source: Source) -> float:
        header = source.header
        if header is None or not header.has(*required) or any(header.find(column) is not None for column in never):
            return 0.0
        return float(len(required))

    def read(source: Source, options: Options) -> Trace:
        header = need_header(source)
        named = [label for label in labels if header.find(label) is not None]
        single = [column for column in ones if header.find(column) is not None]
        wanted: list[tuple[str, Kind]] = [(prompt, "whole"), (output, "whole"), *((c, "whole") for c in single)]
        wanted += [(label, "text") for label in named]
        wanted += [(time, time_kind)] if time else []
        columns = [Column(need_column(source, header, column), column, kind) for column, kind in wanted]
        arrays = dict(zip((column for column, _ in wanted), read_columns(source, header, columns), strict=True))
        rows = Rows(
            prompts=arrays[prompt],
            outputs=arrays[output],
            times=arrays[time] if time else None,
            per_s=per_s,
            where=lambda row: f"row {row_number(source, header, row)}",
            labels=tuple(text_label(label, arrays[label]) for label in named),
            warnings=[note] if note else [],
        )
        for column in single:
            _refuse_others(source, rows, column, arrays[column])
        return build_trace(source, name, rows, options.zeros or zeros)

    return Reader(name, summary, sniff, read)


def _refuse_others(source: Source, rows: Rows, column: str, values: Int[np.ndarray, "row"]) -> None:
    wrong = np.flatnonzero(values != 1)
    if wrong.size:
        row = int(wrong[0])
        raise InputError(
            f"{source.name} {rows.where(row)}, column {column}: {values[row]}; expected 1, a request a row"
        )
