"""vLLM replays of BurstGPT: the server's log as CSV (twice a second) and the client's log of events.

Server: timestamp, prompt_throughput, generation_throughput, num_running, num_swapped, num_pending and cache usages in
percent. Client: `record_time` is the end of an answer, so a request arrived total_chunk_time before it;
`first_chunk_time` is the time to the first token; `out_len` is not in tokens (see the trace reader), so it is
converted only when told how. Source: github.com/liao4s/BurstGPT_test.
"""

from __future__ import annotations

__all__ = ["PROFILE_READERS", "RUN_READERS"]

import numpy as np

from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.readers.json_rows import as_object
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, RunOptions, RunReader, header_has
from tileq_profiling.steps.columns import number, table_columns
from tileq_profiling.steps.make_run import Requests, make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_profiling.steps.run import MeasuredRun, RunSeries
from tileq_profiling.steps.series import steady_decodes
from tileq_theory.errors import InputError, positive

_SERVER = (
    "timestamp",
    "prompt_throughput",
    "generation_throughput",
    "num_running",
    "num_swapped",
    "num_pending",
    "gpu_kvcache_usage",
)
_CLIENT = {"event_id", "in_len", "out_len", "record_time", "total_chunk_time", "first_chunk_time"}


def _series(place: Place) -> RunSeries:
    columns, _ = table_columns(place.text(), _SERVER)
    t, prompt, output, running, swapped, pending, usage = (columns[name] for name in _SERVER)
    if np.any(usage > 100):
        raise InputError(f"{place.name}: gpu_kvcache_usage reaches {usage.max():g}; expected percent")
    order = np.argsort(t, kind="stable")
    return RunSeries(
        "",
        t[order] - t.min(),
        running[order],
        (pending + swapped)[order],
        usage[order] / 100,
        prompt[order],
        output[order],
    )


def _read_server(place: Place, options: RunOptions) -> MeasuredRun:
    return make_run(place.name, "burstgpt-server", None, series=[_series(place)])


def _read_profile(place: Place, options: ProfileOptions) -> ProfileReading:
    steps = steady_decodes(_series(place))
    if not len(steps):
        raise InputError(
            f"{place.name}: no interval in which only decodes of an unchanged batch ran; no step time in it"
        )
    capacity = options.kv_capacity_tokens
    profile = Profile.of(
        tokens=steps[:, 0],
        prefill_tokens=np.zeros(len(steps)),
        kv_tokens=steps[:, 1] * capacity if capacity is not None else None,
        sequences=steps[:, 0],
        seconds=steps[:, 2],
        conditions=Conditions(source=place.name),
    )
    warnings = ["mean decode steps of intervals in which no request came or left"]
    if capacity is None:
        warnings.append("the log gives KV usage but not the cache's size; pass kv_capacity_tokens= to use it")
    return finish("burstgpt-server", [Part({}, profile)], joinable=True, warnings=warnings)


def _read_client(place: Place, options: RunOptions) -> MeasuredRun:
    source, rows = place.text(), []
    per_token = None if options.chars_per_token is None else positive("chars_per_token", options.chars_per_token)
    for count, event in enumerate(as_object(source, source.document, "document").values(), start=1):
        record = as_object(source, event, f"event {count}")
        at = f"{source.name} event {count}, field"
        names = ("in_len", "out_len", "record_time", "total_chunk_time", "first_chunk_time")
        rows.append([number(record.get(name), f"{at} {name}") for name in names])
    if not rows:
        raise InputError(f"{source.name} holds no event; expected at least one")
    prompt, out, end, total, first = np.array(rows, np.float64).T
    if per_token is None:
        raise InputError(
            f"{source.name}: out_len of a BurstGPT replay is not in tokens (the published files hold about 6.5 of it "
            "per token in the server's log); pass chars_per_token=6.5 (--chars-per-token)"
        )
    output = np.maximum(np.round(out / per_token), np.where(out > 0, 1.0, 0.0))
    warnings = [
        f"out_len divided by {per_token:g} and rounded: output tokens, and so TPOT, are estimates",
        "in_len is counted with the client's tokenizer; the served model's may differ",
    ]
    return make_run(
        source.name, "burstgpt-replay", Requests(prompt, output, end - total, first, None, total), warnings=warnings
    )


def _sniff_server(place: Place) -> float:
    return 6.0 if header_has(place, *_SERVER) else 0.0


def _sniff_client(place: Place) -> float:
    if place.source is None or not place.source.is_json:
        return 0.0
    first = next(iter(place.source.first.values()), None)
    return 5.0 if isinstance(first, dict) and first.keys() >= _CLIENT else 0.0


PROFILE_READERS = (
    ProfileReader(
        "burstgpt-server",
        "BurstGPT replay, server log (CSV; steady decode intervals only)",
        _sniff_server,
        _read_profile,
    ),
)
RUN_READERS = (
    RunReader("burstgpt-server", "BurstGPT replay, server log (CSV; paths over time)", _sniff_server, _read_server),
    RunReader(
        "burstgpt-replay", "BurstGPT replay, client log (JSON; needs chars_per_token=)", _sniff_client, _read_client
    ),
)
