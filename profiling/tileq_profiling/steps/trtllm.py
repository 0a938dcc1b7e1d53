"""TensorRT-LLM's iteration statistics: JSON of /metrics and logs, the form of 2023, and the PyTorch backend's text.

The JSON of 2025 has iterLatencyMS; its inflightBatchingStats have the batch. The form of 2023 ("Active Request
Count", ...) has time stamps of a second and no latency: paths over time only. The text log (`iter = 12, ...`) gives
with each iteration the device time of the one before it, so the two are matched per rank; the time that follows an
iteration without requests is idle time and is left out. Sources: TensorRT-LLM's executor documentation and
_torch/pyexecutor/py_executor.py.
"""

from __future__ import annotations

__all__ = ["PROFILE_READERS", "RUN_READERS"]

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, RunOptions, RunReader
from tileq_profiling.steps.columns import number
from tileq_profiling.steps.log_lines import LogClock
from tileq_profiling.steps.make_run import make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_profiling.steps.run import MeasuredRun
from tileq_profiling.steps.series import SeriesBuilder
from tileq_profiling.steps.steps_table import StepRows
from tileq_profiling.steps.trtllm_text import SNIFF_TEXT, text_steps
from tileq_theory.errors import InputError

_SNIFF_JSON = rb'"iterLatencyMS"'
_SNIFF_2023 = rb'"Active Request Count"'
_OPENING = re.compile(r"[{\[]")


def iterations(source: Source, left: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line, record) of each iteration: one JSON object a line behind any prefix, or a list of them."""
    with source.open_text() as text:
        for place, line in enumerate(text, start=1):
            opening = line.find("{")
            if opening < 0:
                continue
            bracket = line.find("[{")
            start = bracket if 0 <= bracket < opening else opening
            try:
                value, _ = json.JSONDecoder().raw_decode(line, start)
            except ValueError:
                left["truncated or overwritten iteration lines"] += 1
                continue
            for record in value if isinstance(value, list) else [value]:
                if isinstance(record, dict) and ("iterLatencyMS" in record or "Active Request Count" in record):
                    yield place, record


def _documents(source: Source, left: Counter[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the iterations of a file: line by line, or of one document that spans lines."""
    found = False
    for place, record in iterations(source, left):
        found = True
        yield place, record
    if not found and source.is_json:
        left.clear()
        document = source.document
        for place, record in enumerate(document if isinstance(document, list) else [document], start=1):
            if isinstance(record, dict):
                yield place, record


def _read_profile(place: Place, options: ProfileOptions) -> ProfileReading:
    source, left = place.text(), Counter[str]()
    if not place.marked(_SNIFF_JSON):
        raise InputError(
            f"{source.name} is TensorRT-LLM's log of 2023, which gives no time of an iteration; expected iterLatencyMS "
            "(enable iteration statistics of a version of 2024 or later); read_run takes the paths over time"
        )
    table = StepRows(options.max_rows)
    for line, record in _documents(source, left):
        row = _step(source, line, record, left)
        if row is not None:
            table.append(*row)
    if not table.held:
        told = "; ".join(f"{count} {reason}" for reason, count in left.items()) or "no iteration in it"
        raise InputError(f"{source.name} holds no usable iteration ({told})")
    profile = table.profile(Conditions(source=source.name))
    kv_known = "kv_tokens" not in profile.unknown
    notes = [f"{count} {reason}" for reason, count in left.items()] + table.notes()
    warnings = [] if kv_known else ["these statistics do not tell KV tokens (numGenKvTokens came later)"]
    return finish("trtllm-iterations", [Part({}, profile)], joinable=True, left_out=notes, warnings=warnings)


def _step(
    source: Source, line: int, record: dict[str, Any], left: Counter[str]
) -> tuple[float, float, float, float, float] | None:
    at = f"{source.name} line {line}, field"
    batch = record.get("inflightBatchingStats")
    if not isinstance(batch, dict):
        left["iterations without inflightBatchingStats"] += 1
        return None
    ms = number(record.get("iterLatencyMS"), f"{at} iterLatencyMS")
    prefill = number(batch.get("numCtxTokens"), f"{at} numCtxTokens")
    decodes = number(batch.get("numGenRequests"), f"{at} numGenRequests")
    contexts = number(batch.get("numContextRequests"), f"{at} numContextRequests")
    if prefill + decodes == 0:
        left["iterations without tokens"] += 1
        return None
    if ms == 0:
        left["iterations of 0 ms"] += 1
        return None
    kv = number(batch.get("numGenKvTokens"), f"{at} numGenKvTokens", missing=True)
    return prefill + decodes, prefill, kv, contexts + decodes, ms / 1e3


def _read_run(place: Place, options: RunOptions) -> MeasuredRun:
    source, left = place.text(), Counter[str]()
    builder, clock, capacity = SeriesBuilder(0.0), LogClock(), None
    for line, record in _documents(source, left):
        capacity = _report(source, line, record, builder, clock) or capacity
    if not len(builder):
        told = "; ".join(f"{count} {reason}" for reason, count in left.items()) or "no iteration in it"
        raise InputError(f"{source.name} holds no usable iteration ({told})")
    return make_run(
        source.name,
        "trtllm-iterations",
        None,
        series=[builder.series("")],
        kv_capacity_tokens=capacity,
        skipped=list(left.items()),
        warnings=builder.warnings(),
    )


def _report(source: Source, line: int, record: dict[str, Any], builder: SeriesBuilder, clock: LogClock) -> float | None:
    """Append one report; return the KV cache's size in tokens where the record tells it."""
    at = f"{source.name} line {line}, field"
    old = "Active Request Count" in record
    stamp = record.get("Timestamp" if old else "timestamp")
    t_s = clock.seconds(stamp.encode()) if isinstance(stamp, str) else None
    cache = record if old else record.get("kvCacheStats") or {}
    names = ("Used KV cache blocks", "Max KV cache blocks", "Tokens per KV cache block")
    keys = names if old else ("usedNumBlocks", "maxNumBlocks", "tokensPerBlock")
    used, most, size = (number(cache.get(key), f"{at} {key}", missing=True) for key in keys)
    batch = record if old else record.get("inflightBatchingStats") or {}
    running = number(
        batch.get("Scheduled Requests" if old else "numScheduledRequests"), f"{at} scheduled", missing=True
    )
    active = number(record.get("Active Request Count" if old else "numActiveRequests"), f"{at} active", missing=True)
    queued = number(record.get("numQueuedRequests"), f"{at} numQueuedRequests", missing=True)
    waiting = queued if queued == queued else max(0.0, active - running)
    builder.add(t_s, running, waiting, used / most if most else float("nan"), float("nan"), float("nan"))
    capacity = most * size
    return capacity if capacity == capacity and capacity > 0 else None


def _sniff(place: Place) -> float:
    return 5.0 if place.marked(_SNIFF_JSON) or place.marked(_SNIFF_2023) else 0.0


def _read_text(place: Place, options: ProfileOptions) -> ProfileReading:
    source, left = place.text(), Counter[str]()
    parts = []
    for rank, table in text_steps(source, left, options.max_rows).items():
        if table.held:
            parts.append(Part({"rank": rank} if rank else {}, table.profile(Conditions(source=source.name))))
    notes = [f"{count} {reason}" for reason, count in left.items()]
    if not parts:
        raise InputError(f"{source.name} holds no usable iteration ({'; '.join(notes) or 'no iteration line in it'})")
    warnings = ["device times of the iteration log; it does not tell KV tokens"]
    return finish("trtllm-log", parts, joinable=True, left_out=notes, warnings=warnings)


PROFILE_READERS = (
    ProfileReader("trtllm-iterations", "TensorRT-LLM iteration statistics (JSON; milliseconds)", _sniff, _read_profile),
    ProfileReader(
        "trtllm-log",
        "TensorRT-LLM print_iter_log (text; device time of the previous iteration)",
        lambda place: 5.0 if place.marked(SNIFF_TEXT) else 0.0,
        _read_text,
    ),
)
RUN_READERS = (
    RunReader(
        "trtllm-iterations",
        "TensorRT-LLM iteration statistics, 2023 or 2025 (JSON; paths over time)",
        _sniff,
        _read_run,
    ),
)
