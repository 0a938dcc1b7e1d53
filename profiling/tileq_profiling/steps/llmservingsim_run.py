"""LLMServingSim's recorded vLLM runs: requests.jsonl, timeseries.csv and meta.json of one folder.

Two clocks: `arrival_time` is of the epoch, the `*_ts` fields of the monotonic clock. Latencies from arrival to token
need both. Their offset is not recorded; a request is queued after it arrives, so queued_ts - arrival_time is at least
the offset, and the smallest over all requests is taken for it. What a request waited above that is real. `t` of the
time series counts from the start of the run.
"""

from __future__ import annotations

__all__ = ["READERS"]

import json
from pathlib import Path
from typing import Any

import numpy as np

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.json_rows import objects
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.strict_json import parse_json
from tileq_profiling.steps.base import RunOptions, RunReader, first_keys, header_has
from tileq_profiling.steps.columns import number, table_columns
from tileq_profiling.steps.make_run import Requests, make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.run import MeasuredRun, RunSeries
from tileq_theory.errors import InputError

_TIMES = ("arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
_SERIES = ("t", "prompt_throughput", "gen_throughput", "running", "waiting", "kv_cache_pct")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _requests(source: Source) -> tuple[Requests, list[str]]:
    rows = []
    for line, record in objects(source):
        at = f"{source.name} line {line}, field"
        rows.append([number(record.get(name), f"{at} {name}") for name in ("input_toks", "output_toks", *_TIMES)])
    prompt, output, arrival, queued, scheduled, first, last = np.array(rows, np.float64).T
    offset = float(np.min(queued - arrival))
    late = queued - arrival - offset  # between the client's clock and the engine's queue
    start = queued - late
    warnings = [
        f"two clocks: the smallest queued_ts - arrival_time ({offset:.6f} s) is taken for their offset; arrivals "
        f"reached the engine's queue up to {late.max():.3f} s after it"
    ]
    if np.any(scheduled < queued - 1e-6) or np.any(first < scheduled) or np.any(last < first):
        raise InputError(
            f"{source.name}: a request's time stamps are out of order; expected queued, scheduled, first, last"
        )
    return Requests(prompt, output, arrival, first - start, None, last - start, scheduled - start), warnings


def _series(source: Source) -> RunSeries:
    columns, _ = table_columns(source, _SERIES)
    t, prompt, output, running, waiting, percent = (columns[name] for name in _SERIES)
    if np.any(np.diff(t) < 0):
        raise InputError(f"{source.name}: column t falls; expected seconds since the start of the run")
    return RunSeries("", t, running, waiting, percent / 100.0, prompt, output)


def _meta(path: Path | None) -> tuple[Conditions | None, float | None]:
    if path is None:
        return None, None
    try:
        meta = parse_json(path.read_text("utf-8"))
    except (ValueError, json.JSONDecodeError) as problem:
        raise InputError(f"{path.name} is not usable JSON ({problem})") from None
    if not isinstance(meta, dict):
        raise InputError(f"{path.name}: expected a JSON object")
    engine, hardware, cache = (_object(meta.get(key)) for key in ("engine_kwargs", "hardware", "kv_cache"))
    libraries = {
        "vllm": meta.get("vllm_version"),
        "torch": hardware.get("torch_version"),
        "cuda": hardware.get("cuda_version"),
    }
    kv = engine.get("kv_cache_dtype")
    conditions = Conditions(
        device=str(hardware.get("device_name") or ""),
        model=str(meta.get("model") or ""),
        dtype=_DTYPES.get(str(engine.get("dtype")), "bf16"),
        kv_dtype=None if kv in (None, "auto") else str(kv),
        tp=int(engine.get("tensor_parallel_size") or 1),
        libraries={name: str(version) for name, version in libraries.items() if version},
        source=path.parent.name,
        notes=tuple(
            f"{key} {engine[key]}"
            for key in ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
            if engine.get(key)
        ),
    )
    capacity = cache.get("num_kv_tokens")
    return conditions, number(capacity, f"{path.name}, field num_kv_tokens") if capacity else None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read(place: Place, options: RunOptions) -> MeasuredRun:
    folder = place.path if place.is_folder else place.path.parent
    requests_path = place.file("requests.jsonl") if place.is_folder else place.path
    if requests_path is None:
        raise InputError(f"{place.name} holds no requests.jsonl; expected the folder of a recorded run")
    requests, warnings = _requests(Source(requests_path))
    folder = requests_path.parent
    conditions, capacity = _meta(_beside(folder, "meta.json"))
    series_path = _beside(folder, "timeseries.csv")
    for name, path in (("timeseries.csv", series_path), ("meta.json", _beside(folder, "meta.json"))):
        if path is None:
            warnings.append(f"no {name} beside the requests")
    return make_run(
        place.name,
        "llmservingsim-run",
        requests,
        series=[] if series_path is None else [_series(Source(series_path))],
        conditions=conditions,
        kv_capacity_tokens=capacity,
        warnings=warnings,
    )


def _beside(folder: Path, name: str) -> Path | None:
    path = folder / name
    return path if path.is_file() else None


def _sniff(place: Place) -> float:
    if place.is_folder:
        return 6.0 if place.file("requests.jsonl") is not None and place.file("timeseries.csv") is not None else 0.0
    return 5.0 if first_keys(place) >= {"input_toks", "arrival_time", "first_token_ts"} else 0.0


def _read_series(place: Place, options: RunOptions) -> MeasuredRun:
    return make_run(place.name, "llmservingsim-series", None, series=[_series(place.text())])


READERS = (
    RunReader(
        "llmservingsim-run",
        "LLMServingSim recorded run (folder of requests.jsonl, timeseries.csv, meta.json)",
        _sniff,
        _read,
    ),
    RunReader(
        "llmservingsim-series",
        "LLMServingSim timeseries.csv alone (CSV; paths over time)",
        lambda place: 5.0 if header_has(place, *_SERIES) else 0.0,
        _read_series,
    ),
)
