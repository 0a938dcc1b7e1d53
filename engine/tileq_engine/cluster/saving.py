r"""Saving and loading runs of a cluster, by the conventions of a single run's file (`run_io`).

One NPZ file holds one replication or several: plain arrays run/<place>/... and a JSON header, never pickle. The nodes'
samples, gaps, traces and bottlenecks lie behind each other in one array a column, with the number of rows of each
node beside them, so that a cluster of a thousand nodes is still a few dozen arrays. A policy with functions of the
user's own is known by its facts afterwards (`recorded.RecordedPolicy`); everything else comes back as it was.
"""

from __future__ import annotations

__all__ = ["identical_cluster_runs", "load_cluster_runs", "save_cluster_runs"]

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from tileq_engine.cluster.recorded import cluster_facts, cluster_from
from tileq_engine.cluster.result import ClusterRun, Moves, NodeRun, Transfers
from tileq_engine.observed import BOTTLENECK_ARRAYS, TENANT_ARRAYS, Bottlenecks, TenantRecord
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.requests import Requests
from tileq_engine.run_io import atomic_write, header_text, reading, write_npz
from tileq_engine.simulator_result import GapRecord, GapSums, IterationSamples, Trace
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_engine.cluster.header import GapFacts, RunFacts

_OF_REQUESTS = tuple(f.name for f in fields(Requests) if f.name != "blocks")
_BLOCKS = ("offsets", "nodes", "parent")
_COLUMNS = (
    "node", "prefill_node", "routed", "admit_ps", "prefill_end_ps", "first_token_ps", "finish_ps", "tokens_done",
    "preemptions", "predicted_output_tokens", "recomputed_tokens", "swapped_tokens", "max_gap_ps", "gaps_over_limit",
    "status", "reject_reason", "prefix_hit_tokens",
)  # fmt: skip
_GAPS = ("gap_ps", "count", "group")
_SAMPLES = tuple(f.name for f in fields(IterationSamples) if f.name != "stride")
_TRACE = tuple(f.name for f in fields(Trace))
_LISTS: dict[str, tuple[str, ...]] = {"samples": _SAMPLES, "gaps": _GAPS, "trace": _TRACE}
_FACTS = ("class_names", "rate_per_s", "seed", "mode", "stop_reason", "end_ps", "counters", "notes")

Arrays = Mapping[str, np.ndarray]


def save_cluster_runs(runs: Sequence[ClusterRun], path: str | Path) -> Path:
    """Write the runs (replications) to one NPZ file, losslessly and atomically; return the path."""
    from tileq_engine.cluster.header import ClusterHeader

    if not runs:
        raise InputError("no run was given to save; expected at least one")
    facts = {"runs": [_run_facts(run) for run in runs]}
    try:
        header = ClusterHeader.model_validate(json.loads(json.dumps(facts, allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise InputError(f"the runs' facts cannot be stored as JSON: {error}") from None
    arrays: dict[str, np.ndarray] = {}
    for place, run in enumerate(runs):
        arrays |= {f"run/{place}/{name}": array for name, array in _arrays_of(run).items()}
    text = header.model_dump_json().encode()
    return atomic_write(path, lambda part: write_npz(part, text, arrays))


def _run_facts(run: ClusterRun) -> dict[str, Any]:
    nodes = [
        {
            "end_ps": node.end_ps,
            "counters": dict(node.counters),
            "integrals": dict(node.integrals),
            "stride": node.samples.stride,
            "gaps": _gap_facts(node.gaps),
            "hits": bool(node.prefix_hit_tokens.any()),
            "tenants": None if node.tenants is None else _tenant_facts(node.tenants),
            "bottlenecks": node.bottlenecks is not None,
        }
        for node in run.nodes
    ]
    blocks = run.requests.blocks
    return {
        **{name: getattr(run, name) for name in _FACTS},
        "counters": dict(run.counters),
        "cluster": cluster_facts(run.cluster),
        "block_tokens": None if blocks is None else blocks.block_tokens,
        "nodes": nodes,
        "gaps": _gap_facts(run.gaps),
    }


def _gap_facts(gaps: GapRecord) -> dict[str, Any]:
    sums = [(s.count, s.sum_ps, s.min_ps, s.max_ps) for s in gaps.sums]
    return {"exact": gaps.exact, "group_names": gaps.group_names, "sums": sums}


def _tenant_facts(record: TenantRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("names", "weights", "prompt_price", "output_price")}


def _arrays_of(run: ClusterRun) -> dict[str, np.ndarray]:
    arrays = {f"requests/{name}": getattr(run.requests, name) for name in _OF_REQUESTS}
    if run.requests.blocks is not None:
        arrays |= {f"blocks/{name}": getattr(run.requests.blocks, name) for name in _BLOCKS}
    arrays |= {f"columns/{name}": getattr(run, name) for name in _COLUMNS}
    arrays |= {f"gaps/{name}": getattr(run.gaps, name) for name in _GAPS}
    for kind, record in (("transfers", run.transfers), ("moves", run.moves)):
        arrays |= {f"{kind}/{f.name}": getattr(record, f.name) for f in fields(record)}
    for kind, names in _LISTS.items():
        arrays |= _joined(f"nodes/{kind}", names, [getattr(node, kind) for node in run.nodes])
    seen = [node.bottlenecks for node in run.nodes if node.bottlenecks is not None]
    if seen:
        arrays |= _joined("nodes/bottlenecks", BOTTLENECK_ARRAYS, seen)
    for k, node in enumerate(run.nodes):
        if node.prefix_hit_tokens.any():
            arrays[f"nodes/{k}/prefix_hit_tokens"] = node.prefix_hit_tokens
        if node.tenants is not None:
            arrays |= {f"nodes/{k}/tenants/{name}": getattr(node.tenants, name) for name in TENANT_ARRAYS}
    return arrays


def _joined(kind: str, names: Sequence[str], records: Sequence[Any]) -> dict[str, np.ndarray]:
    """Return the columns of all records behind each other, and how many rows each has."""
    rows = np.array([len(getattr(record, names[0])) for record in records], dtype=np.int64)
    columns = {f"{kind}/{name}": np.concatenate([getattr(record, name) for record in records]) for name in names}
    return {**columns, f"{kind}/rows": rows}


def load_cluster_runs(path: str | Path, replication: int | None = None) -> tuple[ClusterRun, ...]:
    """Return the runs stored in `path`, or the one in the given place alone.

    Raises
    ------
    InputError
        If the file is missing, damaged, foreign, of another schema version, or has no such replication.
    """
    from tileq_engine.cluster.header import parse_cluster_header

    with reading(path, "ClusterRun.save") as stored:
        header = parse_cluster_header(header_text(stored), str(path))
        places = range(len(header.runs))
        if replication is not None and replication not in places:
            raise InputError(f"replication {replication!r} is not in the file; it has {len(places)}, from 0")
        chosen = places if replication is None else [replication]
        return tuple(_run_from(header.runs[k], partial(_array, stored, k)) for k in chosen)


def _array(stored: Mapping[str, np.ndarray], place: int, name: str) -> np.ndarray:
    return stored[f"run/{place}/{name}"]


def _run_from(facts: RunFacts, read: Callable[[str], np.ndarray]) -> ClusterRun:
    blocks = None
    if facts.block_tokens is not None:
        blocks = BlockPaths(**{name: read(f"blocks/{name}") for name in _BLOCKS}, block_tokens=facts.block_tokens)
    requests = Requests(**{name: read(f"requests/{name}") for name in _OF_REQUESTS}, blocks=blocks)
    cluster = cluster_from(facts.cluster)
    made: dict[str, Any] = {name: getattr(facts, name) for name in _FACTS}
    made |= {"class_names": tuple(facts.class_names), "notes": tuple(facts.notes)}
    columns: dict[str, Any] = {name: read(f"columns/{name}") for name in _COLUMNS}
    wrong = next((name for name, column in columns.items() if column.shape != (len(requests),)), None)
    if wrong is not None or len(facts.nodes) != len(cluster.replicas):
        raise InputError(f"{wrong or 'nodes'} does not fit the requests and the cluster; the file is damaged")
    return ClusterRun(
        requests=requests,
        cluster=cluster,
        **made,
        **columns,
        nodes=_nodes_from(facts, cluster.replicas, len(requests), read),
        gaps=_gaps_from(facts.gaps, {name: read(f"gaps/{name}") for name in _GAPS}),
        transfers=Transfers(**{f.name: read(f"transfers/{f.name}") for f in fields(Transfers)}),
        moves=Moves(**{f.name: read(f"moves/{f.name}") for f in fields(Moves)}),
    )


def _gaps_from(facts: GapFacts, arrays: Arrays) -> GapRecord:
    return GapRecord(facts.exact, tuple(facts.group_names), sums=tuple(GapSums(*s) for s in facts.sums), **arrays)


def _nodes_from(
    facts: RunFacts, replicas: Sequence[Any], count: int, read: Callable[[str], np.ndarray]
) -> tuple[NodeRun, ...]:
    parts = {kind: _parted(kind, names, read) for kind, names in _LISTS.items()}
    watched = [k for k, own in enumerate(facts.nodes) if own.bottlenecks]
    causes = dict(zip(watched, _parted("bottlenecks", BOTTLENECK_ARRAYS, read), strict=True)) if watched else {}
    nothing = np.zeros(count, dtype=np.int64)  # one array for all nodes that found nothing, as in a run
    found = []
    for k, (own, node) in enumerate(zip(facts.nodes, replicas, strict=True)):
        tenants = None
        if own.tenants is not None:
            names = {name: read(f"nodes/{k}/tenants/{name}") for name in TENANT_ARRAYS}
            t = own.tenants
            tenants = TenantRecord(tuple(t.names), tuple(t.weights), t.prompt_price, t.output_price, **names)
        found.append(
            NodeRun(
                name=node.name,
                role=node.role,
                node=node,
                end_ps=own.end_ps,
                counters=own.counters,
                integrals=own.integrals,
                samples=IterationSamples(own.stride, **parts["samples"][k]),
                gaps=_gaps_from(own.gaps, parts["gaps"][k]),
                trace=Trace(**parts["trace"][k]),
                prefix_hit_tokens=read(f"nodes/{k}/prefix_hit_tokens") if own.hits else nothing,
                tenants=tenants,
                bottlenecks=Bottlenecks(**causes[k]) if k in causes else None,
            )
        )
    return tuple(found)


def _parted(
    kind: str, names: Sequence[str], read: Callable[[str], np.ndarray]
) -> list[dict[str, Int[np.ndarray, "row"]]]:
    """Return each node's part of the columns that lie behind each other."""
    edges = np.cumsum(read(f"nodes/{kind}/rows"))[:-1]
    columns = {name: np.split(read(f"nodes/{kind}/{name}"), edges) for name in names}
    return [{name: parts[k] for name, parts in columns.items()} for k in range(len(edges) + 1)]


def identical_cluster_runs(first: ClusterRun, second: ClusterRun) -> bool:
    """Return whether two runs agree in every array entry and every fact."""
    one, two = _arrays_of(first), _arrays_of(second)
    same = one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)
    facts = [json.dumps(_run_facts(run), sort_keys=True) for run in (first, second)]
    return same and facts[0] == facts[1]
