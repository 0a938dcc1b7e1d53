r"""Metrics of a run, computed on demand (`schedulers.md` section 4).

`run_metrics(run)` measures the requests inside the window of a warm-up rule (`metrics_window`) and answers with a
`RunMetrics`, whose `to_dict()` is the document of the command's contract. Quantiles are order statistics of rank
max(1, ceil(p n)) (`gaps.quantile_rank`). TBT is the distribution over all gaps of the group, not over requests.
"""

from __future__ import annotations

__all__ = ["PROBABILITIES", "GroupMetrics", "RunMetrics", "Spread", "group_metrics", "run_metrics", "spread_of"]

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool

from tileq_engine.gaps import GapDistribution, exact_sum, quantile_rank
from tileq_engine.intervals import Interval
from tileq_engine.metrics_requests import e2e_ps, observed_ps, tpot_ps, ttft_ps
from tileq_engine.metrics_slo import SloReport, slo_report
from tileq_engine.metrics_system import run_intervals, run_warnings, system_metrics
from tileq_engine.metrics_window import MeasureWindow, measure_window
from tileq_engine.run import FINISHED, PS_PER_S, REJECTED, Run
from tileq_engine.verdict import StabilityVerdict
from tileq_theory.errors import InputError

PROBABILITIES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
CONVENTIONS = ("tileq", "slai")
_SLAI_WINDOW = (
    "the SLAI authors cut no warm-up, but this run's TBT covers the tokens of a window only; simulate with "
    "measure_gaps='all'",
)


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, quantiles and maximum of a time in seconds (nan where there is no value).

    `count` values went in, `unfinished` of them lower bounds (see `metrics_requests.observed_ps`): statistics that
    rest on them are lower bounds too.
    """

    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    count: int
    unfinished: int = 0

    def to_dict(self) -> dict[str, float | int | None]:
        """Return the contract's {mean, p50, p90, p99, max} with the counts; None where there is no value."""
        values = {"mean": self.mean, "p50": self.p50, "p90": self.p90, "p99": self.p99, "max": self.max}
        shown = {name: value if math.isfinite(value) else None for name, value in values.items()}
        return {**shown, "count": self.count, "unfinished": self.unfinished}


def spread_of(values_ps: np.ndarray, unfinished: int = 0) -> Spread:
    """Return the spread of times in ps (whole or float); whole ones have an exact mean."""
    n = int(values_ps.size)
    if not n:
        return Spread(math.nan, math.nan, math.nan, math.nan, math.nan, 0, unfinished)
    x = np.partition(values_ps, [*(quantile_rank(p, n) - 1 for _, p in PROBABILITIES), n - 1])
    whole = np.issubdtype(x.dtype, np.integer)
    mean = exact_sum(x.astype(np.int64), np.ones(n, dtype=np.int64)) / n if whole else float(x.mean())
    p50, p90, p99 = (float(x[quantile_rank(p, n) - 1]) / PS_PER_S for _, p in PROBABILITIES)
    return Spread(mean / PS_PER_S, p50, p90, p99, float(x[-1]) / PS_PER_S, n, unfinished)


def spread_of_gaps(gaps: GapDistribution) -> Spread:
    """Return the spread of a gap distribution, seconds."""
    if not gaps.count:
        return Spread(math.nan, math.nan, math.nan, math.nan, math.nan, 0)
    p50, p90, p99 = (gaps.quantile_ps(p) / PS_PER_S for _, p in PROBABILITIES)
    return Spread(gaps.mean_ps / PS_PER_S, p50, p90, p99, gaps.max_ps / PS_PER_S, gaps.count)


@dataclass(frozen=True, slots=True)
class GroupMetrics:
    """Times, throughput and SLO attainment of one group of requests (all, a class, or a tier)."""

    ttft_s: Spread
    tbt_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    measured: int
    throughput_per_s: float
    slo: SloReport

    def to_dict(self) -> dict[str, Any]:
        """Return the group's part of the contract."""
        return {
            "ttft_s": self.ttft_s.to_dict(),
            "tbt_s": self.tbt_s.to_dict(),
            "tpot_s": self.tpot_s.to_dict(),
            "e2e_s": self.e2e_s.to_dict(),
            "measured_requests": self.measured,
            "throughput_per_s": _number(self.throughput_per_s),
            "goodput_per_s": _number(self.slo.goodput_per_s),
            "slo_attainment": self.slo.to_dict(),
        }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def group_metrics(
    run: Run,
    window: MeasureWindow,
    group: Bool[np.ndarray, "request"],
    gaps: GapDistribution,
    *,
    convention: str = "tileq",
) -> GroupMetrics:
    """Return the metrics of the requests in `group` that the window measures.

    Throughput counts the finishes inside the window, whoever arrived when, per second of it.
    """
    from tileq_engine.metrics_slai import slai_gaps, slai_ttft_ps

    finish = run.requests["finish_ps"]
    members = window.members(run) & group
    slai = convention == "slai"
    if slai:
        members &= run.requests["status"] == FINISHED
        gaps = slai_gaps(gaps, int(members.sum()))
    first = slai_ttft_ps(run) if slai else ttft_ps(run)
    tpot = tpot_ps(run)[members]
    leaving = (finish >= window.start_ps) & (finish <= window.end_ps) & group
    return GroupMetrics(
        ttft_s=spread_of(*observed_ps(run, first, members)),
        tbt_s=spread_of_gaps(gaps),
        tpot_s=spread_of(tpot[tpot >= 0], int((members & (finish < 0)).sum())),
        e2e_s=spread_of(*observed_ps(run, e2e_ps(run), members)),
        measured=int(members.sum()),
        throughput_per_s=int(leaving.sum()) / window.seconds if window.seconds > 0 else math.nan,
        slo=slo_report(
            run, members, leaving, gaps, window.seconds, first, 0 if slai else _rejected(run, window, group)
        ),
    )


def _rejected(run: Run, window: MeasureWindow, group: Bool[np.ndarray, "request"]) -> int:
    """Return how many requests of the group were rejected inside the window."""
    arrival = run.requests["arrival_ps"]
    inside = (arrival >= window.start_ps) & (arrival <= window.end_ps)
    return int((inside & group & (run.requests["status"] == REJECTED)).sum())


@dataclass(frozen=True, slots=True, eq=False)
class RunMetrics:
    """Everything measured of one run.

    `classes` and `tiers` hold the same metrics by name; `system` the queues, KV use, batches and costs; `intervals`
    the 95 % confidence intervals from this one run (batch means, inverted for quantiles; replications are better);
    `observed` the tenants and the bottlenecks where the run kept them.
    """

    run: Run
    convention: str
    window: MeasureWindow
    all: GroupMetrics
    classes: Mapping[str, GroupMetrics]
    tiers: Mapping[str, GroupMetrics]
    system: Mapping[str, Any]
    intervals: Mapping[str, Mapping[str, Interval]]
    stability: StabilityVerdict
    gaps: GapDistribution
    warnings: tuple[str, ...]
    observed: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the contract's document: plain JSON data, None where a number does not exist."""
        info = self.run.info
        known = {
            name: {k: [_number(i.low), _number(i.high)] for k, i in part.items()}
            for name, part in self.intervals.items()
        }
        return {
            "policy": info.policy,
            "rate_per_s": info.rate_per_s,
            **self.all.to_dict(),
            "stable": self.stability.verdict,
            "stability": self.stability.to_dict(),
            "ci95": known,
            "ci95_details": {n: {k: i.to_dict() for k, i in part.items()} for n, part in self.intervals.items()},
            "classes": {name: group.to_dict() for name, group in self.classes.items()},
            "tiers": {name: group.to_dict() for name, group in self.tiers.items()},
            **self.system,
            **self.observed,
            "measurement": {
                "convention": self.convention,
                **self.window.to_dict(),
                "tbt_exact": self.gaps.exact,
                "tbt_relative_error": self.gaps.relative_error,
                "tbt_mean_exact": self.gaps.mean_exact,
                "tbt_window_s": None if info.gap_window_ps is None else [t / PS_PER_S for t in info.gap_window_ps],
                "quantile": "order statistic of rank max(1, ceil(p n))",
            },
            "stop_reason": info.stop_reason,
            "seed": info.seed,
            "replication": info.replication,
            "warnings": list(self.warnings),
            "provenance": {
                **dict(info.provenance),
                "policy_config": dict(info.policy_config),
                "iteration_time": dict(info.iteration_time),
                "workload": dict(info.workload),
            },
        }

    def summary(self) -> str:
        """Return a short text: one line a metric, then the verdict, the window and the warnings."""
        rate = "" if self.run.info.rate_per_s is None else f" at {self.run.info.rate_per_s:g} requests/s"
        lines = [f"{self.run.info.policy}{rate}: {self.stability.verdict} ({self.stability.reason})"]
        lines.append(f"{'seconds':<8}" + "".join(f"{name:>12}" for name in ("mean", "p50", "p90", "p99", "max")))
        for name in ("ttft_s", "tbt_s", "tpot_s", "e2e_s"):
            s = getattr(self.all, name)
            lines.append(f"{name[:-2]:<8}" + "".join(f"{v:>12.5g}" for v in (s.mean, s.p50, s.p90, s.p99, s.max)))
        slo = self.all.slo.attained
        lines.append(
            f"throughput {self.all.throughput_per_s:.5g}/s, goodput {self.all.slo.goodput_per_s:.5g}/s, "
            f"SLO attained by {slo:.2%} of {self.window.measured_requests} measured requests ({self.window.rule})"
        )
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])


def run_metrics(
    run: Run,
    rule: str = "mser5",
    *,
    warmup: float | None = None,
    convention: str = "tileq",
    level: float = 0.95,
    intervals: bool = True,
) -> RunMetrics:
    """Return the metrics of `run` under a warm-up rule and a convention ("tileq", or "slai": `metrics_slai`).

    `intervals` False leaves the confidence intervals of this one run out (a search over many runs needs none).
    """
    if convention not in CONVENTIONS:
        raise InputError(f"metric convention is {convention!r}; expected one of {', '.join(CONVENTIONS)}")
    window = measure_window(run, "none" if convention == "slai" else rule, warmup)
    gaps = run.merged_gaps()
    whole = group_metrics(run, window, np.ones(run.count, dtype=bool), gaps, convention=convention)

    def group(column: str, index: int, names: tuple[str, ...]) -> GroupMetrics:
        if len(names) == 1:
            return whole
        chosen = run.merged_gaps(class_index=index) if column == "class_index" else run.merged_gaps(tier=index)
        return group_metrics(run, window, run.requests[column] == index, chosen, convention=convention)

    classes, tiers = run.info.class_names, run.info.tier_names
    verdict = run.verdict()
    return RunMetrics(
        run=run,
        convention=convention,
        window=window,
        all=whole,
        classes={name: group("class_index", i, classes) for i, name in enumerate(classes)},
        tiers={name: group("tier", i, tiers) for i, name in enumerate(tiers)},
        system=system_metrics(run, window),
        intervals=run_intervals(run, window, level) if intervals else {},
        stability=verdict,
        gaps=gaps,
        warnings=(
            *run.info.warnings,
            *run_warnings(run, window, whole.ttft_s.unfinished, whole.e2e_s.unfinished, gaps),
            *(_SLAI_WINDOW if convention == "slai" and run.info.gap_window_ps is not None else ()),
        ),
        observed=_observed(run, window),
    )


def _observed(run: Run, window: MeasureWindow) -> dict[str, Any]:
    """Return what the run observed beside its requests, as far as it was asked to."""
    found: dict[str, Any] = {}
    if run.tenants is not None:
        from tileq_engine.metrics_tenants import tenant_metrics

        found["tenants"] = tenant_metrics(run, window)
    if run.bottlenecks is not None:
        from tileq_engine.metrics_bottlenecks import bottleneck_metrics

        found["bottlenecks"] = bottleneck_metrics(run)
    return found
