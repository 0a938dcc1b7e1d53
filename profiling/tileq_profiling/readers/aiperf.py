"""AIPerf profile_export.jsonl: one request a line, start in nanoseconds of the epoch, each metric with its unit.

Lines with an error, cancelled ones and the warm-up are left out and counted. The aggregate files of AIPerf carry
no requests. Source: AIPerf documentation, working with profile exports.
"""

from __future__ import annotations

__all__ = ["READERS"]

from typing import Any

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import build_trace
from tileq_profiling.readers.json_rows import Collector, as_object, objects
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

# Sequence lengths first: output_token_count leaves out reasoning tokens, which are decoded all the same.
_FIELDS = {"prompt": ("input_sequence_length",), "output": ("output_sequence_length", "output_token_count")}


def _read(source: Source, options: Options) -> Trace:
    rows = Collector(source)
    for place, record in objects(source):
        metadata = as_object(source, record.get("metadata"), f"line {place}, field metadata")
        metrics = as_object(source, record.get("metrics"), f"line {place}, field metrics")
        if reason := _left_out(record, metadata):
            rows.skipped[reason] += 1
            continue
        prompt, output = (_length(rows, place, metrics, names) for names in _FIELDS.values())
        rows.add(place, prompt, output, rows.time(place, metadata, "request_start_ns"))
        rows.label(place, metadata, "conversation_id")
    return build_trace(source, "aiperf", rows.rows(per_s=1e9), options.zeros or "skip")


def _left_out(record: dict[str, Any], metadata: dict[str, Any]) -> str:
    if metadata.get("was_cancelled"):
        return "cancelled"
    if record.get("error") is not None:
        return "AIPerf recorded an error"
    return "warm-up" if metadata.get("benchmark_phase") == "warmup" else ""


def _length(rows: Collector, place: int, metrics: dict[str, Any], names: tuple[str, ...]) -> int:
    name = next((name for name in names if name in metrics), names[0])
    metric = metrics.get(name)
    if not isinstance(metric, dict):
        raise InputError(f"{rows.at(place)} has no metric {name!r}; expected it with a value in tokens")
    if metric.get("unit") != "tokens":
        raise rows.refuse(place, f"{name}.unit", metric.get("unit"), "expected tokens")
    return rows.whole(place, {name: metric.get("value")}, name)


def _sniff(source: Source) -> float:
    first = source.first
    metadata = first.get("metadata")
    return 4.0 if isinstance(metadata, dict) and "request_start_ns" in metadata and "metrics" in first else 0.0


def _sniff_totals(source: Source) -> float:
    metric = source.first.get("request_latency")
    return 2.0 if isinstance(metric, dict) and metric.keys() >= {"unit", "avg", "p99"} else 0.0


def _refuse_totals(source: Source, options: Options) -> Trace:
    raise InputError(f"{source.name} is an AIPerf aggregate without requests; pass profile_export.jsonl beside it")


READERS = (
    Reader("aiperf", "AIPerf profile_export.jsonl (JSON lines; nanoseconds)", _sniff, _read),
    Reader(
        "aiperf-summary",
        "AIPerf aggregate (JSON; totals only, recognised to say what to pass instead)",
        _sniff_totals,
        _refuse_totals,
        reads=False,
    ),
)
