"""GuideLLM reports: one benchmark per rate, requests split by status; the lists may be empty (sampled out).

Successful requests are read, the others are counted. Token counts and start times have moved between versions:
prompt_tokens, output_tokens, request_start_time (0.3 and later) or start_time (before), seconds of the epoch.
Source: src/guidellm/schemas of vllm-project/guidellm.
"""

from __future__ import annotations

__all__ = ["READERS"]

from typing import Any

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import build_trace, only_one
from tileq_profiling.readers.json_rows import Collector, as_list, as_object
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError


def _sniff(source: Source) -> float:
    benchmarks = source.first.get("benchmarks")
    if not isinstance(benchmarks, list) or not benchmarks or not isinstance(benchmarks[0], dict):
        return 0.0
    return 4.0 if benchmarks[0].keys() >= {"metrics", "requests"} else 0.0


def _read(source: Source, options: Options) -> Trace:
    benchmarks = as_list(source, source.first.get("benchmarks"), "field benchmarks")
    if not any(_successful(source, benchmark) for benchmark in benchmarks):
        raise InputError(
            f"{source.name}: the lists of requests are empty (sampled out or none succeeded); run guidellm again so "
            "that it keeps every request in its report"
        )
    chosen = as_object(source, only_one(source, "benchmarks", benchmarks, options.run), "benchmark")
    requests, successful = as_object(source, chosen.get("requests"), "field requests"), _successful(source, chosen)
    if not successful:
        raise InputError(f"{source.name}: this benchmark's list of requests is empty; pass another with run=")
    rows = Collector(source, "request")
    for place, value in enumerate(successful, start=1):
        record = _flat(as_object(source, value, f"request {place}"))
        prompt, output = rows.whole(place, record, "prompt_tokens"), rows.whole(place, record, "output_tokens")
        rows.add(place, prompt, output, rows.time(place, record, "request_start_time"))
    for status in ("errored", "incomplete"):
        if count := len(as_list(source, requests.get(status) or [], f"field requests.{status}")):
            rows.skipped[f"{status} requests"] += count
    table = rows.rows()
    _check_sampling(chosen, len(successful), table.warnings)
    return build_trace(source, "guidellm", table, options.zeros or "skip")


def _successful(source: Source, benchmark: Any) -> list[Any]:
    requests = as_object(source, as_object(source, benchmark, "benchmark").get("requests"), "field requests")
    return as_list(source, requests.get("successful") or [], "field requests.successful")


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Return the three fields from wherever this version keeps them."""
    timings = record.get("info", {}).get("timings", {}) if isinstance(record.get("info"), dict) else {}
    places: dict[str, list[Any]] = {
        "prompt_tokens": [record.get("prompt_tokens"), _total(record.get("input_metrics"))],
        "output_tokens": [record.get("output_tokens"), _total(record.get("output_metrics"))],
        "request_start_time": [
            record.get("request_start_time"),
            record.get("start_time"),
            timings.get("request_start") if isinstance(timings, dict) else None,
        ],
    }
    found = {name: next((value for value in values if value is not None), None) for name, values in places.items()}
    return {name: value for name, value in found.items() if value is not None}


def _total(usage: Any) -> Any:
    if not isinstance(usage, dict):
        return None
    return usage.get("total_tokens") if usage.get("total_tokens") is not None else usage.get("text_tokens")


def _check_sampling(benchmark: dict[str, Any], kept: int, warnings: list[str]) -> None:
    """Warn when the report keeps only a sample: gaps between its arrivals are then too long."""
    metrics = benchmark.get("metrics")
    totals = metrics.get("request_totals") if isinstance(metrics, dict) else None
    count = totals.get("successful") if isinstance(totals, dict) else None
    if isinstance(count, int) and count > kept:
        warnings.append(f"the report keeps {kept} of {count} successful requests: rate and gaps are of the sample")


READERS = (Reader("guidellm", "GuideLLM report (JSON; seconds; run= chooses a benchmark)", _sniff, _read),)
