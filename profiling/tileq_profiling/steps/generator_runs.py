"""Requests with latencies out of GuideLLM reports and AIPerf exports.

GuideLLM: seconds of the epoch for starts, milliseconds for the metrics whose names say so; request lists may be
empty (sampled out), and then the metrics' own distributions are the totals. AIPerf: every metric has its unit, which
is read and not assumed. Sources: src/guidellm/schemas of vllm-project/guidellm; AIPerf documentation.
"""

from __future__ import annotations

__all__ = ["READERS"]

import math
from typing import Any

import numpy as np

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.build import only_one
from tileq_profiling.readers.json_rows import as_list, as_object, objects
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import RunOptions, RunReader
from tileq_profiling.steps.columns import number
from tileq_profiling.steps.make_run import Requests, make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

_GUIDELLM = {
    "requests_per_second": ("request_throughput_per_s", 1.0),
    "request_latency": ("e2e_s", 1.0),
    "time_to_first_token_ms": ("ttft_s", 1e-3),
    "time_per_output_token_ms": ("time_per_output_token_s", 1e-3),
    "inter_token_latency_ms": ("itl_s", 1e-3),
    "output_tokens_per_second": ("output_tokens_per_s", 1.0),
}
_EVEN = 1e6  # burstiness of equal gaps
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0}


def _read_guidellm(place: Place, options: RunOptions) -> MeasuredRun:
    source = place.text()
    benchmarks = as_list(source, source.first.get("benchmarks"), "field benchmarks")
    chosen = as_object(source, only_one(source, "benchmarks", benchmarks, options.run), "benchmark")
    lists = as_object(source, chosen.get("requests") or {}, "field requests")
    served = as_list(source, lists.get("successful") or [], "field requests.successful")
    skipped = [
        (f"{status} requests", len(lists.get(status) or []))
        for status in ("errored", "incomplete")
        if lists.get(status)
    ]
    totals, warnings = _guidellm_totals(source, chosen), []
    if served:
        rows = [
            _guidellm_request(source, n, as_object(source, r, f"request {n}")) for n, r in enumerate(served, start=1)
        ]
        requests = _requests(rows)
    else:
        requests = None
        warnings.append("the report keeps no requests (sampled out, or none succeeded): totals only")
    model = _nested(source.first, "config", "spec", "backend", "model")
    return make_run(
        source.name,
        "guidellm",
        requests,
        totals=totals,
        conditions=Conditions(model=str(model or ""), source=source.name),
        skipped=skipped,
        warnings=warnings,
    )


def _nested(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _guidellm_request(source: Source, place: int, record: dict[str, Any]) -> tuple[float, ...]:
    """Return prompt, output, arrival, TTFT, TPOT, e2e."""
    at = f"{source.name} request {place}, field"
    timings = _nested(record, "info", "timings") or {}
    start = _first(record.get("request_start_time"), record.get("start_time"), timings.get("request_start"))
    end = _first(record.get("request_end_time"), record.get("end_time"), timings.get("request_end"))
    first = _first(timings.get("first_token_iteration"), timings.get("first_iteration"), record.get("first_token_time"))
    prompt = _first(record.get("prompt_tokens"), _tokens(record.get("input_metrics")))
    output = _first(record.get("output_tokens"), _tokens(record.get("output_metrics")))
    arrival = number(start, f"{at} request_start_time")
    latency = number(record.get("request_latency"), f"{at} request_latency", missing=True)
    if math.isnan(latency):
        latency = number(end, f"{at} request_end_time", missing=True) - arrival
    ttft = number(record.get("time_to_first_token_ms"), f"{at} time_to_first_token_ms", missing=True) / 1e3
    if math.isnan(ttft):
        ttft = number(first, f"{at} first token", missing=True) - arrival
    itl = number(record.get("inter_token_latency_ms"), f"{at} inter_token_latency_ms", missing=True) / 1e3
    return number(prompt, f"{at} prompt_tokens"), number(output, f"{at} output_tokens"), arrival, ttft, itl, latency


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _tokens(usage: Any) -> Any:
    return _first(usage.get("total_tokens"), usage.get("text_tokens")) if isinstance(usage, dict) else None


def _requests(rows: list[tuple[float, ...]]) -> Requests:
    prompt, output, arrival, ttft, tpot, e2e = np.array(rows, np.float64).T
    return Requests(prompt, output, arrival, ttft, tpot if np.isfinite(tpot).any() else None, e2e)


def _guidellm_totals(source: Source, benchmark: dict[str, Any]) -> dict[str, float]:
    metrics, found = benchmark.get("metrics"), {}
    for key, (name, unit) in _GUIDELLM.items():
        told = _nested(metrics, key, "successful")
        if not isinstance(told, dict) or not told.get("count"):
            continue
        for part in ("mean", "median"):
            if told.get(part) is not None:
                found[f"{part}_{name}"] = number(told[part], f"{source.name}, metric {key}.{part}") * unit
        for part, value in (told.get("percentiles") or {}).items():
            if value is not None:
                found[f"{_percentile(part)}_{name}"] = number(value, f"{source.name}, metric {key}.{part}") * unit
    duration = benchmark.get("duration")
    if duration is not None:
        found["duration_s"] = number(duration, f"{source.name}, field duration")
    return found | _guidellm_load(source, benchmark)


def _percentile(name: str) -> str:
    """Return GuideLLM's p001, p05, p999 as p0.1, p5, p99.9."""
    digits = name.removeprefix("p")
    if not digits.isdigit() or digits == "100":
        return name
    return f"p{float(digits[:2] + '.' + (digits[2:] or '0')):g}"


def _guidellm_load(source: Source, benchmark: dict[str, Any]) -> dict[str, float]:
    """Return what was asked for: requests, tokens, and how they came."""
    metrics, strategy, found = benchmark.get("metrics"), _nested(benchmark, "config", "strategy") or {}, {}
    for key, name in (("prompt_token_count", "prompt_tokens"), ("output_token_count", "output_tokens")):
        told = _nested(metrics, key, "successful")
        if isinstance(told, dict) and told.get("count") and told.get("total_sum"):
            found["completed"] = number(told["count"], f"{source.name}, metric {key}.count")
            found[name] = number(told["total_sum"], f"{source.name}, metric {key}.total_sum")
    kind, rate, streams = (strategy.get(key) for key in ("type_", "rate", "streams"))
    if kind in ("constant", "poisson") and rate is not None:
        found["request_rate_per_s"] = number(rate, f"{source.name}, field strategy.rate")
        found["burstiness"] = _EVEN if kind == "constant" else 1.0
    elif kind == "synchronous" or (kind == "concurrent" and streams is not None):
        found["max_concurrency"] = 1.0 if kind == "synchronous" else number(streams, f"{source.name}, field streams")
    return found


def _count_guidellm(place: Place) -> int:
    source = place.text()
    return len(as_list(source, source.first.get("benchmarks"), "field benchmarks"))


def _sniff_guidellm(place: Place) -> float:
    benchmarks = place.source.first.get("benchmarks") if place.source is not None and place.source.is_json else None
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return 4.0 if isinstance(first, dict) and first.keys() >= {"metrics", "requests"} else 0.0


def _read_aiperf(place: Place, options: RunOptions) -> MeasuredRun:
    source, rows, gaps = place.text(), list[tuple[float, ...]](), list[np.ndarray]()
    skipped: dict[str, int] = {}
    for line, record in objects(source):
        metadata = as_object(source, record.get("metadata"), f"line {line}, field metadata")
        metrics = as_object(source, record.get("metrics"), f"line {line}, field metrics")
        reason = _left_out(record, metadata)
        if reason:
            skipped[reason] = skipped.get(reason, 0) + 1
            continue
        at = f"{source.name} line {line}"
        start = number(metadata.get("request_start_ns"), f"{at}, field request_start_ns") / 1e9
        output = metrics.get("output_sequence_length") or metrics.get("output_token_count")
        rows.append(
            (
                number(_value(metrics.get("input_sequence_length")), f"{at}, metric input_sequence_length"),
                number(_value(output), f"{at}, metric output_sequence_length"),
                start,
                _seconds(metrics, "time_to_first_token", at),
                _seconds(metrics, "inter_token_latency", at),
                _seconds(metrics, "request_latency", at),
            )
        )
        gaps.append(_chunk_gaps(metrics, at))
    if not rows:
        told = "; ".join(f"{count} {reason}" for reason, count in skipped.items()) or "no line in it"
        raise InputError(f"{source.name} holds no request that was served ({told})")
    requests = _requests(rows)
    requests.gaps = gaps if any(gap.size for gap in gaps) else None
    return make_run(source.name, "aiperf", requests, skipped=list(skipped.items()))


def _left_out(record: dict[str, Any], metadata: dict[str, Any]) -> str:
    if metadata.get("was_cancelled"):
        return "cancelled requests"
    if record.get("error") is not None:
        return "requests with an error"
    return "requests of the warm-up" if metadata.get("benchmark_phase") == "warmup" else ""


def _value(metric: Any) -> Any:
    return metric.get("value") if isinstance(metric, dict) else None


def _unit(metric: dict[str, Any], name: str, at: str) -> float:
    unit = metric.get("unit")
    if unit not in _UNITS:
        raise InputError(f"{at}, metric {name}: unit {unit!r}; expected one of {', '.join(_UNITS)}")
    return _UNITS[unit]


def _seconds(metrics: dict[str, Any], name: str, at: str) -> float:
    metric = metrics.get(name)
    if not isinstance(metric, dict) or metric.get("value") is None:
        return math.nan
    return number(metric["value"], f"{at}, metric {name}") * _unit(metric, name, at)


def _chunk_gaps(metrics: dict[str, Any], at: str) -> np.ndarray:
    metric = metrics.get("inter_chunk_latency")
    values = _value(metric)
    if not isinstance(metric, dict) or not isinstance(values, list):
        return np.empty(0)
    unit = _unit(metric, "inter_chunk_latency", at)
    return np.array([number(v, f"{at}, metric inter_chunk_latency") * unit for v in values], np.float64)


def _sniff_aiperf(place: Place) -> float:
    first = place.source.first if place.source is not None and place.source.is_json else {}
    return 4.0 if isinstance(first.get("metadata"), dict) and "request_start_ns" in first["metadata"] else 0.0


READERS = (
    RunReader(
        "guidellm",
        "GuideLLM report (JSON; requests where kept, totals; run= chooses)",
        _sniff_guidellm,
        _read_guidellm,
        _count_guidellm,
    ),
    RunReader(
        "aiperf",
        "AIPerf profile_export.jsonl (JSON lines; nanoseconds and units of their own)",
        _sniff_aiperf,
        _read_aiperf,
    ),
)
