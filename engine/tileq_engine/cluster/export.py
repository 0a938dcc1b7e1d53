"""Per-request tables of a cluster's runs: the columns of a single run's, and the nodes that a request was on."""

from __future__ import annotations

__all__ = ["places", "visits", "write_cluster_csv", "write_cluster_parquet"]

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from tileq_engine.export import request_columns
from tileq_engine.run_io import atomic_write
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_engine.cluster.result import ClusterRun


def visits(run: ClusterRun) -> tuple[Int[np.ndarray, "visit"], Int[np.ndarray, "visit"]]:
    """Return (request, node) a visit, request by request in order of time; places in `cluster.replicas`.

    A visit ends with a move, with a KV transfer that arrived, or with the request. One that the router took back
    before it was given to a node again shows as a visit of the next.
    """
    m, t = run.moves, run.transfers
    arrived = t.end_ps >= 0
    given = np.flatnonzero(run.node >= 0)
    last = np.iinfo(np.int64).max
    request = np.concatenate([m.request, m.request, t.request[arrived], t.request[arrived], given])
    when = np.concatenate([m.time_ps, m.time_ps, t.end_ps[arrived], t.end_ps[arrived], np.full(len(given), last)])
    node = np.concatenate([m.source, m.target, t.source[arrived], t.target[arrived], run.node[given]])
    order = np.lexsort((np.arange(len(request)), when, request))
    request, node = request[order], node[order]
    request, node = request[node >= 0], node[node >= 0]
    new = np.ones(len(node), dtype=bool)
    new[1:] = (np.diff(request) != 0) | (np.diff(node) != 0)
    return request[new], node[new]


def places(run: ClusterRun) -> dict[str, Any]:
    """Return the columns that say where each request was: (values, mask of missing entries) by name."""
    names = np.array([*(node.name for node in run.nodes), ""], dtype=object)  # -1 is the last, none
    request, node = visits(run)
    path = names[run.node].copy()
    counts = np.bincount(request, minlength=len(run.requests))
    starts = np.cumsum(counts) - counts
    for i in np.flatnonzero(counts > 1).tolist():
        path[i] = " > ".join(names[node[starts[i] : starts[i] + counts[i]]])
    none = np.zeros(len(run.requests), dtype=bool)
    moved = np.bincount(run.moves.request, minlength=len(run.requests))
    return {
        "node": (names[run.node], run.node < 0),
        "prefill_node": (names[run.prefill_node], run.prefill_node < 0),
        "nodes": (path, counts == 0),
        "times_routed": (run.routed, none),
        "moves": (moved.astype(np.int64), none),
    }


def _arrow_table(runs: Sequence[ClusterRun]) -> Any:
    import pyarrow as pa

    if not runs:
        raise InputError("no run was given to export; expected at least one")
    tables = []
    for k, run in enumerate(runs):
        whole = run.run()
        columns = {**request_columns(whole), **places(run)}
        arrays = {"replication": pa.array(np.full(len(run.requests), k, dtype=np.int64))}
        arrays |= {name: pa.array(values, mask=mask) for name, (values, mask) in columns.items()}
        tables.append(pa.table(arrays))
    first = runs[0]
    facts = {"router": first.cluster.router.to_dict(), "nodes": [n.name for n in first.nodes], "seed": first.seed}
    facts |= {"rate_per_s": first.rate_per_s, "clock": "whole picoseconds"}
    facts |= {"end_ps": [run.end_ps for run in runs], "stop_reason": [run.stop_reason for run in runs]}
    return pa.concat_tables(tables).replace_schema_metadata({"tileq_cluster_run": json.dumps(facts)})


def write_cluster_csv(runs: Sequence[ClusterRun], path: str | Path) -> Path:
    """Write one row a request, header first, missing entries empty; atomic."""
    from pyarrow import csv

    table = _arrow_table(runs)
    return atomic_write(path, lambda part: csv.write_csv(table, str(part)))


def write_cluster_parquet(runs: Sequence[ClusterRun], path: str | Path) -> Path:
    """Write one row a request with nulls for missing entries and the runs' facts as file metadata; atomic."""
    from pyarrow import parquet

    table = _arrow_table(runs)
    return atomic_write(path, lambda part: parquet.write_table(table, str(part)))
