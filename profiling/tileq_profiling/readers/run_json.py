"""Per-request JSON lists of load generators: DistServe .exp, LLMPerf responses, inference-perf lifecycle records.

All times are seconds. LLMPerf records no start times; its inter_token_latency_s includes the time to the first
token, which does not matter here. inference-perf moved its token counts when it learnt other modalities: both
places are read. Failed requests are left out and counted. Sources: DistServe evaluation/2-benchmark-serving;
llmperf/common_metrics.py; inference_perf/apis and docs/reports.md of kubernetes-sigs/inference-perf.
"""

from __future__ import annotations

__all__ = ["READERS"]

from typing import Any

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import build_trace
from tileq_profiling.readers.json_rows import Collector, objects
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

_DISTSERVE = {"prompt_len", "output_len", "start_time"}
_LLMPERF = {"number_input_tokens", "number_output_tokens"}
_LIFECYCLE = {"start_time", "end_time", "info"}


def _read_distserve(source: Source, options: Options) -> Trace:
    rows = Collector(source)
    for place, record in objects(source):
        prompt, output = rows.whole(place, record, "prompt_len"), rows.whole(place, record, "output_len")
        rows.add(place, prompt, output, rows.time(place, record, "start_time"))
    return build_trace(source, "distserve", rows.rows(), options.zeros or "skip")


def _read_llmperf(source: Source, options: Options) -> Trace:
    rows = Collector(source)
    for place, record in objects(source):
        if record.get("error_code") is not None:
            rows.skipped["LLMPerf recorded an error"] += 1
            continue
        rows.add(
            place, rows.whole(place, record, "number_input_tokens"), rows.whole(place, record, "number_output_tokens")
        )
    table = rows.rows()
    table.warnings.append("LLMPerf records no start times: lengths without arrivals; pass a rate")
    return build_trace(source, "llmperf", table, options.zeros or "skip")


def _read_lifecycle(source: Source, options: Options) -> Trace:
    rows = Collector(source)
    for place, record in objects(source):
        if record.get("error") is not None:
            rows.skipped["inference-perf recorded an error"] += 1
            continue
        flat = {"start_time": record.get("start_time"), **_token_counts(record.get("info"))}
        prompt, output = rows.whole(place, flat, "input_tokens"), rows.whole(place, flat, "output_tokens")
        rows.add(place, prompt, output, rows.time(place, flat, "start_time"))
    return build_trace(source, "inference-perf", rows.rows(), options.zeros or "skip")


def _token_counts(info: Any) -> dict[str, Any]:
    """Return input and output token counts from wherever this version keeps them."""
    if not isinstance(info, dict):
        return {}
    counts: dict[str, Any] = {}
    request, response = info.get("request_metrics"), info.get("response_metrics")
    text = request.get("text") if isinstance(request, dict) else None
    if isinstance(text, dict) and "input_tokens" in text:
        counts["input_tokens"] = text["input_tokens"]
    elif "input_tokens" in info:
        counts["input_tokens"] = info["input_tokens"]
    if isinstance(response, dict) and "output_tokens" in response:
        counts["output_tokens"] = response["output_tokens"]
    elif "output_tokens" in info:
        counts["output_tokens"] = info["output_tokens"]
    return counts


def _refuse(message: str) -> Any:
    def read(source: Source, options: Options) -> Trace:
        raise InputError(f"{source.name} {message}")

    return read


def _has(needed: set[str], score: float) -> Any:
    return lambda source: score if source.first.keys() >= needed else 0.0


def _sniff_llmperf_totals(source: Source) -> float:
    keys = source.first.keys()
    return 4.0 if "num_concurrent_requests" in keys and any(key.startswith("results") for key in keys) else 0.0


READERS = (
    Reader("distserve", "DistServe .exp results (JSON; seconds)", _has(_DISTSERVE, 3.0), _read_distserve),
    Reader("llmperf", "LLMPerf individual responses (JSON; no arrivals)", _has(_LLMPERF, 3.0), _read_llmperf),
    Reader(
        "llmperf-summary",
        "LLMPerf summary (JSON; totals only, recognised to say what to pass instead)",
        _sniff_llmperf_totals,
        _refuse("is an LLMPerf summary with totals only; pass the *_individual_responses.json beside it"),
        reads=False,
    ),
    Reader(
        "inference-perf",
        "inference-perf per_request_lifecycle_metrics (JSON; seconds)",
        _has(_LIFECYCLE, 3.0),
        _read_lifecycle,
    ),
    Reader(
        "inference-perf-summary",
        "inference-perf stage or summary (JSON; totals only, recognised to say what to record instead)",
        _has({"load_summary", "successes", "failures"}, 3.0),
        _refuse(
            "is an inference-perf summary with totals only; set report.request_lifecycle.per_request: true and pass "
            "per_request_lifecycle_metrics.json"
        ),
        reads=False,
    ),
)
