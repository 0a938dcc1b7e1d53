"""Files of a run's totals alone: AIPerf aggregates, LLMPerf and inference-perf summaries, MLPerf's log summary."""

from __future__ import annotations

__all__ = ["READERS"]

import re
from typing import Any

from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import RunOptions, RunReader, first_keys
from tileq_profiling.steps.columns import number
from tileq_profiling.steps.make_run import make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
_AIPERF = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "tpot_s",
    "request_latency": "e2e_s",
}
_AIPERF_RATES = {"request_throughput": "request_throughput_per_s", "output_token_throughput": "output_tokens_per_s"}
_PARTS = ("avg", "p50", "p90", "p95", "p99", "max")


def _totals(source: Source, name: str, found: dict[str, float]) -> MeasuredRun:
    if not found:
        raise InputError(f"{source.name} is recognised as {name} but holds no latency; is the file complete?")
    return make_run(source.name, name, None, totals=found, warnings=["totals only: no requests in this file"])


def _named(part: str) -> str:
    return {"avg": "mean", "p50": "median"}.get(part, part)


def _read_aiperf(place: Place, options: RunOptions) -> MeasuredRun:
    source, found = place.text(), dict[str, float]()
    for key, name in _AIPERF.items():
        metric = source.first.get(key)
        if isinstance(metric, dict):
            unit = metric.get("unit")
            if unit not in _UNITS:
                raise InputError(f"{source.name}, metric {key}: unit {unit!r}; expected one of {', '.join(_UNITS)}")
            for part in _PARTS:
                if metric.get(part) is not None:
                    found[f"{_named(part)}_{name}"] = (
                        number(metric[part], f"{source.name}, {key}.{part}") * _UNITS[unit]
                    )
    for key, name in _AIPERF_RATES.items():
        metric = source.first.get(key)
        if isinstance(metric, dict) and metric.get("avg") is not None:
            found[name] = number(metric["avg"], f"{source.name}, {key}.avg")
    return _totals(source, "aiperf-summary", found)


def _read_llmperf(place: Place, options: RunOptions) -> MeasuredRun:
    source, found = place.text(), dict[str, float]()
    names = {"ttft_s": "ttft_s", "end_to_end_latency_s": "e2e_s"}
    for key, value in source.first.items():
        match = re.fullmatch(r"results_(ttft_s|end_to_end_latency_s)_(mean|(?:quantiles_)?p\d+|max)", key)
        if match is not None and value is not None:
            part = match.group(2).removeprefix("quantiles_")
            found[f"{_named(part)}_{names[match.group(1)]}"] = number(value, f"{source.name}, field {key}")
    rate = source.first.get("results_mean_output_throughput_token_per_s")
    if rate is not None:
        found["output_tokens_per_s"] = number(rate, f"{source.name}, field results_mean_output_throughput_token_per_s")
    return _totals(source, "llmperf-summary", found)


def _read_inference_perf(place: Place, options: RunOptions) -> MeasuredRun:
    source, found = place.text(), dict[str, float]()
    successes = source.first.get("successes")
    latency = successes.get("latency") if isinstance(successes, dict) else None
    names = {"request_latency": "e2e_s", "time_to_first_token": "ttft_s", "time_per_output_token": "tpot_s"}
    for key, name in names.items():
        metric = latency.get(key) if isinstance(latency, dict) else None
        for part, value in metric.items() if isinstance(metric, dict) else ():
            if part in ("mean", "median", "p90", "p95", "p99", "max") and value is not None:
                found[f"{part}_{name}"] = number(value, f"{source.name}, {key}.{part}")
    throughput: Any = successes.get("throughput") if isinstance(successes, dict) else None
    for key, name in (
        ("requests_per_sec", "request_throughput_per_s"),
        ("output_tokens_per_sec", "output_tokens_per_s"),
    ):
        if isinstance(throughput, dict) and throughput.get(key) is not None:
            found[name] = number(throughput[key], f"{source.name}, {key}")
    return _totals(source, "inference-perf-summary", found)


_MLPERF = re.compile(r"^\s*(.+?)\s*:\s*([\d.]+)\s*$")
_MLPERF_NAMES = {
    "Mean First Token latency (ns)": "mean_ttft_s",
    "99.00 percentile first token latency (ns)": "p99_ttft_s",
    "Mean Time per Output Token (ns)": "mean_tpot_s",
    "99.00 percentile time to output token (ns)": "p99_tpot_s",
    "Mean latency (ns)": "mean_e2e_s",
    "50.00 percentile latency (ns)": "median_e2e_s",
    "99.00 percentile latency (ns)": "p99_e2e_s",
    "Tokens per second": "output_tokens_per_s",
    "Completed tokens per second": "output_tokens_per_s",
    "Samples per second": "request_throughput_per_s",
    "Completed samples per second": "request_throughput_per_s",
}


def _read_mlperf(place: Place, options: RunOptions) -> MeasuredRun:
    source, found = place.text(), dict[str, float]()
    with source.open_text() as text:
        for line in text:
            match = _MLPERF.match(line)
            name = _MLPERF_NAMES.get(match.group(1)) if match is not None else None
            if match is not None and name is not None:
                scale = 1e-9 if match.group(1).endswith("(ns)") else 1.0
                found[name] = float(match.group(2)) * scale
    return _totals(source, "mlperf-summary", found)


def _sniff_aiperf(place: Place) -> float:
    keys = first_keys(place)
    metric = place.source.first.get("request_latency") if place.source is not None and keys else None
    return 2.0 if isinstance(metric, dict) and metric.keys() >= {"unit", "avg"} else 0.0


READERS = (
    RunReader("aiperf-summary", "AIPerf aggregate (JSON; totals only)", _sniff_aiperf, _read_aiperf),
    RunReader(
        "llmperf-summary",
        "LLMPerf summary (JSON; totals only)",
        lambda place: 4.0 if any(key.startswith("results_ttft_s") for key in first_keys(place)) else 0.0,
        _read_llmperf,
    ),
    RunReader(
        "inference-perf-summary",
        "inference-perf stage or summary (JSON; totals only)",
        lambda place: 3.0 if first_keys(place) >= {"load_summary", "successes"} else 0.0,
        _read_inference_perf,
    ),
    RunReader(
        "mlperf-summary",
        "MLPerf mlperf_log_summary.txt (text; totals only)",
        lambda place: 3.0 if place.marked(rb"MLPerf Results Summary") else 0.0,
        _read_mlperf,
    ),
)
