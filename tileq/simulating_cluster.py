"""`tileq.simulate(cluster=...)`: a cluster at one rate, replicated, beside what its program says it can carry."""

from __future__ import annotations

__all__ = ["CLUSTER_PICTURES", "ClusterSimulation", "run_once", "simulate_cluster"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq.clusters import ClusterSetting, make_cluster
from tileq.experiments import count_up_to, ready_file, ready_folder, replication_count, writable
from tileq.sharing import shared_tenants
from tileq.traffic import make_traffic
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, positive

if TYPE_CHECKING:
    from tileq_engine.cluster import Cluster, ClusterRun
    from tileq_engine.experiment import Replications
    from tileq_engine.experiment_streams import Streams
    from tileq_engine.run import Run
    from tileq_engine.tenants import Tenants

CLUSTER_PICTURES = ("nodes", "pools", "tenants", "queues", "batches", "kv", "hits", "gantt")
_MOST_REQUESTS = 10_000_000
_KEYED = {"session_affinity": "sessions", "prefix_affinity": "prefixes"}


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSimulation:
    """Replicated runs of a cluster at one rate.

    Parameters
    ----------
    setting
        What was simulated.
    rate_per_s
        Offered rate, requests per second over the cluster.
    requests, seed
        Requests of a run, root seed.
    replications
        All of them, as documents.
    kept
        Those that are held whole, by their number; the first is.
    """

    setting: ClusterSetting
    rate_per_s: float
    requests: int
    seed: int
    replications: Replications
    kept: Mapping[int, ClusterRun]

    @property
    def stable(self) -> str:
        """Verdict over the replications: "stable", "unstable" or "undecided"."""
        return str(self.to_dict()["stable"])

    @property
    def first(self) -> ClusterRun:
        """The first replication, whole."""
        return self.kept[0]

    @property
    def runs(self) -> tuple[ClusterRun, ...]:
        """All replications, whole; those that were not kept are simulated again, to the same result."""
        from tileq_engine.experiment_streams import Streams

        task = partial(run_once, self.setting, self.rate_per_s, self.requests)
        numbers = range(len(self.replications))
        return tuple(self.kept[r] if r in self.kept else task(Streams(self.seed, r)) for r in numbers)

    @property
    def run(self) -> Run:
        """The first replication as one run of the whole cluster."""
        whole: Run = self.first.run()
        return whole

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq simulate --cluster FILE --json` prints."""
        from tileq.plain import plain
        from tileq_engine.cluster.bottlenecks import cluster_bottlenecks

        found = _with_counts(self.replications.to_dict(), self.replications.documents)
        nodes = found.pop("nodes")
        caching = {} if self.setting.caching is None else self.setting.caching.to_dict()
        document: dict[str, Any] = plain(
            {
                "schema_version": 1,
                "setting": {
                    "cluster": self.setting.to_dict(),
                    "workload": self.setting.traffic.label,
                    "requests": self.requests,
                    "capacity_per_s": self.setting.capacity.rate_per_s,
                },
                "utilisation": self.rate_per_s / self.setting.capacity.rate_per_s,
                **found,
                "nodes": [{"name": name, **facts} for name, facts in nodes.items()],
                "bottlenecks": cluster_bottlenecks(self.first),
                "capacity": self.setting.capacity.to_dict(),
                # what the caches found, and what the capacity counts on
                "prefix_cache": {**(found.get("prefix_cache") or {}), **caching} or None,
                "warnings": [*self.setting.warnings, *found["warnings"]],
            }
        )
        return document

    def save(self, path: str | PathLike[str]) -> Path:
        """Write all replications to one file, losslessly (`ClusterRun.load(path, replication)` reads one)."""
        from tileq_engine.cluster import save_cluster_runs

        saved: Path = save_cluster_runs(self.runs, Path(path))
        return saved

    def export(self, path: str | PathLike[str]) -> Path:
        """Write one row a request and replication, with the nodes it was on, to a .csv or .parquet file."""
        from tileq_engine.cluster.export import write_cluster_csv, write_cluster_parquet

        file = ready_file("export", path, (".csv", ".parquet"))
        write: Any = write_cluster_csv if file.suffix == ".csv" else write_cluster_parquet
        write(self.runs, file)
        return file

    def plot(self, path: str | PathLike[str], picture: str = "nodes") -> None:
        """Draw the first replication: "nodes", "pools", "tenants", or a picture of the cluster as one run."""
        from tileq_engine import plots
        from tileq_engine.cluster import plots as own

        if picture not in CLUSTER_PICTURES:
            raise InputError(f"picture is {picture!r}; expected one of {', '.join(CLUSTER_PICTURES)}")
        if picture == "hits" and not self.setting.caches:
            raise InputError("picture 'hits' of a cluster in which no node has prefix_cache: nothing is looked up")
        writable("plot", Path(path))
        drawn = getattr(own, f"plot_{picture}", None)
        figure = getattr(plots, f"plot_{picture}")(self.run) if drawn is None else drawn(self.first)
        plots.save_figure(figure, Path(path))


def simulate_cluster(
    cluster: str | PathLike[str] | Mapping[str, Any] | Cluster,
    *,
    rate: float | None = None,
    load: float | None = None,
    requests: int = 4000,
    replications: int = 5,
    seed: int = 0,
    trace: Any = None,
    workload: Any = None,
    classes: Any = None,
    conversations: Any = None,
    convention: TokenConvention = "engine",
    tenants: Sequence[str] | Tenants | None = None,
    token_prices: str | tuple[float, float] = (1.0, 2.0),
    keep_runs: bool = False,
    folder: str | PathLike[str] | None = None,
    progress: bool | None = None,
) -> ClusterSimulation:
    """Simulate a cluster.

    Parameters
    ----------
    cluster
        A file, a mapping of the same layout, or an engine's `Cluster`.
    rate, load
        Requests per second over the cluster, or as a share of its capacity. Neither: the traffic's own rate, else a
        load of 0.8.
    requests, replications, seed
        Requests of one run, independent runs, seed of their random streams.
    trace, workload, classes, conversations, convention
        The requests, as in `tileq.plan`.
    tenants, token_prices
        Who shares the nodes, and what a token counts, as in `tileq.simulate`; every node keeps its own accounts.
    keep_runs
        Hold every replication whole, not the first alone, for `save` and `export`; with a folder, there too.
    folder, progress
        Keep replications there; show progress on stderr.

    Examples
    --------
    >>> two = {"node": [{"name": "gpu", "count": 2}], "router": "jsq"}
    >>> answer = simulate_cluster(two, load=0.5, requests=200, replications=1, classes=["512:64"])
    >>> [node["name"] for node in answer.to_dict()["nodes"]]
    ['gpu-0', 'gpu-1']
    """
    from tileq_engine.experiment import replicate
    from tileq_engine.experiment_streams import Streams

    if rate is not None and load is not None:
        raise InputError(f"rate {rate!r} and load {load!r} are both given; expected one of them")
    for name, given in (("rate", rate), ("load", load)):
        if given is not None:
            positive(name, given)
    count = count_up_to("requests", requests, _MOST_REQUESTS)
    repeated, kept = replication_count(replications), ready_folder(folder)
    traffic = make_traffic(trace, workload, classes, conversations)
    shared, divided = shared_tenants(traffic.workload, tenants, token_prices)
    traffic = traffic if divided is None else replace(traffic, workload=divided)
    setting = make_cluster(cluster, traffic, convention=convention)
    if shared is not None:
        setting = _shared(setting, shared)
    own = traffic.rate_per_s
    best = setting.capacity.rate_per_s
    offered = load * best if load is not None else rate if rate is not None else 0.8 * best if own is None else own
    keeper = _Keeper(partial(run_once, setting, offered, count), kept if keep_runs else None, keep_runs)
    source = {} if traffic.source_of_blocks is None else {"source": traffic.source_of_blocks}
    found = replicate(
        partial(_document, keeper),
        repeated,
        seed,
        settings={"cluster": setting.cluster.to_dict(), "rate_per_s": offered, "requests": count,
                  "workload": traffic.workload.to_dict(), **source},
        backend="threads",
        progress=progress,
        folder=kept,
    )  # fmt: skip
    for r in range(repeated if keep_runs else 1):
        if r not in keeper.runs:  # its document was in the folder
            keeper(Streams(seed, r))
    return ClusterSimulation(setting, offered, count, seed, found, keeper.runs)


def _shared(setting: ClusterSetting, tenants: Tenants) -> ClusterSetting:
    """Return the setting whose nodes keep the tenants' accounts."""
    nodes = [replace(node, config=node.config.with_(tenants=tenants)) for node in setting.cluster.nodes]
    return replace(setting, cluster=setting.cluster.with_(nodes=nodes))


@dataclass(frozen=True, slots=True)
class _Keeper:
    """Makes the runs, and holds the first of them, or every one, in memory and in a folder."""

    make: Callable[[Streams], ClusterRun]
    folder: Path | None
    every: bool
    runs: dict[int, ClusterRun] = field(default_factory=dict)

    def __call__(self, streams: Streams) -> ClusterRun:
        from tileq_engine.cluster import ClusterRun

        number = streams.replication
        path = None if self.folder is None else self.folder / f"run-{number}.npz"
        if path is not None and path.exists():
            run = ClusterRun.load(path)
        else:
            run = self.make(streams)
            if path is not None:
                run.save(path)
        if self.every or number == 0:
            self.runs[number] = run
        return run


def _with_counts(found: dict[str, Any], documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the combined document with every count of nodes, transfers and moves over all replications."""

    def total(*path: str) -> Any:
        parts = list(documents)
        for key in path:
            parts = [part[key] for part in parts]
        return sum(parts)

    nodes = {name: {**row, "routed": total("nodes", name, "routed")} for name, row in found["nodes"].items()}
    transfers = {**found["transfers"], "broken": total("transfers", "broken")}
    return {
        **found,
        "nodes": nodes,
        "transfers": transfers,
        "moves": {why: total("moves", why) for why in found["moves"]},
    }


def _class_names(setting: ClusterSetting) -> tuple[str, ...]:
    return tuple(str(c.name) for c in setting.traffic.workload.classes)


def run_once(setting: ClusterSetting, rate_per_s: float, count: int, streams: Streams) -> ClusterRun:
    """Return one run of `count` requests at a rate, drawn from `streams`, its gaps measured without warm-up."""
    from tileq_engine.cluster import simulate_cluster as run_cluster

    asked, keys = _requests(setting, rate_per_s, count, streams)
    asked = _of_tenants(setting, asked, streams)
    cluster = _measured(setting.cluster, asked, streams)
    run = run_cluster(asked, cluster, seed=streams.integer("cluster"), **keys)
    return replace(run, rate_per_s=rate_per_s, class_names=_class_names(setting))


def _requests(setting: ClusterSetting, rate_per_s: float, count: int, streams: Streams) -> tuple[Any, dict[str, Any]]:
    """Return the requests of a replication, and what its router tells sessions or prefixes by."""
    from tileq_engine.experiment_streams import crn_requests
    from tileq_engine.prefix_sessions import session_keys

    traffic, router = setting.traffic, setting.cluster.router.name
    needs = _KEYED.get(router)
    if needs is None and not setting.caches:
        return crn_requests(traffic.workload, count, streams, rate_per_s), {}
    if traffic.source_of_blocks is None:
        why = "a prefix cache" if needs is None else f"router {router}"
        raise InputError(
            f"{why} needs requests that tell their prefixes; {traffic.label} does not: take a trace with block "
            "identities or conversations"
        )
    asked = traffic.source_of_blocks.draw(count, streams, rate_per_s)
    return asked, {} if needs is None else {needs: session_keys(asked.blocks)}


def _of_tenants(setting: ClusterSetting, asked: Any, streams: Streams) -> Any:
    """Return the requests with their tenants' priorities and deadlines; replayed sessions are divided among them."""
    from tileq_engine.prefix_sessions import with_tenants

    tenants, shares = setting.cluster.nodes[0].config.tenants, setting.traffic.workload.shares
    if tenants is None:
        return asked
    if asked.blocks is not None and len(tenants.names) == len(shares) > 1:
        asked = with_tenants(asked, shares.tolist(), streams.rng("tenants"))
    return tenants.with_priorities(asked)


def _measured(cluster: Cluster, asked: Any, streams: Streams) -> Cluster:
    """Return the cluster whose gaps have neither warm-up nor drain in them, as a single engine's experiment has it."""
    from tileq_engine.run import PS_PER_S

    edges = (int(asked.arrival_ps[len(asked) // 10]), int(asked.arrival_ps[-1]))
    window = {"gap_from_s": edges[0] / PS_PER_S, "gap_to_s": edges[1] / PS_PER_S} if edges[0] < edges[1] else {}
    own = any(node.config.gap_from_s or node.config.gap_to_s is not None for node in cluster.nodes)
    seed = streams.integer("policy")
    # what keeps requests waiting is named in the first replication, which is kept whole
    watched = {"watch": True} if streams.replication == 0 else {}
    changes: dict[str, Any] = {"policy_seed": seed, **({} if own else window), **watched}
    nodes = [replace(node, config=node.config.with_(**changes)) for node in cluster.nodes]
    return cluster.with_(nodes=nodes)


def _document(keeper: _Keeper, streams: Streams) -> dict[str, Any]:
    found: dict[str, Any] = keeper(streams).whole_document(seed=streams.seed)
    return {**found, "nodes": {row.pop("name"): row for row in found["nodes"]}}
