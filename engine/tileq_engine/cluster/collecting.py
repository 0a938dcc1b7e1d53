"""From the arrays of a cluster's run to its `ClusterRun`."""

from __future__ import annotations

__all__ = ["collect_cluster"]

from typing import Any

import numpy as np

from tileq_engine.cluster.layout import Layout
from tileq_engine.cluster.nodes import Cluster
from tileq_engine.cluster.result import ClusterRun, Moves, NodeRun, Transfers
from tileq_engine.requests import Requests
from tileq_engine.simulator_collect import (
    COLUMNS,
    Pairs,
    counters,
    gap_record,
    integrals,
    merge_pairs,
    prefix_hits,
    table_columns,
    write_back,
)
from tileq_engine.simulator_extras import tenant_record
from tileq_engine.simulator_result import GapRecord, GapSums, IterationSamples, Trace
from tileq_engine.simulator_state import SAMPLE_FIELDS, TRACE_FIELDS, State

_PEAKS = ("peak_running", "peak_waiting", "peak_kv_blocks")
_NODE = {
    "routed": "routed",
    "handed": "handed",
    "received": "received",
    "failures": "failures",
    "aborted_tokens": "aborted",
    "lost_tokens": "lost",
}
_WHOLE = {
    "held_at_router": "hold_count",
    "peak_held_at_router": "peak_hold",
    "waiting_for_decode": "wait_count",
    "peak_waiting_for_decode": "peak_wait",
    "in_transfer": "flying",
    "stranded": "stranded",
    "on_nodes": "on_nodes",
    "to_come": "to_come",
    "touches": "touches",
    "comparisons": "comparisons",
}


def _node_run(
    made: Layout, r: int, state: State, pairs: Pairs, requests: Requests, end: int, nothing: np.ndarray
) -> NodeRun:
    node, N = made.nodes[r], made.own[1]
    own = {name: int(made.get(N, r, field)) for name, field in _NODE.items()}
    rows = table_columns(state.SA, state.scalar("nsamples"), state.scalar("row"))
    up = int(made.get(N, r, "up_ps")) + (end - int(made.get(N, r, "since")) if made.get(N, r, "up") else 0)
    return NodeRun(
        name=node.name,
        role=node.role,
        node=node,
        end_ps=state.scalar("now"),
        counters={**counters(state, made.configs[r]), **own},
        integrals={**integrals(state), "up_ps": up},
        samples=IterationSamples(state.scalar("stride"), *rows[:SAMPLE_FIELDS]),
        gaps=gap_record(state, pairs, requests.group_names or ("class 0",)),
        trace=Trace(*table_columns(state.TR, state.scalar("ntrace"), TRACE_FIELDS)),
        prefix_hit_tokens=prefix_hits(state, len(requests)) if state.scalar("tree") else nothing,
        tenants=tenant_record(state, rows[SAMPLE_FIELDS:], requests, made.configs[r]),
        bottlenecks=pairs.bottlenecks(),
    )


def merged_gaps(records: list[GapRecord]) -> GapRecord:
    """Return the gaps of all nodes in one distribution."""
    if len(records) == 1:
        return records[0]
    rows = np.concatenate([np.stack([g.gap_ps, g.group, g.count], axis=1) for g in records])
    merged = merge_pairs(rows) if len(rows) else rows
    gap, group, count = (np.ascontiguousarray(c) for c in merged.T)
    sums = []
    for parts in zip(*(g.sums for g in records), strict=True):
        any_of = [p for p in parts if p.count]
        least, most = min((p.min_ps for p in any_of), default=0), max((p.max_ps for p in any_of), default=0)
        sums.append(GapSums(sum(p.count for p in parts), sum(p.sum_ps for p in parts), least, most))
    first = records[0]
    return GapRecord(first.exact, first.group_names, gap, count, group, tuple(sums))


def _summed(nodes: tuple[NodeRun, ...], made: Layout, moves: Any, transfers: Any) -> dict[str, int]:
    C = made.own[0]
    total = {}
    for name in dict.fromkeys(name for node in nodes for name in node.counters):
        values = [node.counters.get(name, 0) for node in nodes]
        total[name] = max(values) if name in _PEAKS else sum(values)
    total["rejected"] += int(made.get(C, 0, "rejected"))
    whole = {name: int(made.get(C, 0, field)) for name, field in _WHOLE.items()}
    return {**total, "moves": len(moves), "transfers": int((transfers[:, 5] >= 0).sum()), **whole}


def collect_cluster(
    made: Layout,
    requests: Requests,
    cluster: Cluster,
    seed: int,
    mode: str,
    stop_reason: str,
    pairs: list[Pairs],
    moves: np.ndarray,
    transfers: np.ndarray,
) -> ClusterRun:
    """Return the run that has ended in the arrays of `made`."""
    states = [made.node_state(r) for r in range(len(made.nodes))]
    for state in states:
        write_back(state)
    end = max(state.scalar("now") for state in states)
    nothing = np.zeros(len(requests), dtype=np.int64)  # of nodes without a prefix cache: one array for all
    nodes = tuple(_node_run(made, r, state, pairs[r], requests, end, nothing) for r, state in enumerate(states))
    hits = nothing.copy()
    for node in nodes:
        if node.prefix_hit_tokens is not nothing:
            hits += node.prefix_hit_tokens
    columns: dict[str, Any] = dict(zip(COLUMNS, states[0].columns(*COLUMNS.values()), strict=True))
    X = made.own[3]
    return ClusterRun(
        requests=requests,
        cluster=cluster,
        seed=seed,
        mode=mode,
        stop_reason=stop_reason,
        end_ps=end,
        node=made.column(X, "node"),
        prefill_node=made.column(X, "source"),
        routed=made.column(X, "routed"),
        **columns,
        prefix_hit_tokens=hits,
        nodes=nodes,
        gaps=merged_gaps([node.gaps for node in nodes]),
        transfers=Transfers(*(np.ascontiguousarray(c) for c in transfers.T)),
        moves=Moves(*(np.ascontiguousarray(c) for c in moves.T[:6])),
        counters=_summed(nodes, made, moves, transfers),
    )
