"""Whole-forward sweeps of llm_execution_time_predictor: prefill and median decode latency, seconds.

A prefill runs `batch_size` prompts of `input_len` tokens at once; the decode latency is the median over output_len - 1
steps, whose context at the median step is input_len + output_len/2. A setting was run several times and its first
prefill pays for compilation (91 ms against 11 ms in the published file): the median of its runs is taken, not the
mean that the file's own summary row holds. Source: github.com/vikranth22446/llm_execution_time_predictor.
"""

from __future__ import annotations

__all__ = ["READERS"]

import math
from typing import Any

import numpy as np

from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.readers.json_rows import as_list, as_object, objects
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, first_keys
from tileq_profiling.steps.columns import number
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_theory.errors import InputError

_KEYS = {"batch_size", "input_len", "output_len", "prefill_latency"}


def _settings(source: Source) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    first = source.first
    if "results" in first:
        results = as_list(source, first["results"], "field results")
        return as_object(source, first.get("metadata") or {}, "field metadata"), [
            as_object(source, record, f"result {place}") for place, record in enumerate(results, start=1)
        ]
    return {}, [record for _, record in objects(source)]


def _median(source: Source, place: int, record: dict[str, Any], key: str) -> tuple[float, int]:
    """Return the median over the setting's runs of a latency in seconds, and how many there were; NaN for none."""
    runs = record.get("runs_data") or [record]
    at = f"{source.name} result {place}, field {key}"
    values = [number(as_object(source, run, at).get(key), at, missing=True) for run in as_list(source, runs, at)]
    known = [value for value in values if not math.isnan(value)]
    return (float(np.median(known)), len(known)) if known else (math.nan, 0)


def _rows(source: Source, place: int, record: dict[str, Any]) -> list[tuple[float, ...]]:
    """Return (tokens, prefill, pairs, KV, sequences, seconds, repeats) of the prefill and of the decode."""
    at = f"{source.name} result {place}, field"
    batch, length, out = (number(record.get(key), f"{at} {key}") for key in ("batch_size", "input_len", "output_len"))
    if min(batch, length) < 1:
        raise InputError(f"{at} batch_size or input_len is 0; expected 1 or more")
    found: list[tuple[float, ...]] = []
    prefill, runs = _median(source, place, record, "prefill_latency")
    if runs:
        found.append(
            (batch * length, batch * length, batch * length * (length + 1) / 2, 0.0, batch, prefill, float(runs))
        )
    decode, runs = _median(source, place, record, "median_decode_latency")
    if runs and out > 1:
        found.append((batch, 0.0, 0.0, batch * (length + out / 2), batch, decode, float(runs)))
    return found


def _read(place: Place, options: ProfileOptions) -> ProfileReading:
    source = place.text()
    metadata, settings = _settings(source)
    rows = [row for number_, record in enumerate(settings, start=1) for row in _rows(source, number_, record)]
    if not rows:
        raise InputError(f"{source.name} holds no latency; expected prefill_latency or median_decode_latency")
    tokens, prefill, pairs, kv, sequences, took, repeats = np.array(rows, np.float64).T
    failed = metadata.get("failed_configs") or []
    tp = metadata.get("tp_size")
    conditions = Conditions(
        device=str(metadata.get("gpu_type") or ""),
        model=str(metadata.get("model_path") or ""),
        tp=int(number(tp, f"{source.name}, field metadata.tp_size")) if tp else 1,
        source=source.name,
    )
    profile = Profile.of(
        tokens=tokens,
        prefill_tokens=prefill,
        pairs=pairs,
        kv_tokens=kv,
        sequences=sequences,
        seconds=took,
        repeats=repeats,
        conditions=conditions,
    )
    left = [f"{len(failed)} settings that failed when they were measured"] if failed else []
    warnings = ["medians over the runs of a setting, as the first run pays for compilation"]
    if not metadata:
        warnings.append("the file does not tell GPU and model")
    return finish("forward-sweep", [Part({}, profile)], joinable=True, left_out=left, warnings=warnings)


def _sniff(place: Place) -> float:
    keys = first_keys(place)
    if "results" in keys and place.source is not None:
        results = place.source.first["results"]
        keys = set(results[0]) if isinstance(results, list) and results and isinstance(results[0], dict) else set()
    return 5.0 if keys >= _KEYS else 0.0


READERS = (
    ProfileReader("forward-sweep", "llm_execution_time_predictor sweep (JSON or JSON lines; seconds)", _sniff, _read),
)
