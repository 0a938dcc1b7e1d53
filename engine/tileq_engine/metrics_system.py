"""What a run says of the server: queues, KV use, batches, preemptions, busy share; intervals and warnings."""

from __future__ import annotations

__all__ = ["run_intervals", "run_warnings", "system_metrics"]

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.gaps import GapDistribution
from tileq_engine.intervals import BATCHES, Interval, batch_means_interval, batch_quantile_interval
from tileq_engine.metrics_requests import e2e_ps, observed_ps, tpot_ps, ttft_ps
from tileq_engine.run import PS_PER_S
from tileq_engine.run_paths import time_average

if TYPE_CHECKING:
    from tileq_engine.metrics_window import MeasureWindow
    from tileq_engine.run import Run

FEW_REQUESTS = 1000


def _level(begin: Int[np.ndarray, "n"], end: Int[np.ndarray, "n"], window: tuple[int, int]) -> dict[str, float | None]:
    """Return time average and peak of the number of intervals [begin, end) open inside the window."""
    mean = time_average(begin, end, window)
    touching = (begin < window[1]) & (end > window[0]) & (end > begin)
    moments = np.concatenate([np.maximum(begin[touching], window[0]), end[touching]])
    steps = np.concatenate(
        [np.ones(int(touching.sum()), dtype=np.int64), -np.ones(int(touching.sum()), dtype=np.int64)]
    )
    order = np.lexsort((steps, moments))  # at one moment leave first, then join
    peak = int(np.cumsum(steps[order]).max()) if order.size else 0
    return {"mean": mean if math.isfinite(mean) else None, "max": peak}


def _queues(run: Run, window: tuple[int, int]) -> dict[str, dict[str, float | None]]:
    keep = run.accepted
    columns = {name: run.requests[name][keep] for name in ("arrival_ps", "admit_ps", "finish_ps")}
    forever = max(run.info.end_ps, window[1]) + 1
    moments = {name: np.where(column >= 0, column, forever) for name, column in columns.items()}
    arrival, admit, finish = moments["arrival_ps"], moments["admit_ps"], moments["finish_ps"]
    return {
        "in_system": _level(arrival, finish, window),
        "waiting": _level(arrival, admit, window),
        "running": _level(admit, finish, window),
    }


def _inside(run: Run, window: MeasureWindow) -> dict[str, Float[np.ndarray, "sample"]]:
    start = run.samples["start_ps"]
    keep = (start >= window.start_ps) & (start <= window.end_ps)
    return {name: column[keep].astype(float) for name, column in run.samples.items()}


def _mean(values: Float[np.ndarray, "n"], weights: Float[np.ndarray, "n"] | None = None) -> float | None:
    if not values.size or (weights is not None and not weights.sum() > 0):
        return None
    return float(np.average(values, weights=weights))


def system_metrics(run: Run, window: MeasureWindow) -> dict[str, Any]:
    """Return queues, KV use, batch composition, preemptions, costs and busy share as plain data.

    Queues are exact (from the request table, over the window); batches and KV use come from the sampled iterations of
    the window; counters, mean work in system and busy share are over the whole run.
    """
    table, info = run.requests, run.info
    samples = _inside(run, window)
    used, blocks = samples["kv_blocks_used"], info.kv_blocks_total
    mean_used = _mean(used, samples["duration_ps"])
    peak = run.counters.get("peak_kv_blocks", int(used.max()) if used.size else 0)
    busy = run.counters.get("busy_ps")
    duration = _mean(samples["duration_ps"])
    return {
        "queues": _queues(run, (window.start_ps, window.end_ps)),
        "mean_work_tokens": run.counters["work_token_ps"] / info.end_ps
        if "work_token_ps" in run.counters and info.end_ps > 0
        else None,
        "kv": {
            "blocks_total": blocks or None,
            "mean_blocks": mean_used,
            "max_blocks": peak,
            "mean_share": mean_used / blocks if blocks and mean_used is not None else None,
            "max_share": peak / blocks if blocks else None,
        },
        "batch": {
            "mean_prefill_tokens": _mean(samples["prefill_tokens"]),
            "mean_decode_tokens": _mean(samples["decode_tokens"]),
            "mean_sequences": _mean(samples["sequences"]),
            "mean_duration_s": None if duration is None else duration / PS_PER_S,
            "iterations": run.counters.get("iterations"),
        },
        "requests": {
            "offered": run.count,
            "accepted": int(run.accepted.sum()),
            "finished": run.finished,
            "rejected": run.rejected,
            "rejected_share": run.rejected_share,
            "preempted": int((table["preemptions"] > 0).sum()),
        },
        "preemptions": int(table["preemptions"].sum()),
        "recomputed_tokens": int(table["recomputed_tokens"].sum()),
        "swapped_tokens": int(table["swapped_tokens"].sum()),
        **_prefix_cache(run, window),
        "busy_share": busy / info.end_ps / run.counters.get("nodes", 1)
        if busy is not None and info.end_ps > 0
        else None,
        "end_s": info.end_ps / PS_PER_S,
        "counters": {name: int(value) for name, value in run.counters.items()},
        "throughput_tokens_per_s": _token_rates(run, window),
    }


def _prefix_cache(run: Run, window: MeasureWindow) -> dict[str, Any]:
    """Return what the prefix cache did, under one name; nothing where there was none.

    `hit_rate` is the share of looked-up tokens that were found, over the whole run; `steady_hit_rate` that of the
    measurement window, when the cache has filled.
    """
    if "prefix_lookup_tokens" not in run.counters:
        return {}
    totals = {name: int(run.counters[f"prefix_{name}"]) for name in _PREFIX_TOTALS}
    inside = _inside(run, window)
    asked, hit = (inside[f"prefix_{name}_tokens"] for name in ("lookup", "hit"))
    steady = (hit[-1] - hit[0]) / (asked[-1] - asked[0]) if asked.size and asked[-1] > asked[0] else None
    looked = totals["lookup_tokens"]
    return {
        "prefix_cache": {
            "hit_rate": totals["hit_tokens"] / looked if looked else None,
            "steady_hit_rate": steady,
            **totals,
            "mean_idle_blocks": _mean(inside["prefix_idle_blocks"], inside["duration_ps"]),
        }
    }


_PREFIX_TOTALS = ("lookups", "lookup_tokens", "hit_tokens", "evicted_blocks", "merged_blocks")


def _token_rates(run: Run, window: MeasureWindow) -> dict[str, float | None]:
    finish = run.requests["finish_ps"]
    inside = (finish >= window.start_ps) & (finish <= window.end_ps)
    prompt, output = (int(run.requests[c][inside].sum()) for c in ("prompt_tokens", "output_tokens"))
    if window.seconds <= 0:
        return {"prefill": None, "output": None, "total": None}
    return {
        "prefill": prompt / window.seconds,
        "output": output / window.seconds,
        "total": (prompt + output) / window.seconds,
    }


def run_intervals(run: Run, window: MeasureWindow, level: float = 0.95) -> Mapping[str, Mapping[str, Interval]]:
    """Return intervals of mean, p50, p90 and p99 of TTFT, TPOT and E2E and of the throughput, from this one run.

    Requests in order of arrival are the series; the throughput's is the finishes in equal slices of the window. TBT
    is a statistic over tokens whose order is not kept, so its interval needs replications.
    """
    members = window.members(run)
    found: dict[str, dict[str, Interval]] = {}
    tpot = tpot_ps(run)[members]
    for name, values in (
        ("ttft_s", observed_ps(run, ttft_ps(run), members)[0]),
        ("tpot_s", tpot[tpot >= 0]),
        ("e2e_s", observed_ps(run, e2e_ps(run), members)[0]),
    ):
        series = values / PS_PER_S
        if series.size >= 2 * BATCHES:
            found[name] = {"mean": batch_means_interval(series, level)} | {
                label: batch_quantile_interval(series, p, level)
                for label, p in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
            }
    if window.measured_requests >= 2 * BATCHES and window.seconds > 0:
        edges = np.linspace(window.start_ps, window.end_ps, 10 * BATCHES + 1)
        finish = run.requests["finish_ps"]
        counts = np.histogram(finish[finish >= 0], bins=edges)[0]
        found["throughput_per_s"] = {"mean": batch_means_interval(counts * (10.0 * BATCHES / window.seconds), level)}
    return found


def run_warnings(
    run: Run, window: MeasureWindow, unfinished_first: int, unfinished: int, gaps: GapDistribution
) -> list[str]:
    """Return what a reader must know before using the numbers, one sentence each."""
    found = []
    if not window.settled:
        found.append(f"warm-up: {window.note}")
    if unfinished:
        found.append(
            f"{unfinished} of {window.measured_requests} measured requests were unfinished ({unfinished_first} without "
            "a first token) when the run ended; their age stands in, so TTFT and E2E are lower bounds"
        )
    if run.rejected:
        why = ", ".join(f"{count} {reason}" for reason, count in run.rejections().items())
        found.append(f"{run.rejected} of {run.count} requests were rejected ({why}); times cover the accepted ones")
    if window.measured_requests < FEW_REQUESTS:
        found.append(
            f"only {window.measured_requests} requests measured; p99 rests on {window.measured_requests // 100} of them"
        )
    if not gaps.exact:
        found.append(f"TBT quantiles come from a histogram: relative error at most {gaps.relative_error:.2%}")
    if run.info.gap_window_ps is None and window.warmup_requests:
        found.append("TBT covers all tokens of the run, its warm-up too; give the engine a gap window to cut it")
    if run.info.stop_reason not in ("finished", "time", "iterations"):
        found.append(f"the run stopped early: {run.info.stop_reason}")
    return found
