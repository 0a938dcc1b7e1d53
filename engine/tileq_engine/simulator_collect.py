"""From the arrays of a run to its `RawRun`."""

from __future__ import annotations

__all__ = [
    "COLUMNS",
    "Pairs",
    "collect",
    "counters",
    "gap_record",
    "integrals",
    "merge_pairs",
    "prefix_hits",
    "table_columns",
    "write_back",
]

from typing import Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.prefix_region import ROW, SAVED
from tileq_engine.requests import Requests
from tileq_engine.simulator_extras import Causes, tenant_record
from tileq_engine.simulator_result import Bottlenecks, GapRecord, GapSums, IterationSamples, RawRun, Trace
from tileq_engine.simulator_state import GAP_BINS, GAP_FIELDS, SAMPLE_FIELDS, TRACE_FIELDS, State
from tileq_theory.iteration_time import IterationTime

_COUNTERS = (
    ("iterations", "iters"),
    ("jumped_iterations", "jumped"),
    ("prefill_tokens", "prefill_tokens"),
    ("decode_tokens", "decode_tokens"),
    ("preemptions", "preempted"),
    ("recomputed_tokens", "recomputed"),
    ("swapped_tokens", "swapped"),
    ("finished", "finished"),
    ("rejected", "rejected"),
    ("peak_running", "peak_running"),
    ("peak_waiting", "peak_waiting"),
    ("peak_kv_blocks", "peak_blocks"),
)
_PREFIX_COUNTERS = (
    ("prefix_lookups", "searches"),
    ("prefix_lookup_tokens", "searched_tokens"),
    ("prefix_hit_tokens", "hit_tokens"),
    ("prefix_evicted_blocks", "evicted_nodes"),
    ("prefix_merged_blocks", "merged_nodes"),
)
COLUMNS = {
    "admit_ps": "admit",
    "prefill_end_ps": "prefill_end",
    "first_token_ps": "first",
    "finish_ps": "finish",
    "tokens_done": "gen",
    "preemptions": "preempted",
    "predicted_output_tokens": "predicted",
    "recomputed_tokens": "recomputed",
    "swapped_tokens": "swapped",
    "max_gap_ps": "max_gap",
    "gaps_over_limit": "over",
    "status": "status",
    "reject_reason": "reason",
}


class Pairs:
    """Gap pairs taken out of the loop's buffer, merged as they come so that they stay few."""

    def __init__(self) -> None:
        self._merged = np.zeros((0, 3), dtype=np.int64)
        self._causes = Causes()

    def flush(self, state: State) -> None:
        """Take the pairs, and the bottlenecks, out of their buffers."""
        self._causes.take(state)
        count = state.scalar("npairs")
        if count == 0:
            return
        rows = np.asarray(state.GP[: 3 * count], dtype=np.int64).reshape(-1, 3)
        self._merged = merge_pairs(np.concatenate([self._merged, rows]))
        state.set_scalars({"npairs": 0})
        for at in range(5, len(state.GS), GAP_FIELDS):
            state.GS[at] = -1

    def bottlenecks(self) -> Bottlenecks | None:
        """Return the bottlenecks taken so far; None where nobody watched."""
        return self._causes.record()

    @property
    def rows(self) -> np.ndarray:
        """(gap, group, count), each pair once, by group and gap."""
        return self._merged


def merge_pairs(rows: np.ndarray) -> np.ndarray:
    """Return rows of (gap, group, count) with each pair once, by group and gap."""
    groups, span = int(rows[:, 1].max()) + 1, int(rows[:, 0].max()) + 1
    if span < 2**62 // groups:  # one key a row: sorting is the cost of a short run
        key = rows[:, 1] * span + rows[:, 0]
        order = np.argsort(key)
        key = key[order]
        starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        counts = np.add.reduceat(rows[order, 2], starts)
        group = np.searchsorted(key[starts], span * np.arange(1, groups), side="left")  # where the next group begins
        group = np.repeat(np.arange(groups), np.diff(group, prepend=0, append=len(starts)))
        return np.stack([key[starts] - span * group, group, counts], axis=1)
    pairs, place = np.unique(rows[:, 1::-1], axis=0, return_inverse=True)
    merged = np.zeros((len(pairs), 3), dtype=np.int64)
    merged[:, :2] = pairs[:, ::-1]
    np.add.at(merged[:, 2], place.reshape(-1), rows[:, 2])
    return merged


def bin_middle(index: np.ndarray) -> np.ndarray:
    """Return the middle of each histogram bin, picoseconds."""
    octave = np.maximum((index >> 7) - 1, 0)
    low = np.where(index < 128, index, ((index & 127) + 128) << octave)
    return low + np.where(index < 128, 0, ((np.int64(1) << octave) - 1) // 2)


def gap_record(state: State, pairs: Pairs, names: tuple[str, ...]) -> GapRecord:
    """Return the distribution of the gaps that the run has recorded."""
    exact = state.scalar("gap_mode") == 0
    if exact:
        gap, group, count = (np.ascontiguousarray(c) for c in pairs.rows.T)
    else:
        counts = np.asarray(state.GH, dtype=np.int64).reshape(-1, GAP_BINS)
        group, index = np.nonzero(counts)
        count = counts[group, index]
        gap, group = bin_middle(index.astype(np.int64)), group.astype(np.int64)
    sums = np.asarray(state.GS, dtype=np.int64).reshape(-1, GAP_FIELDS).tolist()
    return GapRecord(
        exact=exact,
        group_names=names,
        gap_ps=gap,
        count=count,
        group=group,
        sums=tuple(GapSums(c, (high << 32) + low, least, most) for c, high, low, least, most, _ in sums),
    )


def table_columns(flat: Any, count: int, width: int) -> list[np.ndarray]:
    """Return the columns of `count` rows that stand one behind the other."""
    rows = np.asarray(flat[: count * width], dtype=np.int64).reshape(-1, width)
    return [np.ascontiguousarray(c) for c in rows.T]


def write_back(state: State) -> None:
    """Bring what the residents carry to their requests' records."""
    for k in range(state.scalar("nres")):
        b = state.B[state.O[k]]
        for name in ("gen", "last", "max_gap", "over"):
            if state.compiled:
                state.R[name][b["id"]] = b[name]
            else:
                setattr(state.R[b.id], name, getattr(b, name))


def counters(state: State, config: EngineConfig) -> dict[str, int]:
    """Return the run's totals; those of a prefix cache only where there is one."""
    found = {name: state.scalar(field) for name, field in _COUNTERS}
    if config.prefix_cache:
        found |= {name: state.scalar(field) for name, field in _PREFIX_COUNTERS}
        for name in ("prefix_evicted_blocks", "prefix_merged_blocks"):
            found[name] *= state.scalar("node_blocks")
    return found


def prefix_hits(state: State, count: int) -> np.ndarray:
    """Return the tokens of each request that the prefix cache had."""
    tree = state.scalar("tree")
    rows = np.asarray(state.P[tree : tree + ROW * count], dtype=np.int64) if tree else np.zeros(ROW * count, np.int64)
    return np.ascontiguousarray(rows.reshape(-1, ROW)[:, SAVED])


def integrals(state: State) -> dict[str, int]:
    """Return the exact areas of the run."""
    shift = 24
    return {
        "in_system_ps": (state.scalar("area_n_hi") << shift) + state.scalar("area_n_lo"),
        "waiting_ps": (state.scalar("area_w_hi") << shift) + state.scalar("area_w_lo"),
        "work_token_ps": sum(state.scalar(f"area_k_{digit}") << (31 * digit) for digit in range(3)),
        "busy_ps": state.scalar("sum_dur"),
    }


def collect(
    state: State,
    pairs: Pairs,
    stop_reason: str,
    requests: Requests,
    policy: Policy,
    config: EngineConfig,
    time: IterationTime,
    mode: str,
    columns: list[np.ndarray] | None = None,
) -> RawRun:
    """Return the run that has ended in `state`; `columns` where its records are kept elsewhere."""
    pairs.flush(state)
    write_back(state)
    count = len(requests)  # the records may have room for more
    held = [c[:count] for c in state.columns(*COLUMNS.values())] if columns is None else columns
    rows = table_columns(state.SA, state.scalar("nsamples"), state.scalar("row"))
    given: dict[str, Any] = dict(zip(COLUMNS, held, strict=True))
    return RawRun(
        requests=requests,
        policy=policy,
        config=config,
        time=time,
        mode=mode,
        stop_reason=stop_reason,
        end_ps=state.scalar("now"),
        arrival_ps=requests.arrival_ps,
        **given,
        prefix_hit_tokens=prefix_hits(state, count),
        gaps=gap_record(state, pairs, requests.group_names or ("class 0",)),
        samples=IterationSamples(state.scalar("stride"), *rows[:SAMPLE_FIELDS]),
        trace=Trace(*table_columns(state.TR, state.scalar("ntrace"), TRACE_FIELDS)),
        integrals=integrals(state),
        counters=counters(state, config),
        tenants=tenant_record(state, rows[SAMPLE_FIELDS:], requests, config),
        bottlenecks=pairs.bottlenecks(),
    )
