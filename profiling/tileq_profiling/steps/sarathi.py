"""Run folders of Sarathi-Serve, SLAI and Vidur: replica_*/batch_metrics.csv and sequence (request) metrics, in seconds.

A folder may hold several replicas; each is a part of the profile. `request_inter_arrival_delay` is the gap to the
request before; some versions write the arrival time under that name, which shows by its never falling. Source:
sarathi/metrics/constants.py of microsoft/sarathi-serve.
"""

from __future__ import annotations

__all__ = ["PROFILE_READERS", "RUN_READERS"]

from pathlib import Path

import numpy as np
from jaxtyping import Float

from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.readers.base import need_column, need_header
from tileq_profiling.readers.csv_columns import Column, read_columns
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, RunOptions, RunReader, header_has
from tileq_profiling.steps.columns import table_columns
from tileq_profiling.steps.make_run import Requests, make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

BATCH = (
    "batch_num_tokens",
    "batch_num_prefill_tokens",
    "batch_num_decode_tokens",
    "batch_size",
    "batch_execution_time",
)
_SEQUENCE = ("request_num_prefill_tokens", "request_num_decode_tokens", "request_e2e_time")
_SEQUENCE_FILES = ("sequence_metrics.csv", "request_metrics.csv")


def batch_profile(source: Source, conditions: Conditions, per_s: float = 1.0) -> tuple[Profile, list[str]]:
    """Return the rows of a batch table and one line for each kind left out."""
    columns, _ = table_columns(source, BATCH)
    tokens, prefill, decode, size, took = (columns[name] for name in BATCH)
    wrong = np.flatnonzero(tokens != prefill + decode)
    if wrong.size:
        raise InputError(
            f"{source.name}: in {wrong.size} rows (the first is data row {wrong[0] + 1}) batch_num_tokens is not the "
            "sum of prefill and decode tokens; expected the same"
        )
    keep = (tokens > 0) & (took > 0)
    left = [f"{int(np.sum(~keep))} batches without tokens or of 0 s"] if not keep.all() else []
    if not keep.any():
        raise InputError(f"{source.name} holds no batch with tokens and a time; expected at least one")
    return (
        Profile.of(
            tokens=tokens[keep],
            prefill_tokens=prefill[keep],
            sequences=size[keep],
            seconds=took[keep] / per_s,
            conditions=conditions,
        ),
        left,
    )


def _read_batches(place: Place, options: ProfileOptions) -> ProfileReading:
    found = place.files("batch_metrics.csv") if place.is_folder else [place.path]
    parts, left = [], []
    for path in found:
        profile, more = batch_profile(Source(path), Conditions(source=place.name))
        parts.append(Part({"replica": _replica(path)} if len(found) > 1 else {}, profile))
        left += more
    note = "batch tables tell neither KV tokens nor pairs: their time goes into the other coefficients"
    return finish("sarathi-batches", parts, joinable=True, left_out=left, warnings=[note])


def _replica(path: Path) -> str:
    return path.parent.name.removeprefix("replica_")


def _sniff_batches(place: Place) -> float:
    if place.is_folder:
        return 5.0 if place.file("batch_metrics.csv") else 0.0
    return 5.0 if header_has(place, *BATCH) else 0.0


def _read_requests(place: Place, options: RunOptions) -> MeasuredRun:
    source = place.text() if not place.is_folder else Source(_sequence_file(place))
    header = need_header(source)
    optional = ("prefill_e2e_time", "request_scheduling_delay", "request_num_restarts")
    numeric = [*_SEQUENCE, *(name for name in optional if header.find(name) is not None)]
    columns, _ = table_columns(source, numeric)
    prompt, output, e2e = (columns[name] for name in _SEQUENCE)
    ttft = columns.get("prefill_e2e_time")
    arrival, warnings = _arrivals(source)
    restarts = columns.get("request_num_restarts")
    requests = Requests(prompt, output, arrival, ttft, None, e2e, columns.get("request_scheduling_delay"))
    if ttft is not None:
        # Sarathi counts O decode steps after the prompt: its first output token comes with the first of them
        requests.tpot_s = np.divide(e2e - ttft, output, out=np.full(output.size, np.nan), where=output > 0)
        warnings.append("TTFT is the end of the prefill, TPOT the rest over all output tokens, as Sarathi counts them")
    return make_run(
        source.name,
        "sarathi-run",
        requests,
        preemptions=None if restarts is None else int(restarts.sum()),
        warnings=warnings,
    )


def _sequence_file(place: Place) -> Path:
    for name in _SEQUENCE_FILES:
        if (path := place.file(name)) is not None:
            return path
    raise InputError(f"{place.name} holds no {' or '.join(_SEQUENCE_FILES)}; expected the folder of a run with one")


def _arrivals(source: Source) -> tuple[Float[np.ndarray, "request"] | None, list[str]]:
    header = need_header(source)
    name = "request_inter_arrival_delay"
    if header.find(name) is None:
        return None, ["the file has no arrivals; pass a rate to replay it"]
    column = Column(need_column(source, header, name), name, "text")
    fields = read_columns(source, header, [column])[0].to_pylist()
    try:
        values = np.array([float(field) if field else 0.0 for field in fields])
    except ValueError:
        raise InputError(f"{source.name}, column {name}: a field is not a number; mend or remove the row") from None
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise InputError(f"{source.name}, column {name}: a gap is negative or not finite; mend or remove the row")
    if values.size > 20 and np.all(np.diff(values) >= 0):
        return values, [f"{name} never falls: read as arrival times, not as gaps"]
    return np.cumsum(values), []


def _sniff_requests(place: Place) -> float:
    if place.is_folder:
        return 5.0 if any(place.file(name) for name in _SEQUENCE_FILES) else 0.0
    return 5.0 if header_has(place, *_SEQUENCE) else 0.0


PROFILE_READERS = (
    ProfileReader(
        "sarathi-batches",
        "Sarathi-Serve, SLAI, Vidur batch_metrics.csv or run folder (seconds)",
        _sniff_batches,
        _read_batches,
    ),
)
RUN_READERS = (
    RunReader(
        "sarathi-run",
        "Sarathi-Serve, SLAI, Vidur request metrics or run folder (seconds)",
        _sniff_requests,
        _read_requests,
    ),
)
