"""What the serving benchmarks of vLLM and SGLang share: parallel lists over the requests of a run."""

from __future__ import annotations

__all__ = ["is_bench", "read_bench"]

from typing import Any

from tileq_profiling.readers.base import Options
from tileq_profiling.readers.build import build_trace, only_one
from tileq_profiling.readers.json_rows import Collector, as_list, objects
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

_RUN_KEYS = {"completed", "duration", "total_input_tokens", "total_output_tokens"}


def is_bench(first: dict[str, Any]) -> bool:
    """Return whether an object is the result of one benchmark run."""
    return first.keys() >= _RUN_KEYS


def read_bench(source: Source, options: Options, format_name: str, remedy: str) -> Trace:
    """Return the requests of one run; without per-request lists say what to record."""
    run = only_one(source, "runs", [run for _, run in objects(source)], options.run)
    if run.get("completed") == 0:
        raise InputError(f"{source.name}: no request of this run completed ({run.get('failed', 'all')} failed)")
    if "input_lens" not in run or "output_lens" not in run:
        raise InputError(f"{source.name} holds totals only; {remedy}")
    lists = {key: as_list(source, run[key], f"field {key}") for key in ("input_lens", "output_lens")}
    for key in ("start_times", "errors"):
        if run.get(key):
            lists[key] = as_list(source, run[key], f"field {key}")
    counts = {key: len(values) for key, values in lists.items()}
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise InputError(f"{source.name}: lists of different length ({told}); expected one entry a request")
    return _trace(source, options, format_name, lists)


def _trace(source: Source, options: Options, format_name: str, lists: dict[str, list[Any]]) -> Trace:
    rows = Collector(source, "request")
    for index in range(len(lists["input_lens"])):
        record = {key: values[index] for key, values in lists.items()}
        if record.get("errors"):
            rows.skipped["the benchmark recorded an error"] += 1
            continue
        prompt, output = rows.whole(index + 1, record, "input_lens"), rows.whole(index + 1, record, "output_lens")
        time = rows.time(index + 1, record, "start_times") if "start_times" in record else None
        rows.add(index + 1, prompt, output, time)
    table = rows.rows()
    if table.times is None:
        table.warnings.append("no start_times in this result: lengths without arrivals; pass a rate")
    return build_trace(source, format_name, table, options.zeros or "skip")
