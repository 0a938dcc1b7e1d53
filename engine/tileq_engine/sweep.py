r"""Sweeps: every policy at every rate on every workload, replicated with common random numbers.

    grid = sweep(simulate, policies, rates, workloads, replications=5, seed=1)       simulate(scenario) -> Run

`simulate` gets a `Scenario`; its `streams` depend on the replication alone, so policies see identical requests and
rates the same requests on another clock. Points are computed in parallel, saved as they finish and taken from the
folder on a second start.
"""

from __future__ import annotations

__all__ = ["Scenario", "Sweep", "sweep"]

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tileq_engine.experiment import Document, as_document, combine_documents, statistic
from tileq_engine.experiment_parallel import run_tasks
from tileq_engine.experiment_store import ResultStore, settings_of
from tileq_engine.experiment_streams import Streams
from tileq_engine.intervals import Interval, paired_interval, sidak, student_interval
from tileq_engine.run_raw import plain
from tileq_theory.errors import InputError, positive, positive_int


@dataclass(frozen=True, slots=True)
class Scenario:
    """One point of a sweep: what to simulate and with which random streams."""

    policy_name: str
    policy: Any
    rate_per_s: float
    workload_name: str
    workload: Any
    streams: Streams

    @property
    def point(self) -> dict[str, Any]:
        """The point's coordinates as plain data."""
        return {
            "policy": self.policy_name,
            "rate_per_s": self.rate_per_s,
            "workload": self.workload_name,
            "replication": self.streams.replication,
        }


@dataclass(frozen=True, slots=True)
class Sweep:
    """Documents of a sweep by (policy, rate, workload), one a replication, in the order of replications."""

    documents: Mapping[tuple[str, float, str], tuple[Document, ...]]
    policies: tuple[str, ...]
    rates_per_s: tuple[float, ...]
    workloads: tuple[str, ...]
    seed: int

    def at(self, policy: str, rate_per_s: float, workload: str | None = None) -> tuple[Document, ...]:
        """Return the documents of one setting; the workload may be left out when there is one."""
        name = self.workloads[0] if workload is None and len(self.workloads) == 1 else workload
        found = self.documents.get((policy, float(rate_per_s), str(name)))
        if found is None:
            raise InputError(
                f"no result for policy {policy!r}, rate {rate_per_s!r}, workload {name!r}; the sweep has policies "
                f"{', '.join(self.policies)}, rates {', '.join(f'{r:g}' for r in self.rates_per_s)}, workloads "
                f"{', '.join(self.workloads)}"
            )
        return found

    def interval(
        self,
        path: str,
        policy: str,
        rate_per_s: float,
        workload: str | None = None,
        *,
        level: float = 0.95,
        family: bool = False,
    ) -> Interval:
        """Return the Student interval of a statistic; `family`: at the Sidak level that holds all settings at once."""
        used = sidak(level, len(self.documents)) if family else level
        return student_interval([statistic(d, path) for d in self.at(policy, rate_per_s, workload)], used)

    def difference(
        self, path: str, first: str, second: str, rate_per_s: float, workload: str | None = None, *, level: float = 0.95
    ) -> Interval:
        """Return the paired interval of a statistic of policy `first` minus that of `second` on the same requests."""
        pairs = [[statistic(d, path) for d in self.at(p, rate_per_s, workload)] for p in (first, second)]
        return paired_interval(pairs[0], pairs[1], level)

    def curve(self, path: str, policy: str, workload: str | None = None, *, level: float = 0.95) -> list[Interval]:
        """Return the interval of a statistic at every rate."""
        return [self.interval(path, policy, rate, workload, level=level) for rate in self.rates_per_s]

    def combined(self, level: float = 0.95) -> list[dict[str, Any]]:
        """Return the combined document of every setting, in the order workload, policy, rate."""
        return [
            {**combine_documents(self.documents[p, r, w], level), "policy": p, "rate_per_s": r, "workload": w}
            for w in self.workloads
            for p in self.policies
            for r in self.rates_per_s
        ]


def _named(kind: str, given: Any) -> dict[str, Any]:
    """Return name -> object from a mapping, names, or objects with a `name`."""
    if isinstance(given, Mapping):
        named = {str(k): v for k, v in given.items()}
    else:
        items = [given] if isinstance(given, str) or not isinstance(given, Iterable) else list(given)
        names = [item if isinstance(item, str) else str(getattr(item, "name", "") or item) for item in items]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise InputError(
                f"{kind} {twice[0]!r} is given twice; give a mapping of names to {kind}s to tell them apart"
            )
        named = dict(zip(names, items, strict=True))
    if not named:
        raise InputError(f"no {kind} was given; expected at least one")
    return named


def _pinned(settings: Any, simulate: Any) -> Any:
    return settings_of(simulate) if settings is None else settings


def _rates(rates: Sequence[float]) -> tuple[float, ...]:
    values = tuple(positive("rate", r) for r in rates)
    if not values or len(set(values)) != len(values):
        raise InputError(f"rates are {list(rates)!r}; expected at least one, all different")
    return values


def _point(
    simulate: Callable[[Scenario], Any],
    store: ResultStore,
    options: Mapping[str, Any],
    save_runs: bool,
    scenario: Scenario,
) -> Document:
    kept = store.read(scenario.point)
    if kept is not None:
        return kept
    result = simulate(scenario)
    facts = {
        "seed": scenario.streams.seed,
        "replication": scenario.streams.replication,
        "rate_per_s": scenario.rate_per_s,
    }
    document = {**as_document(result, **options), **facts, "policy": scenario.policy_name}
    path = store.run_path(scenario.point)
    if save_runs and path is not None and hasattr(result, "save"):
        result.save(path)
    store.write(scenario.point, document)
    return document


def sweep(
    simulate: Callable[[Scenario], Any],
    policies: Any,
    rates: Sequence[float],
    workloads: Any = None,
    *,
    replications: int = 1,
    seed: int = 0,
    backend: str = "joblib",
    workers: int | None = None,
    progress: bool | None = None,
    folder: str | Path | None = None,
    save_runs: bool = False,
    settings: Any = None,
    metrics: Mapping[str, Any] | None = None,
) -> Sweep:
    """Simulate every policy at every rate on every workload.

    Parameters
    ----------
    simulate
        simulate(scenario) -> `Run`, raw result or metrics document.
    policies, workloads
        Mapping of names to objects, or a sequence of names or of objects with a `name`.
    rates
        Requests a second, above 0, all different.
    folder, settings
        Where results are kept (`experiment_store`), and what else determines them (its change is an error); None: the
        `to_dict` of `simulate` where it has one. A plain function cannot be told from another: name its settings.
    save_runs
        Also keep every full run beside its document.
    metrics
        Options of `Run.metrics` (rule, warmup, convention).
    """
    by_policy, by_workload = (
        _named("policy", policies),
        _named("workload", {"all": None} if workloads is None else workloads),
    )
    values, count, options = _rates(rates), positive_int("replications", replications), dict(metrics or {})
    manifest = {"kind": "sweep", "seed": seed, "settings": _pinned(settings, simulate), "metrics": options}
    store = ResultStore(folder, {**manifest, "policies": by_policy, "workloads": by_workload})
    scenarios = [
        Scenario(p, policy, rate, w, workload, Streams(seed, r))
        for w, workload in by_workload.items()
        for p, policy in by_policy.items()
        for rate in values
        for r in range(count)
    ]
    task = partial(_point, simulate, store, options, save_runs)
    found = run_tasks(task, scenarios, backend=backend, workers=workers, progress=progress, title="runs")
    grouped: dict[tuple[str, float, str], list[Document]] = {}
    for scenario, document in zip(scenarios, found, strict=True):
        key = (scenario.policy_name, scenario.rate_per_s, scenario.workload_name)
        grouped.setdefault(key, []).append(plain(document))
    documents = {key: tuple(group) for key, group in grouped.items()}
    return Sweep(documents, tuple(by_policy), values, tuple(by_workload), seed)
