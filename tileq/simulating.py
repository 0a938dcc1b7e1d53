"""`tileq simulate`: one policy at one rate, replicated."""

from __future__ import annotations

__all__ = ["PICTURES", "Simulation", "simulate"]

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tileq.experiments import Experiment, make_experiment, ready_folder, replication_count, writable
from tileq_theory.errors import InputError, positive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileq.simulating_cluster import ClusterSimulation
    from tileq_engine.backpressure import Backpressure, TbtControl
    from tileq_engine.cluster import Cluster
    from tileq_engine.experiment import Replications
    from tileq_engine.policy import Policy
    from tileq_engine.run import Run
    from tileq_engine.tenants import Tenants

PICTURES = ("queues", "batches", "kv", "hits", "gantt", "tenants")


@dataclass(frozen=True, slots=True)
class Simulation:
    """What replications of one policy at one rate showed.

    Parameters
    ----------
    experiment
        What was simulated.
    rate_per_s
        Offered rate on one replica, requests per second.
    run
        The first replication, whole.
    replications
        All of them, as documents.
    """

    experiment: Experiment
    rate_per_s: float
    run: Run
    replications: Replications

    @property
    def stable(self) -> str:
        """Verdict over the replications: "stable", "unstable" or "undecided"."""
        return str(self.to_dict()["stable"])

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq simulate --json` prints."""
        from tileq.plain import plain

        found = self.replications.to_dict()
        document: dict[str, Any] = plain(
            {
                "schema_version": 1,
                "setting": self.experiment.setting(),
                "utilisation": self.rate_per_s / self.experiment.capacity_per_s,
                **found,
                **_watched(self.run),
                "warnings": [*self.experiment.plan.setting.warnings, *found["warnings"]],
            }
        )
        return document

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the first replication's run, losslessly."""
        return self.run.save(Path(path))

    def plot(self, path: str | PathLike[str], picture: str = "queues") -> None:
        """Draw the first run: "queues", "batches", "kv" use, cache "hits", "tenants" (shares), or a "gantt" chart."""
        from tileq_engine import plots

        if picture not in PICTURES:
            raise InputError(f"picture is {picture!r}; expected one of {', '.join(PICTURES)}")
        writable("plot", Path(path))
        plots.save_figure(getattr(plots, f"plot_{picture}")(self.run), Path(path))


@overload
def simulate(policy: str | Policy = ..., *, cluster: None = None, **given: Any) -> Simulation: ...
@overload
def simulate(
    policy: str | Policy = ..., *, cluster: str | PathLike[str] | Mapping[str, Any] | Cluster, **given: Any
) -> ClusterSimulation: ...
def simulate(
    policy: str | Policy = "sarathi",
    *,
    cluster: str | PathLike[str] | Mapping[str, Any] | Cluster | None = None,
    rate: float | None = None,
    load: float | None = None,
    requests: int = 4000,
    replications: int = 5,
    seed: int = 0,
    token_budget: int | None = None,
    seats: int | None = None,
    kv_tokens: int | None = None,
    preemption: str = "recompute",
    swap_gb_per_s: float = 25.0,
    paying: float | None = None,
    check: bool = False,
    tenants: Sequence[str] | Tenants | None = None,
    token_prices: str | tuple[float, float] = (1.0, 2.0),
    reservation: str = "policy",
    watermark: float = 0.0,
    backpressure: str | Backpressure | None = None,
    control_tbt: float | TbtControl | None = None,
    prefix_cache: bool = False,
    folder: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **question: Any,
) -> Simulation | ClusterSimulation:
    """Simulate a policy on one replica of a plan's machine, or a cluster.

    Parameters
    ----------
    policy
        Name, name:parameter=value:... (`tileq catalog policies`), or a `Policy`, which may hold rules of your own.
    cluster
        Instead of one replica: a cluster's file, a mapping of the same layout, or an engine's `Cluster`; nodes then say
        their own policy and settings (`tileq.simulating_cluster.simulate_cluster`).
    rate, load
        Offered rate in requests per second, or as a share of the capacity lambda*. Neither: the traffic's own rate,
        else a load of 0.8.
    requests, replications, seed
        Requests of one run, independent runs, seed of their random streams.
    token_budget, seats, kv_tokens
        Engine settings (`seats`: sequences at most); None: the plan's.
    preemption, swap_gb_per_s, paying, check, prefix_cache
        See `tileq.experiments.make_experiment`.
    tenants, token_prices, reservation, watermark, backpressure, control_tbt
        Who shares the machine, and admission under pressure; see there.
    folder
        Replications are kept there as they finish, and taken from there.
    progress
        Show a progress bar on stderr; None: when it is a terminal.
    question
        Of `tileq.plan`: gpu, model, trace, workload, classes, tbt, ...

    Examples
    --------
    >>> answer = simulate("sarathi", load=0.5, requests=200, replications=2, classes=["512:64"])
    >>> answer.to_dict()["requests"]["finished"] > 0
    True
    """
    from tileq.planning import plan
    from tileq_engine.experiment_engine import replicate_policy, simulate_policy

    if cluster is not None:
        settings = {"token_budget": token_budget, "seats": seats, "kv_tokens": kv_tokens, "paying": paying,
                    "backpressure": backpressure, "control_tbt": control_tbt, "prefix_cache": prefix_cache or None,
                    "check": check or None, "watermark": watermark or None,
                    "preemption": None if preemption == "recompute" else preemption,
                    "swap_gb_per_s": None if swap_gb_per_s == 25.0 else swap_gb_per_s,
                    "reservation": None if reservation == "policy" else reservation}  # fmt: skip
        question = {**question, "tenants": tenants, "token_prices": token_prices}
        asked = {"rate": rate, "load": load, "requests": requests, "replications": replications, "seed": seed}
        return _of_cluster(policy, cluster, settings, {**asked, "folder": folder, "progress": progress, **question})
    if rate is not None and load is not None:
        raise InputError(f"rate {rate!r} and load {load!r} are both given; expected one of them")
    for name, given in (("rate", rate), ("load", load)):
        if given is not None:
            positive(name, given)
    repeated, kept = replication_count(replications), ready_folder(folder)
    experiment = make_experiment(
        plan(rate=rate, **question),
        requests=requests,
        token_budget=token_budget,
        max_num_seqs=seats,
        kv_tokens=kv_tokens,
        preemption=preemption,
        swap_gb_per_s=swap_gb_per_s,
        paying=paying,
        check=check,
        tenants=tenants,
        token_prices=token_prices,
        reservation=reservation,
        watermark=watermark,
        backpressure=backpressure,
        control_tbt=control_tbt,
        prefix_cache=prefix_cache,
    )
    offered = _offered(experiment, rate, load)
    chosen = experiment.policy(policy)
    common: dict[str, Any] = {
        "workload": experiment.workload.with_rate(offered),
        "time": experiment.plan.setting.time,
        "config": experiment.config,
        "requests": experiment.requests,
        "tiers": experiment.tiers,
        "seed": seed,
        "source": experiment.plan.traffic.source_of_blocks if prefix_cache else None,
    }
    # what keeps requests waiting is named in the first replication, which is kept whole
    first = simulate_policy(chosen, offered, **{**common, "config": experiment.config.with_(watch=True)})
    found = replicate_policy(
        chosen,
        offered,
        replications=repeated,
        progress=progress,
        folder=kept,
        **common,
    )
    return Simulation(experiment, offered, first, found)


def _of_cluster(
    policy: str | Policy, cluster: Any, of_one: Mapping[str, Any], asked: dict[str, Any]
) -> ClusterSimulation:
    from tileq.simulating_cluster import simulate_cluster

    named = [name for name, value in of_one.items() if value is not None] + ([] if policy == "sarathi" else ["policy"])
    unknown = [name for name in asked if name not in _OF_CLUSTER]
    for name in (*named, *unknown):
        raise InputError(f"{name} is given beside cluster, which says it for each of its nodes")
    return simulate_cluster(cluster, **asked)


_OF_CLUSTER = {"rate", "load", "requests", "replications", "seed", "folder", "progress", "trace", "workload", "classes",
               "conversations", "convention", "keep_runs", "tenants", "token_prices"}  # fmt: skip


def _watched(run: Run) -> dict[str, Any]:
    """Return the bottlenecks of the first replication."""
    from tileq_engine.metrics_bottlenecks import bottleneck_metrics

    return {} if run.bottlenecks is None else {"bottlenecks": bottleneck_metrics(run)}


def _offered(experiment: Experiment, rate: float | None, load: float | None) -> float:
    if load is not None:
        return positive("load", load) * experiment.capacity_per_s
    if rate is not None:
        return positive("rate", rate) / experiment.plan.tile.capacity.limits.nodes
    own = experiment.plan.traffic.rate_per_s
    return 0.8 * experiment.capacity_per_s if own is None else own
