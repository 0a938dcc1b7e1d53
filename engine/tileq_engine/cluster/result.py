"""What a cluster's run leaves behind: each request's fate and places, each node's record, transfers and moves."""

from __future__ import annotations

__all__ = ["MOVE_REASONS", "ClusterRun", "Moves", "NodeLoad", "NodeRun", "Transfers"]

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from tileq_engine.cluster.nodes import Cluster, Node
from tileq_engine.cluster.paths import cluster_samples, on_grid
from tileq_engine.observed import Bottlenecks, TenantRecord
from tileq_engine.requests import Requests
from tileq_engine.run import Run
from tileq_engine.simulator_result import GapRecord, IterationSamples, RawRun, Trace
from tileq_theory.errors import InputError, near_matches

PS_PER_S = 10**12
MOVE_REASONS = ("node failed", "node full", "rebalanced")
Requestwise = Int[np.ndarray, "request"]
Transferwise = Int[np.ndarray, "transfer"]
Movewise = Int[np.ndarray, "move"]
Nodewise = Float[np.ndarray, "node"]


@dataclass(frozen=True, slots=True)
class Transfers:
    """KV transfers, in the order in which they ended: who, between which nodes, when, how much.

    `ready_ps`: handed over; `start_ps`: the sender's port begins; `end_ps`: arrived, -1 where a failure broke it.
    `blocks` were held at the source from `ready_ps` to `end_ps`.
    """

    request: Transferwise
    source: Transferwise
    target: Transferwise
    ready_ps: Transferwise
    start_ps: Transferwise
    end_ps: Transferwise
    tokens: Transferwise
    blocks: Transferwise

    def __len__(self) -> int:
        return len(self.request)


@dataclass(frozen=True, slots=True)
class Moves:
    """Requests that went to another node than they were given to; `reason` is a place in `MOVE_REASONS`."""

    request: Movewise
    time_ps: Movewise
    source: Movewise
    target: Movewise
    reason: Movewise
    delivered_tokens: Movewise

    def __len__(self) -> int:
        return len(self.request)


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The record of one node.

    `counters` are a single run's, and: routed, handed (over), received (KV), failures, aborted_tokens (of iterations
    that a failure ended), lost_tokens (KV that it lost). `integrals` are a single run's, and up_ps.
    """

    name: str
    role: str
    node: Node
    end_ps: int
    counters: Mapping[str, int]
    integrals: Mapping[str, int]
    samples: IterationSamples
    gaps: GapRecord
    trace: Trace
    prefix_hit_tokens: Requestwise
    tenants: TenantRecord | None = None
    bottlenecks: Bottlenecks | None = None


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """One entry a node; rates and means over the whole run, `kv_share` over the samples."""

    name: tuple[str, ...]
    role: tuple[str, ...]
    routed: Int[np.ndarray, "node"]
    finished: Int[np.ndarray, "node"]
    busy_share: Nodewise
    mean_in_system: Nodewise
    mean_waiting: Nodewise
    kv_share: Nodewise
    tokens_per_s: Nodewise

    def rows(self) -> list[dict[str, Any]]:
        """Return one dictionary a node, plain data."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        plain = {k: list(v) if isinstance(v, tuple) else v.tolist() for k, v in columns.items()}
        return [{k: v[r] for k, v in plain.items()} for r in range(len(self.name))]


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """One run of a cluster. Per request: times and counts as in `RawRun`, and where it was.

    Parameters
    ----------
    node
        Index into `cluster.replicas` of the node that has it or had it last; -1: never given to one.
    prefill_node
        Where it was prefilled before its last transfer; -1: never handed over.
    routed
        Times the router gave it to a node.
    rate_per_s, class_names
        Offered rate and names of the classes, where they are known; `run` tells them on.
    """

    requests: Requests
    cluster: Cluster
    seed: int
    mode: str
    stop_reason: str
    end_ps: int
    node: Requestwise
    prefill_node: Requestwise
    routed: Requestwise
    admit_ps: Requestwise
    prefill_end_ps: Requestwise
    first_token_ps: Requestwise
    finish_ps: Requestwise
    tokens_done: Requestwise
    preemptions: Requestwise
    predicted_output_tokens: Requestwise
    recomputed_tokens: Requestwise
    swapped_tokens: Requestwise
    max_gap_ps: Requestwise
    gaps_over_limit: Requestwise
    status: Requestwise
    reject_reason: Requestwise
    prefix_hit_tokens: Requestwise
    nodes: tuple[NodeRun, ...]
    gaps: GapRecord
    transfers: Transfers
    moves: Moves
    counters: Mapping[str, int]
    notes: tuple[str, ...] = ()
    rate_per_s: float | None = None
    class_names: tuple[str, ...] = ()

    def raw(self) -> RawRun:
        """Return the run of the cluster as if it were one engine's: everything summed, samples on a common grid.

        Policy, iteration time and settings are those of the first node.
        """
        first = self.cluster.replicas[0]
        return self._raw(
            np.ones(len(self.requests), dtype=bool), first, self.gaps, cluster_samples(self), self.counters
        )

    def _raw(
        self,
        chosen: Bool[np.ndarray, "request"],
        node: Node,
        gaps: GapRecord,
        samples: IterationSamples,
        counters: Mapping[str, int],
        integrals: Mapping[str, int] | None = None,
    ) -> RawRun:
        names = {f.name for f in fields(RawRun)} & {f.name for f in fields(self)}
        whole = names - {"requests", "mode", "stop_reason", "end_ps", "gaps", "counters", "notes"}
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in whole}
        requests = self.requests if bool(chosen.all()) else _chosen(self.requests, chosen)
        policy: Any = node.policy
        return RawRun(
            requests=requests,
            policy=policy,
            config=policy.settings(node.config),
            time=node.time,
            mode=self.mode,
            stop_reason=self.stop_reason,
            end_ps=self.end_ps,
            arrival_ps=requests.arrival_ps,
            **columns,
            gaps=gaps,
            samples=samples,
            trace=Trace(*(np.zeros(0, dtype=np.int64) for _ in range(6))),
            integrals=self.integrals if integrals is None else integrals,
            counters=counters,
            notes=self.notes,
        )

    @property
    def integrals(self) -> dict[str, int]:
        """Sums of the nodes' areas."""
        return {name: sum(node.integrals[name] for node in self.nodes) for name in self.nodes[0].integrals}

    def run(self, **facts: Any) -> Run:
        """Return the whole cluster's run, for metrics, verdict and export (facts as in `run_raw.run_from_raw`)."""
        from tileq_engine.cluster.whole import as_one

        facts.setdefault("seed", self.seed)
        facts.setdefault("rate_per_s", self.rate_per_s)
        facts.setdefault("class_names", self.class_names or None)
        facts.setdefault("provenance", {"cluster": self.cluster.to_dict()})
        return as_one(self, Run.of(self.raw(), **facts))

    def index(self, node: int | str) -> int:
        """Return the index of a node given by index or name."""
        names = [n.name for n in self.nodes]
        if isinstance(node, str):
            if node not in names:
                raise InputError(f"node {node!r} is unknown; {near_matches('nodes', node, names)}")
            return names.index(node)
        if not 0 <= node < len(names):
            raise InputError(f"node {node!r} is unknown; the cluster has {len(names)}, from 0")
        return int(node)

    def node_raw(self, node: int | str) -> RawRun:
        """Return the run of one node: the requests that ended there (or are there), its samples, gaps and counters."""
        r = self.index(node)
        chosen = np.asarray(self.node == r)
        own = self.nodes[r]
        groups = np.unique(self.requests.group[chosen])
        gaps = _regrouped(own.gaps, groups)
        raw = self._raw(chosen, own.node, gaps, own.samples, own.counters, own.integrals)
        hits = own.prefix_hit_tokens[chosen]
        return replace(raw, prefix_hit_tokens=hits, tenants=own.tenants, bottlenecks=own.bottlenecks)

    def node_run(self, node: int | str, **facts: Any) -> Run:
        """Return `node_raw` as a `Run`."""
        facts.setdefault("class_names", self.class_names or None)
        return Run.of(self.node_raw(node), **facts)

    def node_load(self) -> NodeLoad:
        """Return how busy each node was."""
        span = max(self.end_ps, 1)
        nodes = self.nodes
        totals = [n.node.config.kv_blocks for n in nodes]
        used = [float(n.samples.kv_blocks_used.mean()) if len(n.samples.start_ps) else 0.0 for n in nodes]
        tokens = [n.counters["prefill_tokens"] + n.counters["decode_tokens"] for n in nodes]

        def areas(name: str) -> Nodewise:
            return np.array([n.integrals[name] / span for n in nodes])

        return NodeLoad(
            name=tuple(n.name for n in nodes),
            role=tuple(n.role for n in nodes),
            routed=np.array([n.counters["routed"] + n.counters["received"] for n in nodes], dtype=np.int64),
            finished=np.array([n.counters["finished"] for n in nodes], dtype=np.int64),
            busy_share=areas("busy_ps"),
            mean_in_system=areas("in_system_ps"),
            mean_waiting=areas("waiting_ps"),
            kv_share=np.array([u / t for u, t in zip(used, totals, strict=True)]),
            tokens_per_s=np.array([t / (span / PS_PER_S) for t in tokens]),
        )

    def pool_path(
        self, role: str, what: str = "waiting", points: int = 512
    ) -> tuple[Float[np.ndarray, "point"], Float[np.ndarray, "point"]]:
        """Return (seconds, `what` summed over the nodes of a role) on an even grid; `what` is a column of the samples.

        Requests handed over that wait for a decode node are not among them: they hold blocks where they come from.
        """
        chosen = [n for n in self.nodes if n.role == role]
        if not chosen:
            roles = sorted({n.role for n in self.nodes})
            raise InputError(f"the cluster has no node of role {role!r}; expected one of {', '.join(roles)}")
        at = np.linspace(0, self.end_ps, points).astype(np.int64)
        total = sum((on_grid(n.samples, what, at) for n in chosen), start=np.zeros(points, dtype=np.int64))
        return at / PS_PER_S, total.astype(float)

    def waiting_for_decode(self, points: int = 512) -> tuple[Float[np.ndarray, "point"], Float[np.ndarray, "point"]]:
        """Return (seconds, requests handed over whose KV has not arrived) on an even grid."""
        at = np.linspace(0, self.end_ps, points).astype(np.int64)
        ends = np.where(self.transfers.end_ps < 0, self.end_ps, self.transfers.end_ps)
        begun = np.searchsorted(np.sort(self.transfers.ready_ps), at, side="right")
        done = np.searchsorted(np.sort(ends), at, side="right")
        return at / PS_PER_S, (begun - done).astype(float)

    def to_dict(self, rule: str = "mser5", **options: Any) -> dict[str, Any]:
        """Return the metrics document of the whole, and `nodes`, `transfers`, `moves` beside it, plain JSON."""
        return {**self.whole_document(rule, **options), "counters": dict(self.counters)}

    def whole_document(self, rule: str = "mser5", *, seed: int | None = None, **options: Any) -> dict[str, Any]:
        """Return `to_dict`, with the counters of one run: areas and peaks of the whole cluster."""
        from tileq_engine.cluster.whole import pooled_batches

        found = self.run(**({} if seed is None else {"seed": seed})).metrics(rule, **options)
        batch = {} if len(self.nodes) == 1 else {"batch": pooled_batches(self, found.window)}
        return {**found.to_dict(), **batch, **self.parts()}

    def parts(self) -> dict[str, Any]:
        """Return what a single run has not: `nodes`, `transfers` and `moves`, plain JSON."""
        wait = self.transfers.start_ps - self.transfers.ready_ps
        took = self.transfers.end_ps - self.transfers.ready_ps
        done = self.transfers.end_ps >= 0
        counts = np.bincount(self.moves.reason, minlength=len(MOVE_REASONS)).tolist()
        return {
            "nodes": self.node_load().rows(),
            "transfers": {
                "count": int(done.sum()),
                "broken": int((~done).sum()),
                "mean_wait_s": float(wait[done].mean() / PS_PER_S) if done.any() else None,
                "mean_s": float(took[done].mean() / PS_PER_S) if done.any() else None,
            },
            "moves": dict(zip(MOVE_REASONS, counts, strict=True)),
        }

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path) -> Path:
        """Write the run losslessly to an NPZ file (atomic); `saving.save_cluster_runs` writes several to one."""
        from tileq_engine.cluster.saving import save_cluster_runs

        return save_cluster_runs([self], path)

    @staticmethod
    def load(path: str | Path, replication: int = 0) -> ClusterRun:
        """Read a run that `save` wrote; a damaged or foreign file raises `InputError`."""
        from tileq_engine.cluster.saving import load_cluster_runs

        return load_cluster_runs(path, replication)[0]

    def to_csv(self, path: str | Path) -> Path:
        """Write one row a request to a CSV file, with the nodes that it was on."""
        from tileq_engine.cluster.export import write_cluster_csv

        return write_cluster_csv([self], path)

    def to_parquet(self, path: str | Path) -> Path:
        """Write one row a request to a Parquet file, with the nodes that it was on."""
        from tileq_engine.cluster.export import write_cluster_parquet

        return write_cluster_parquet([self], path)


def _chosen(requests: Requests, chosen: Bool[np.ndarray, "request"]) -> Requests:
    """Return the chosen requests."""
    columns = {f.name: getattr(requests, f.name) for f in fields(requests)}
    kept = {k: v[chosen] for k, v in columns.items() if isinstance(v, np.ndarray)}
    return Requests(**kept, blocks=None if requests.blocks is None else requests.blocks.take(np.flatnonzero(chosen)))


def _regrouped(gaps: GapRecord, groups: Int[np.ndarray, "group"]) -> GapRecord:
    """Return the gaps of the given groups, numbered in that order."""
    kept = np.isin(gaps.group, groups)
    names = tuple(gaps.group_names[g] for g in groups.tolist()) or gaps.group_names[:1]
    return GapRecord(
        exact=gaps.exact,
        group_names=names,
        gap_ps=gaps.gap_ps[kept],
        count=gaps.count[kept],
        group=np.searchsorted(groups, gaps.group[kept]).astype(np.int64),
        sums=tuple(gaps.sums[g] for g in groups.tolist()) or gaps.sums[:1],
    )
