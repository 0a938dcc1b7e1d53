r"""From the raw result of a simulation (or of a real executor) to a `Run`.

`run_from_raw` reads the attributes of a raw result by name and nothing else, so anything that has them will do: the
compiled simulator, the reference in plain Python, a real model's log. `request_table` fills the columns that an
executor does not know.
"""

from __future__ import annotations

__all__ = ["gap_groups", "request_table", "run_from_raw", "sample_table"]

from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.gaps import GapHistogram, GapPairs
from tileq_engine.gaps_bins import bin_index, bins_for
from tileq_engine.run import FINISHED, FUTURE, PS_PER_S, REQUEST_FIELDS, SAMPLE_FIELDS, GapGroup, Run, RunInfo, Slo
from tileq_theory.errors import InputError

_ABSENT = {"admit_ps": -1, "prefill_end_ps": -1, "first_token_ps": -1, "finish_ps": -1}
_REQUEST_NAMES = {"request_id": "ids"}


def request_table(columns: Mapping[str, Any]) -> dict[str, Int[np.ndarray, "request"]]:
    """Return the full request table from the columns that are known (at least those of arrivals and lengths).

    Unknown moments become -1, ids 0, 1, ..., the prediction the true length, everything else 0; status is "finished"
    where there is a finish, else "future".
    """
    unknown = [name for name in columns if name not in REQUEST_FIELDS]
    if unknown:
        raise InputError(f"unknown request column {unknown[0]!r}; known: {', '.join(REQUEST_FIELDS)}")
    table = {name: np.ascontiguousarray(column, dtype=np.int64) for name, column in columns.items()}
    for name in ("arrival_ps", "prompt_tokens", "output_tokens"):
        if name not in table:
            raise InputError(
                f"request column {name} is missing; expected at least arrival_ps, prompt_tokens, output_tokens"
            )
    count = table["arrival_ps"].size
    table.setdefault("request_id", np.arange(count, dtype=np.int64))
    table.setdefault("predicted_output_tokens", table["output_tokens"])
    for name in REQUEST_FIELDS:
        table.setdefault(name, np.full(count, _ABSENT.get(name, 0), dtype=np.int64))
    if "status" not in columns:
        table["status"] = np.where(table["finish_ps"] >= 0, FINISHED, FUTURE).astype(np.int64)
    return {name: table[name] for name in REQUEST_FIELDS}


def sample_table(samples: Any = None) -> dict[str, Int[np.ndarray, "sample"]]:
    """Return the sample table from an object with the columns as attributes (None: an empty table)."""
    size = 0 if samples is None else np.asarray(samples.start_ps).size
    absent = dict.fromkeys(("work_tokens", "served_prefill_tokens", "served_decode_tokens"), -1)
    table = {}
    for name in SAMPLE_FIELDS:
        column = getattr(samples, name, None)
        default = np.arange(size) if name == "iteration" else np.full(size, absent.get(name, 0))
        table[name] = np.ascontiguousarray(default if column is None else column, dtype=np.int64)
    return table


def _exact_gap_sum(table: Mapping[str, Int[np.ndarray, "n"]], members: Bool[np.ndarray, "n"]) -> int | None:
    """Return the sum of the gaps of a group from first and last token times, or None when some request is unfinished.

    Every gap lies between first and last token, so their sum is finish - first token, whatever the histogram rounds.
    """
    begun = members & (table["first_token_ps"] >= 0)
    if bool((table["finish_ps"][begun] < 0).any()):
        return None
    return int(sum((table["finish_ps"][begun] - table["first_token_ps"][begun]).tolist()))


def _gaps_of(
    record: Any, place: int, table: Mapping[str, Int[np.ndarray, "n"]], members: Bool[np.ndarray, "n"]
) -> GapPairs | GapHistogram:
    chosen = np.asarray(record.group) == place
    gap, count = np.asarray(record.gap_ps)[chosen], np.asarray(record.count)[chosen]
    pairs = GapPairs.of(gap, count)
    if record.exact:
        return pairs
    sub_bins = round(1 / (2 * record.relative_error))
    bins = np.zeros(bins_for(pairs.max_ps, sub_bins), dtype=np.int64)
    np.add.at(bins, bin_index(pairs.gap_ps, sub_bins), pairs.counts)
    if hasattr(record, "sums"):
        exact = record.sums[place]
        return GapHistogram(bins, sub_bins, exact.sum_ps, exact.min_ps, exact.max_ps)
    total = _exact_gap_sum(table, members)
    largest = int(table["max_gap_ps"][members].max())
    kept = pairs.sum_ps if total is None else total
    return GapHistogram(bins, sub_bins, kept, min(pairs.min_ps, largest), largest, total is not None)


def gap_groups(
    record: Any, table: Mapping[str, Int[np.ndarray, "n"]], group: Int[np.ndarray, "n"]
) -> tuple[GapGroup, ...]:
    """Return the gap groups of a raw result; `group` says to which group each request belongs."""
    found = []
    for place in range(int(group.max()) + 1 if group.size else 0):
        members = group == place
        if not bool(members.any()):
            continue
        first = int(np.argmax(members))
        gaps = _gaps_of(record, place, table, members)
        if gaps.count:
            found.append(GapGroup(int(table["class_index"][first]), int(table["tier"][first]), gaps))
    return tuple(found)


def plain(value: Any) -> Any:
    """Return `value` as plain JSON data: numbers, strings, lists and dictionaries; an object by its to_dict or name."""
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    # a function or an object without to_dict is known by its name: its repr would hold an address that changes
    kind = value if hasattr(value, "__qualname__") else type(value)
    return f"{kind.__module__}.{kind.__qualname__}"


def _tiers(requests: Any, size: int) -> Int[np.ndarray, "n"]:
    paying = getattr(requests, "paying", None)
    return np.zeros(size, dtype=np.int64) if paying is None else np.asarray(paying).astype(np.int64)


def _limits_from(table: Mapping[str, Int[np.ndarray, "n"]], tiers: int) -> tuple[Slo, ...]:
    """Return the objectives that the requests' own TBT limits imply: one a tier, where all its requests share it."""
    found = []
    for tier in range(tiers):
        limits = np.unique(table["tbt_limit_ps"][table["tier"] == tier])
        limit = int(limits[0]) if limits.size == 1 else 0
        found.append(Slo(tbt_s=limit / PS_PER_S) if limit > 0 else Slo())
    return tuple(found)


def run_from_raw(
    raw: Any,
    *,
    rate_per_s: float | None = None,
    class_names: Sequence[str] | None = None,
    tier_names: Sequence[str] | None = None,
    slo: Sequence[Slo] | None = None,
    seed: int | None = None,
    replication: int | None = None,
    workload: Any = None,
    provenance: Any = None,
    warnings: Sequence[str] = (),
) -> Run:
    """Return the `Run` of a raw result (`requests`, `policy`, `config`, `time`, `end_ps`, per-request arrays, ...)."""
    requests, config = raw.requests, getattr(raw, "config", None)
    known: dict[str, Any] = {}
    for name in REQUEST_FIELDS:
        column = getattr(raw, name, None)
        column = getattr(requests, _REQUEST_NAMES.get(name, name), None) if column is None else column
        if column is not None:
            known[name] = column
    known["tier"] = _tiers(requests, np.asarray(known["arrival_ps"]).size)
    table = request_table(known)
    tiers = int(table["tier"].max()) + 1 if table["tier"].size else 1
    classes = int(table["class_index"].max()) + 1 if table["class_index"].size else 1
    names = tuple(tier_names) if tier_names is not None else (("standard", "paying") if tiers > 1 else ("all",))
    group = np.asarray(getattr(requests, "group", table["class_index"] * tiers + table["tier"]), dtype=np.int64)
    kv_tokens, block = getattr(config, "kv_tokens", None), int(getattr(config, "block_tokens", 16) or 16)
    info = RunInfo(
        policy=str(getattr(raw.policy, "name", raw.policy)),
        end_ps=int(raw.end_ps),
        stop_reason=str(raw.stop_reason),
        policy_config=_as_mapping(plain(raw.policy)),
        rate_per_s=rate_per_s,
        class_names=tuple(class_names) if class_names is not None else tuple(f"class {i}" for i in range(classes)),
        tier_names=names,
        slo=tuple(slo) if slo is not None else _limits_from(table, len(names)),
        token_convention=str(getattr(config, "convention", "engine")),
        kv_blocks_total=int(kv_tokens) // block if kv_tokens else 0,
        block_tokens=block,
        max_sequences=int(getattr(config, "max_num_seqs", 0) or 0),
        token_budget=int(getattr(config, "token_budget", 0) or 0),
        sample_every=int(getattr(raw.samples, "stride", 1)),
        gap_window_ps=_gap_window(config),
        seed=seed,
        replication=replication,
        iteration_time=_as_mapping(plain(getattr(raw, "time", None))),
        workload=_as_mapping(plain(workload)),
        provenance={
            **_as_mapping(plain(provenance)),
            "engine_config": plain(config),
            "mode": plain(getattr(raw, "mode", None)),
        },
        warnings=(*getattr(raw, "notes", ()), *warnings),
    )
    counters = {str(k): int(v) for k, v in {**_as_mapping(raw.counters), **_integrals(raw)}.items()}
    return Run(
        table,
        sample_table(raw.samples),
        gap_groups(raw.gaps, table, group),
        counters,
        info,
        tenants=getattr(raw, "tenants", None),
        bottlenecks=getattr(raw, "bottlenecks", None),
    )


def _as_mapping(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    return dict(value) if isinstance(value, Mapping) else {"value": value}


def _gap_window(config: Any) -> tuple[int, int] | None:
    """Return the window of tokens that entered the gap distributions, None when all did."""
    begin, end = getattr(config, "gap_from_s", 0.0), getattr(config, "gap_to_s", None)
    if not begin and end is None:
        return None
    return round(begin * PS_PER_S), 2**62 if end is None else round(end * PS_PER_S)


def _integrals(raw: Any) -> dict[str, int]:
    """Return the exact areas of a raw result under their names, from a mapping or an object with those attributes."""
    integrals = getattr(raw, "integrals", None)
    if isinstance(integrals, Mapping):
        return {str(k): int(v) for k, v in integrals.items()}
    names = ("in_system_ps", "waiting_ps", "work_token_ps", "busy_ps")
    return {n: int(getattr(integrals, n)) for n in names if hasattr(integrals, n)}
