"""`tileq.simulate(cluster=...)`: a cluster at one rate, replicated, beside what its program says it can carry."""

from __future__ import annotations

__all__ = ["CLUSTER_PICTURES", "ClusterSimulation", "run_once", "simulate_cluster"]

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq.clusters import ClusterSetting, make_cluster
from tileq.experiments import count_up_to, ready_folder, replication_count, writable
from tileq.sessions import session_keys
from tileq.traffic import make_traffic
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, positive

if TYPE_CHECKING:
    from tileq_engine.cluster import Cluster, ClusterRun
    from tileq_engine.experiment import Replications
    from tileq_engine.experiment_streams import Streams
    from tileq_engine.run import Run

CLUSTER_PICTURES = ("nodes", "pools", "tenants", "queues", "batches", "kv", "gantt")
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
    first
        The first replication, whole.
    replications
        All of them, as documents.
    """

    setting: ClusterSetting
    rate_per_s: float
    requests: int
    seed: int
    first: ClusterRun
    replications: Replications

    @property
    def stable(self) -> str:
        """Verdict over the replications: "stable", "unstable" or "undecided"."""
        return str(self.to_dict()["stable"])

    @property
    def run(self) -> Run:
        """The first replication as one run of the whole cluster."""
        whole: Run = self.first.run(rate_per_s=self.rate_per_s, class_names=_class_names(self.setting))
        return whole

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq simulate --cluster FILE --json` prints."""
        from tileq.plain import plain

        found = self.replications.to_dict()
        nodes = found.pop("nodes")
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
                "capacity": self.setting.capacity.to_dict(),
                "warnings": [*self.setting.warnings, *found["warnings"]],
            }
        )
        return document

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the first replication as one run of the whole cluster, losslessly (`Run.load` reads it)."""
        return self.run.save(Path(path))

    def plot(self, path: str | PathLike[str], picture: str = "nodes") -> None:
        """Draw the first replication: "nodes", "pools", "tenants", or a picture of the cluster as one run."""
        from tileq_engine import plots
        from tileq_engine.cluster import plots as own

        if picture not in CLUSTER_PICTURES:
            raise InputError(f"picture is {picture!r}; expected one of {', '.join(CLUSTER_PICTURES)}")
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
    setting = make_cluster(cluster, traffic, convention=convention)
    own = traffic.rate_per_s
    best = setting.capacity.rate_per_s
    offered = load * best if load is not None else rate if rate is not None else 0.8 * best if own is None else own
    task = partial(run_once, setting, offered, count)
    first = task(Streams(seed, 0))
    found = replicate(
        partial(_document, setting, offered, count),
        repeated,
        seed,
        settings={"cluster": setting.cluster.to_dict(), "rate_per_s": offered, "requests": count,
                  "workload": traffic.workload.to_dict()},
        backend="threads",
        progress=progress,
        folder=kept,
    )  # fmt: skip
    return ClusterSimulation(setting, offered, count, seed, first, found)


def _class_names(setting: ClusterSetting) -> tuple[str, ...]:
    return tuple(str(c.name) for c in setting.traffic.workload.classes)


def run_once(setting: ClusterSetting, rate_per_s: float, count: int, streams: Streams) -> ClusterRun:
    """Return one run of `count` requests at a rate, drawn from `streams`, its gaps measured without warm-up."""
    from tileq_engine.experiment_streams import crn_requests

    traffic, router = setting.traffic, setting.cluster.router.name
    needs = _KEYED.get(router)
    if needs is None and not setting.caches:
        asked = crn_requests(traffic.workload, count, streams, rate_per_s)
        return _simulated(_measured(setting.cluster, asked, streams), asked, streams, {})
    if traffic.source_of_blocks is None:
        why = "a prefix cache" if needs is None else f"router {router}"
        raise InputError(
            f"{why} needs requests that tell their prefixes; {traffic.label} does not: take a trace with block "
            "identities or conversations"
        )
    asked = traffic.source_of_blocks.draw(count, streams, rate_per_s)
    keys = {} if needs is None else {needs: session_keys(asked.blocks)}
    return _simulated(_measured(setting.cluster, asked, streams), asked, streams, keys)


def _simulated(cluster: Cluster, asked: Any, streams: Streams, keys: Mapping[str, Any]) -> ClusterRun:
    from tileq_engine.cluster import simulate_cluster as run_cluster

    return run_cluster(asked, cluster, seed=streams.integer("cluster"), **keys)


def _measured(cluster: Cluster, asked: Any, streams: Streams) -> Cluster:
    """Return the cluster whose gaps have neither warm-up nor drain in them, as a single engine's experiment has it."""
    from tileq_engine.run import PS_PER_S

    edges = (int(asked.arrival_ps[len(asked) // 10]), int(asked.arrival_ps[-1]))
    window = {"gap_from_s": edges[0] / PS_PER_S, "gap_to_s": edges[1] / PS_PER_S} if edges[0] < edges[1] else {}
    own = any(node.config.gap_from_s or node.config.gap_to_s is not None for node in cluster.nodes)
    seed = streams.integer("policy")
    changes: dict[str, Any] = {"policy_seed": seed, **({} if own else window)}
    nodes = [replace(node, config=node.config.with_(**changes)) for node in cluster.nodes]
    return cluster.with_(nodes=nodes)


def _document(setting: ClusterSetting, rate_per_s: float, count: int, streams: Streams) -> dict[str, Any]:
    run = run_once(setting, rate_per_s, count, streams)
    found = run.run(rate_per_s=rate_per_s, class_names=_class_names(setting), seed=streams.seed).to_dict()
    whole = run.to_dict()
    nodes = {row.pop("name"): row for row in whole["nodes"]}
    return {**found, "nodes": nodes, "transfers": whole["transfers"], "moves": whole["moves"]}
