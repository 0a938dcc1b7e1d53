"""LLMServingSim: workloads (nanoseconds, token identities nested in each line) and recorded runs (two clocks).

A recorded run stamps `arrival_time` with the epoch clock and the `*_ts` fields with the monotonic one; arrivals are
taken from the first alone. A workload line may be a session of `sub_requests`, each released when the one before
has finished: their lengths are read, but there are no arrivals then. Source: Cho et al., LLMServingSim, IISWC 2024.
"""

from __future__ import annotations

__all__ = ["READERS"]

from typing import Any

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import build_trace
from tileq_profiling.readers.json_rows import Collector, as_list, as_object, objects
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

_LENGTHS = {"input_toks", "output_toks"}


def _add(rows: Collector, place: int, record: dict[str, Any], time: int | float) -> None:
    prompt, output = rows.whole(place, record, "input_toks"), rows.whole(place, record, "output_toks")
    for key, count in (("input_tok_ids", prompt), ("output_tok_ids", output)):
        ids = record.get(key)
        if isinstance(ids, list) and ids and len(ids) != count:
            raise InputError(
                f"{rows.at(place)}: {key} holds {len(ids)} tokens but the length given is {count}; expected the same"
            )
    rows.add(place, prompt, output, time)


def _read_workload(source: Source, options: Options) -> Trace:
    rows, sessions = Collector(source), 0
    for place, record in objects(source):
        time = rows.time(place, record, "arrival_time_ns")
        if "sub_requests" not in record:
            _add(rows, place, record, time)
            rows.label(place, record, "session_id")
            continue
        sessions += 1
        for part in as_list(source, record["sub_requests"], f"line {place}, field sub_requests"):
            _add(rows, place, as_object(source, part, f"line {place}, field sub_requests"), time)
            rows.label(place, record, "session_id")
    if not any(any(values) for values in rows.labels.values()):
        rows.labels.clear()
    table = rows.rows(per_s=1e9)
    if sessions:
        table.times = None
        table.warnings.append(
            f"{sessions} lines are sessions whose later requests wait for earlier ones: lengths without arrivals"
        )
    return build_trace(source, "llmservingsim", table, options.zeros or "error")


def _read_run(source: Source, options: Options) -> Trace:
    rows = Collector(source)
    for place, record in objects(source):
        _add(rows, place, record, rows.time(place, record, "arrival_time"))
    return build_trace(source, "llmservingsim-run", rows.rows(), options.zeros or "skip")


def _sniff_workload(source: Source) -> float:
    keys = source.first.keys()
    return 4.0 if "arrival_time_ns" in keys and (keys >= _LENGTHS or "sub_requests" in keys) else 0.0


READERS = (
    Reader("llmservingsim", "LLMServingSim workload (JSON lines; nanoseconds)", _sniff_workload, _read_workload),
    Reader(
        "llmservingsim-run",
        "LLMServingSim recorded vLLM run, requests.jsonl (epoch arrivals)",
        lambda source: 4.0 if source.first.keys() >= {*_LENGTHS, "arrival_time"} else 0.0,
        _read_run,
    ),
)
