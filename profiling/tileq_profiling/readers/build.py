"""From raw columns to a `Trace`: zeros, order, the first arrival, and the warnings a user needs."""

from __future__ import annotations

__all__ = ["Rows", "Zeros", "build_trace", "only_one", "text_label"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Label, PrefixBlocks, Trace
from tileq_theory.errors import InputError

Zeros = Literal["error", "skip"]
# Fewer requests than this share ticks by chance often enough that a warning would be noise.
_TICK_ROWS = 20


@dataclass(slots=True)
class Rows:
    """Columns as read, one entry a row, before anything is left out.

    `times` may be int or float in any unit; `per_s` is how many of the unit make a second. `where(i)` names row i
    in a message. `failed` marks rows that the recorder itself calls failures, with their reason.
    """

    prompts: Int[np.ndarray, "row"]
    outputs: Int[np.ndarray, "row"]
    times: Any = None
    per_s: float = 1.0
    where: Callable[[int], str] = lambda row: f"request {row + 1}"
    labels: tuple[Label, ...] = ()
    blocks: PrefixBlocks | None = None
    skipped: list[tuple[str, int]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def build_trace(source: Source, format_name: str, rows: Rows, zeros: Zeros) -> Trace:
    """Return the trace of `rows`: rows without prompt or output tokens refused or skipped, sorted by arrival."""
    keep = _without_zeros(source, rows, zeros)
    kept = np.flatnonzero(keep)
    if not kept.size:
        reasons = (
            "; ".join(f"{count} row{'' if count == 1 else 's'}: {reason}" for reason, count in rows.skipped)
            or "no requests in it"
        )
        raise InputError(f"{source.name} holds no usable request ({reasons}); expected at least one")
    arrival, warnings = None, list(rows.warnings)
    if rows.times is not None:
        times = np.asarray(rows.times)[kept]
        order = np.argsort(times, kind="stable")
        if np.any(order[1:] < order[:-1]):
            warnings.append("rows were not in order of arrival; requests are sorted by it")
        kept, times = kept[order], times[order]
        arrival = (times - times[0]).astype(np.float64) / rows.per_s
        warnings.extend(_tick_warning(arrival))
    return Trace(
        prompt_tokens=rows.prompts[kept],
        output_tokens=rows.outputs[kept],
        arrival_s=arrival,
        source=f"{source.name} ({format_name})",
        format=format_name,
        skipped=tuple(rows.skipped),
        warnings=tuple(warnings),
        blocks=rows.blocks.take(kept) if rows.blocks is not None else None,
        labels=tuple(Label(label.name, label.values, label.codes[kept]) for label in rows.labels),
    )


def _without_zeros(source: Source, rows: Rows, zeros: Zeros) -> Bool[np.ndarray, "row"]:
    keep = np.ones(rows.prompts.size, bool)
    for name, lengths in (("prompt", rows.prompts), ("output", rows.outputs)):
        bad = keep & (lengths < 1)
        count = int(np.count_nonzero(bad))
        if not count:
            continue
        if zeros == "error":
            first = int(np.argmax(bad))
            raise InputError(
                f"{source.name} {rows.where(first)} has 0 {name} tokens; expected a whole number of 1 or more; remove "
                "the row or pass zeros='skip'"
            )
        rows.skipped.append((f"0 {name} tokens (a request that failed)", count))
        keep &= ~bad
    return keep


def _tick_warning(arrival: Float[np.ndarray, "request"]) -> Sequence[str]:
    ticks = np.unique(arrival)
    if arrival.size < _TICK_ROWS or 2 * ticks.size > arrival.size:
        return ()
    if ticks.size == 1:
        return (f"all {arrival.size} arrivals are at the same time",)
    tick = float(np.median(np.diff(ticks)))
    return (
        f"arrivals are quantised to about {tick:.3g} s ({ticks.size} distinct times for {arrival.size} requests); "
        "spread them (spread_arrivals) before using gaps",
    )


def text_label(name: str, texts: Any) -> Label:
    """Return the label of a column of text (a list or a pyarrow array); codes follow first appearance."""
    import pyarrow as pa

    column = pa.chunked_array([texts]) if isinstance(texts, list) else texts
    coded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    return Label(name, tuple(coded.dictionary.to_pylist()), coded.indices.to_numpy().astype(np.int64))


def only_one(source: Source, kind: str, items: Sequence[Any], run: int | None) -> Any:
    """Return the item that `run` (from 1) names, or the only one; several without a choice are an error."""
    if run is not None:
        if not 1 <= run <= len(items):
            raise InputError(f"{source.name} has {len(items)} {kind}; run={run} is not one of them")
        return items[run - 1]
    if len(items) != 1:
        raise InputError(f"{source.name} has {len(items)} {kind}; pass run=1..{len(items)} to choose one")
    return items[0]
