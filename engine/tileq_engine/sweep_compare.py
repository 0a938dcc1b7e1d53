r"""Comparing policies: the same requests for all, curves over rates, capacities, differences with intervals.

answer = compare(["sarathi", "slai", "rad"], rates, workload=workload, time=time, criterion=Within("ttft_s.p99", 2.0))
print(answer.table());  answer.to_dict();  answer.plot("curves.svg")
"""

from __future__ import annotations

__all__ = ["Comparison", "compare"]

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tileq_engine.capacity_search import CapacityResult, capacity_search
from tileq_engine.capacity_search_criteria import Criterion
from tileq_engine.experiment import statistic
from tileq_engine.experiment_engine import EngineSimulation, engine_policies
from tileq_engine.experiment_store import digest
from tileq_engine.experiment_streams import Streams
from tileq_engine.intervals import Interval, bonferroni
from tileq_engine.run import Slo
from tileq_engine.run_raw import plain
from tileq_engine.sweep import Scenario, Sweep, sweep
from tileq_theory.errors import InputError

COLUMNS = (
    ("ttft_p50_s", "ttft_s.p50"),
    ("ttft_p99_s", "ttft_s.p99"),
    ("tbt_p50_s", "tbt_s.p50"),
    ("tbt_p99_s", "tbt_s.p99"),
    ("tpot_p99_s", "tpot_s.p99"),
    ("e2e_p50_s", "e2e_s.p50"),
    ("throughput_per_s", "throughput_per_s"),
    ("goodput_per_s", "goodput_per_s"),
    ("slo_attainment", "slo_attainment.all"),
    ("rejected_share", "requests.rejected_share"),
)
_OF_TENANT = ("weight", "service_share", "contended_share", "fair_share", "starved_s")
_COMPARED = ("ttft_s.p50", "ttft_s.p99", "tbt_s.p99", "e2e_s.mean")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Sweep of several policies with their capacities.

    `capacity` is by (policy, workload), empty when no criterion was given; `baseline` is the policy the others are held
    against.
    """

    sweep: Sweep
    capacity: Mapping[tuple[str, str], CapacityResult]
    baseline: str

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a (workload, policy, rate): statistics (means over replications), verdict, capacity.

        With a prefix cache also `hit_rate`; with tenants `jain_index`, `share_error`, `starved_max_s`, and under
        `tenants` what each got.
        """
        found = []
        for document in self.sweep.combined():
            row: dict[str, Any] = {name: document[name] for name in ("workload", "policy", "rate_per_s", "stable")}
            for column, path in COLUMNS:
                value = statistic(document, path)
                row[column] = None if math.isnan(value) else value
            capacity = self.capacity.get((row["policy"], row["workload"]))
            row |= _shared(document)
            found.append({**row, "capacity_per_s": None if capacity is None else capacity.rate_per_s})
        return found

    def table(self) -> str:
        """Return the rows as aligned text; times in seconds."""
        rows = self.rows()
        names = [name for name in rows[0] if name != "workload" or len(self.sweep.workloads) > 1]
        names = [name for name in names if name != "tenants"]
        names = [n for n in names if any(row[n] is not None and (n, row[n]) != ("rejected_share", 0.0) for row in rows)]
        cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
        widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
        return "\n".join("  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in cells)

    def differences(self, workload: str | None = None, level: float = 0.95) -> dict[str, dict[str, list[Interval]]]:
        """Return policy -> statistic -> paired interval of (policy - baseline) at every rate on a workload (the first).

        The requests are the same, so the differences are paired; all intervals together hold with `level` (Bonferroni).
        """
        others = [p for p in self.sweep.policies if p != self.baseline]
        rates, load = self.sweep.rates_per_s, self.sweep.workloads[0] if workload is None else workload
        each = bonferroni(level, max(len(others) * len(rates) * len(_COMPARED), 1))
        return {
            p: {s: [self.sweep.difference(s, p, self.baseline, r, load, level=each) for r in rates] for s in _COMPARED}
            for p in others
        }

    def to_dict(self) -> dict[str, Any]:
        """Return rows, full documents, capacities and differences as plain JSON data."""
        results = self.sweep.combined()
        warnings = [f"{d['policy']} at {d['rate_per_s']:g}/s: {text}" for d in results for text in d["warnings"]]
        warnings += [f"{p}, capacity: {text}" for (p, _), c in self.capacity.items() for text in c.notes]
        return {
            "policies": list(self.sweep.policies),
            "rates_per_s": list(self.sweep.rates_per_s),
            "workloads": list(self.sweep.workloads),
            "seed": self.sweep.seed,
            "baseline": self.baseline,
            "rows": self.rows(),
            "capacity": {
                w: {p: self.capacity[p, w].to_dict() for p in self.sweep.policies if (p, w) in self.capacity}
                for w in self.sweep.workloads
            },
            "differences": {
                w: {
                    policy: {name: [i.to_dict() for i in intervals] for name, intervals in parts.items()}
                    for policy, parts in self.differences(w).items()
                }
                for w in self.sweep.workloads
            },
            "results": results,
            "warnings": warnings,
            "provenance": results[0]["provenance"],
        }

    def plot(self, path: str | Path | None = None, **options: Any) -> Any:
        """Return the figure of TTFT and TBT against rate by policy; write it to `path` (SVG, PNG or PDF) when given."""
        from tileq_engine.plots import plot_rates, save_figure

        figure = plot_rates(self.sweep, **options)
        if path is not None:
            save_figure(figure, path)
        return figure


def _shared(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a prefix cache found and what the tenants got, where there are such."""
    found: dict[str, Any] = {}
    if "prefix_cache" in document:
        found["hit_rate"] = document["prefix_cache"]["hit_rate"]
    if "tenants" in document:
        tenants = document["tenants"]
        found |= {name: tenants[name] for name in ("jain_index", "share_error")}
        found["starved_max_s"] = tenants["starved_s"]["max"]
        found["tenants"] = {
            name: {**{key: each[key] for key in _OF_TENANT}, "ttft_p99_s": each["ttft_s"]["p99"]}
            for name, each in tenants["each"].items()
        }
    return found


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _at_rate(
    simulate: Callable[[Scenario], Any], names: tuple[str, str], objects: tuple[Any, Any], rate: float, streams: Streams
) -> Any:
    return simulate(Scenario(names[0], objects[0], rate, names[1], objects[1], streams))


def compare(
    policies: Any,
    rates: Sequence[float],
    simulate: Callable[[Scenario], Any] | None = None,
    *,
    workload: Any = None,
    time: Any = None,
    config: Any = None,
    requests: int = 4000,
    slo: Slo | tuple[Slo, ...] | None = None,
    tiers: Mapping[str, Any] | None = None,
    source: Any = None,
    replications: int = 5,
    seed: int = 0,
    criterion: Criterion | None = None,
    tolerance: float = 0.02,
    baseline: str | None = None,
    backend: str | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    folder: str | Path | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Comparison:
    """Compare policies over rates on one workload or several.

    Parameters
    ----------
    policies
        Names, policies, or a mapping of names to either.
    rates
        Requests a second.
    simulate
        simulate(scenario) -> `Run`; None: the engine's simulator on `time` (`EngineSimulation` with `config`,
        `requests`, `slo`, `tiers`, `source`).
    workload
        A `Workload`, or a mapping of names to several.
    criterion
        When given, each policy's capacity under it is searched as well (`capacity_search`, to `tolerance`).
    baseline
        Policy the others are held against; None: the first.
    backend
        None: "threads" for the engine (its compiled loop runs beside Python), "joblib" for another `simulate`.
    folder
        Results are kept there and resumed from there; another configuration in the same folder is an error.
    """
    settings: Any = None
    if simulate is None:
        if time is None or workload is None:
            raise InputError("compare needs an iteration time and a workload, or a simulate function of your own")
        engine = EngineSimulation(time, config, requests, slo, tiers, source=source)
        simulate, settings, policies = engine, engine.to_dict(), engine_policies(policies)
        chosen = backend or "threads"
    else:
        chosen = backend or "joblib"
    workloads = workload if isinstance(workload, Mapping) else {str(getattr(workload, "name", "") or "all"): workload}
    options: dict[str, Any] = {"backend": chosen, "workers": workers, "progress": progress}
    grid = sweep(
        simulate, policies, rates, workloads,
        replications=replications, seed=seed, folder=folder, settings=settings, metrics=metrics, **options,
    )  # fmt: skip
    reference = grid.policies[0] if baseline is None else baseline
    if reference not in grid.policies:
        raise InputError(f"baseline is {baseline!r}; expected one of the policies {', '.join(grid.policies)}")
    named = policies if isinstance(policies, Mapping) else dict(zip(grid.policies, _listed(policies), strict=True))
    found: dict[tuple[str, str], CapacityResult] = {}
    if criterion is not None:
        for w, load in workloads.items():
            for p in grid.policies:
                at = partial(_at_rate, simulate, (p, str(w)), (named[p], load))
                found[p, str(w)] = capacity_search(
                    at, criterion, start_per_s=_guess(grid, p, str(w)), tolerance=tolerance,
                    replications=replications, seed=seed, settings=settings, **options,
                    folder=None if folder is None else Path(folder) / "capacity" / _folder_name(p, str(w), named[p]),
                )  # fmt: skip
    return Comparison(grid, found, reference)


def _folder_name(policy: str, workload: str, made: Any) -> str:
    words = re.sub(r"[^A-Za-z0-9.]+", "_", f"{policy}-{workload}")[:80]
    return f"{words}-{digest((policy, workload, plain(made)))}"


def _listed(policies: Any) -> list[Any]:
    return [policies] if isinstance(policies, str) or not hasattr(policies, "__iter__") else list(policies)


def _guess(grid: Sweep, policy: str, workload: str) -> float:
    """Return the largest rate of the sweep that some replication did not find unstable, a start for the search."""
    good = [r for r in grid.rates_per_s if any(d["stable"] != "unstable" for d in grid.at(policy, r, workload))]
    return max(good, default=min(grid.rates_per_s))
