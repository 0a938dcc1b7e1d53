"""Requests with latencies of smaller load generators: DistServe, LLMPerf, inference-perf, LMBenchmark, GenAI-Perf.

All in seconds but GenAI-Perf (nanoseconds). LLMPerf's inter_token_latency_s counts the time to the first token in, so
TPOT is taken from TTFT and end-to-end latency instead.
"""

from __future__ import annotations

__all__ = ["READERS"]

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tileq_profiling.readers.json_rows import objects
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import RunOptions, RunReader, first_keys, header_has
from tileq_profiling.steps.columns import number, numbers, table_columns
from tileq_profiling.steps.make_run import Requests, make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

# prompt, output, arrival, ttft, e2e, gaps
Row = tuple[float, float, float, float, float, np.ndarray | None]


def _json_reader(
    name: str, one: Callable[[dict[str, Any], str], Row | str]
) -> Callable[[Place, RunOptions], MeasuredRun]:
    """Return a reader of JSON requests: `one` gives a row, or the reason to leave it out."""

    def read(place: Place, options: RunOptions) -> MeasuredRun:
        source, rows, left = place.text(), list[Row](), Counter[str]()
        for number_, record in objects(source):
            row = one(record, f"{source.name} request {number_}, field")
            if isinstance(row, str):
                left[row] += 1
            else:
                rows.append(row)
        return _run(source, name, rows, left)

    return read


def _run(source: Source, name: str, rows: list[Row], left: Counter[str]) -> MeasuredRun:
    if not rows:
        told = "; ".join(f"{count} {reason}" for reason, count in left.items()) or "none in it"
        raise InputError(f"{source.name} holds no request that was served ({told})")
    prompt, output, arrival, ttft, e2e = (np.array(column, np.float64) for column in list(zip(*rows, strict=True))[:5])
    gaps = [row[5] for row in rows]
    known = [gap for gap in gaps if gap is not None]
    warnings = [] if np.isfinite(arrival).all() else ["no start times in this file: latencies without arrivals"]
    requests = Requests(
        prompt,
        output,
        arrival if np.isfinite(arrival).all() else None,
        ttft if np.isfinite(ttft).any() else None,
        None,
        e2e if np.isfinite(e2e).any() else None,
        None,
        known if len(known) == len(rows) else None,
    )
    return make_run(source.name, name, requests, skipped=list(left.items()), warnings=warnings)


def _distserve(record: dict[str, Any], at: str) -> Row | str:
    start = number(record.get("start_time"), f"{at} start_time")
    end = number(record.get("end_time"), f"{at} end_time")
    stamps = record.get("token_timestamps")
    times = numbers(stamps, f"{at} token_timestamps") if stamps else np.empty(0)
    ttft = float(times[0]) - start if times.size else math.nan
    gaps = np.diff(times) if times.size else None
    return (
        number(record.get("prompt_len"), f"{at} prompt_len"),
        number(record.get("output_len"), f"{at} output_len"),
        start,
        ttft,
        end - start,
        gaps,
    )


def _llmperf(record: dict[str, Any], at: str) -> Row | str:
    if record.get("error_code") is not None:
        return "requests with an error"
    return (
        number(record.get("number_input_tokens"), f"{at} number_input_tokens"),
        number(record.get("number_output_tokens"), f"{at} number_output_tokens"),
        math.nan,
        number(record.get("ttft_s"), f"{at} ttft_s", missing=True),
        number(record.get("end_to_end_latency_s"), f"{at} end_to_end_latency_s", missing=True),
        None,
    )


def _lifecycle(record: dict[str, Any], at: str) -> Row | str:
    if record.get("error") is not None:
        return "requests with an error"
    info = record.get("info") if isinstance(record.get("info"), dict) else {}
    assert isinstance(info, dict)
    start = number(record.get("start_time"), f"{at} start_time")
    end = number(record.get("end_time"), f"{at} end_time")
    request, response = info.get("request_metrics"), info.get("response_metrics")
    text = request.get("text") if isinstance(request, dict) else None
    prompt = text.get("input_tokens") if isinstance(text, dict) else info.get("input_tokens")
    holder = response if isinstance(response, dict) else info
    stamps = holder.get("output_token_times") or info.get("output_token_times")
    times = numbers(stamps, f"{at} output_token_times") if stamps else np.empty(0)
    ttft = float(times[0]) - start if times.size else math.nan
    output = holder.get("output_tokens", info.get("output_tokens"))
    return (
        number(prompt, f"{at} input_tokens"),
        number(output, f"{at} output_tokens"),
        start,
        ttft,
        end - start,
        np.diff(times) if times.size else None,
    )


def _read_lmbenchmark(place: Place, options: RunOptions) -> MeasuredRun:
    source = place.text()
    names = ("prompt_tokens", "generation_tokens", "launch_time", "ttft", "generation_time")
    columns, _ = table_columns(source, names)
    prompt, output, arrival, ttft, generation = (columns[name] for name in names)
    requests = Requests(prompt, output, arrival, ttft, None, ttft + generation)
    return make_run(source.name, "lmbenchmark", requests)


def _read_genai(place: Place, options: RunOptions) -> MeasuredRun:
    source, rows = place.text(), []
    experiments = source.first.get("experiments")
    if not isinstance(experiments, list):
        raise InputError(f"{source.name}, field experiments: expected a list")
    chosen = experiments[(options.run or 1) - 1] if 1 <= (options.run or 1) <= len(experiments) else None
    if not isinstance(chosen, dict) or (options.run is None and len(experiments) != 1):
        raise InputError(
            f"{source.name} has {len(experiments)} experiments; pass run=1..{len(experiments)} to choose one"
        )
    for place_, record in enumerate(chosen.get("requests") or [], start=1):
        at = f"{source.name} request {place_}, field"
        start = number(record.get("timestamp"), f"{at} timestamp") / 1e9
        times = numbers(record.get("response_timestamps"), f"{at} response_timestamps") / 1e9
        if times.size:
            rows.append((start, float(times[0]) - start, float(times[-1]) - start, float(times.size)))
    if not rows:
        raise InputError(f"{source.name} holds no request with a response; expected at least one")
    arrival, ttft, e2e, chunks = np.array(rows, np.float64).T
    warnings = [
        "GenAI-Perf writes texts, not token counts: output lengths are numbers of responses, prompts count as 1"
    ]
    return make_run(
        source.name, "genai-perf", Requests(np.ones(chunks.size), chunks, arrival, ttft, None, e2e), warnings=warnings
    )


def _has(*needed: str) -> Callable[[Place], float]:
    return lambda place: 3.0 if first_keys(place) >= set(needed) else 0.0


READERS = (
    RunReader(
        "distserve",
        "DistServe .exp results (JSON; seconds)",
        _has("prompt_len", "output_len", "start_time"),
        _json_reader("distserve", _distserve),
    ),
    RunReader(
        "llmperf",
        "LLMPerf individual responses (JSON; no arrivals)",
        _has("number_input_tokens", "number_output_tokens"),
        _json_reader("llmperf", _llmperf),
    ),
    RunReader(
        "inference-perf",
        "inference-perf per-request lifecycle (JSON; seconds)",
        _has("start_time", "end_time", "info"),
        _json_reader("inference-perf", _lifecycle),
    ),
    RunReader(
        "lmbenchmark",
        "production-stack multi-round-qa, LMBenchmark (CSV; seconds)",
        lambda place: (
            4.0
            if header_has(place, "prompt_tokens", "generation_tokens", "ttft", "generation_time", "launch_time")
            else 0.0
        ),
        _read_lmbenchmark,
    ),
    RunReader("genai-perf", "GenAI-Perf profile_export.json (JSON; nanoseconds)", _has("experiments"), _read_genai),
)
