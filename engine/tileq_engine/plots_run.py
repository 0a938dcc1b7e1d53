"""One run over time: batch composition, KV use, queues, and a Gantt chart of its requests."""

from __future__ import annotations

__all__ = ["plot_batches", "plot_gantt", "plot_hits", "plot_kv", "plot_queues", "run_title"]

from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_engine.plots_style import GREYS, new_figure, series_style, styled
from tileq_engine.run import PS_PER_S, REJECTED, Run
from tileq_engine.run_paths import queue_path
from tileq_theory.errors import InputError, positive_int

MOST_POINTS = 400
_GANTT_MOST = 200
_HIT_SLICES = 40


def _samples(run: Run) -> dict[str, Float[np.ndarray, "sample"]]:
    if not run.samples["start_ps"].size:
        raise InputError("the run kept no samples of its iterations, so there is nothing to draw over time")
    return {name: column.astype(float) for name, column in run.samples.items()}


def _binned(run: Run, *names: str) -> tuple[Float[np.ndarray, "edge"], dict[str, Float[np.ndarray, "bin"]]]:
    """Return time edges (s) and the means of sampled columns over them, weighted by the duration of the iterations."""
    samples = _samples(run)
    start, weight = samples["start_ps"] / PS_PER_S, np.maximum(samples["duration_ps"], 1.0)
    end = float(start[-1] + samples["duration_ps"][-1] / PS_PER_S)
    edges = np.linspace(float(start[0]), max(end, float(start[0]) + 1e-12), min(MOST_POINTS, start.size) + 1)
    total = np.histogram(start, edges, weights=weight)[0]
    means = {}
    for name in names:
        value = np.histogram(start, edges, weights=weight * samples[name])[0]
        means[name] = np.divide(value, total, out=np.zeros_like(value), where=total > 0)
    return edges, means


def run_title(run: Run, what: str) -> str:
    """Return what is drawn, with the policy and its rate."""
    rate = "" if run.info.rate_per_s is None else f", {run.info.rate_per_s:.4g} requests/s"
    return f"{what}: {run.info.policy}{rate}"


def plot_batches(run: Run) -> Any:
    """Return the composition of batches over time: mean prefill and decode tokens of an iteration, stacked."""
    edges, means = _binned(run, "prefill_tokens", "decode_tokens")
    with styled():
        figure = new_figure(7.0, 3.3)
        axes = figure.subplots()
        decode, both = means["decode_tokens"], means["decode_tokens"] + means["prefill_tokens"]
        axes.stairs(decode, edges, fill=True, color=GREYS["decode"], label="decode tokens")
        axes.stairs(both, edges, baseline=decode, fill=True, color=GREYS["prefill"], label="prefill tokens")
        if run.info.token_budget:
            axes.axhline(run.info.token_budget, color="black", linewidth=0.9, linestyle="--", label="token budget")
        axes.set(xlabel="time [s]", ylabel="tokens of an iteration", title=run_title(run, "Batch composition"))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure


def plot_kv(run: Run) -> Any:
    """Return KV blocks in use over time, with the capacity where there is one."""
    edges, means = _binned(run, "kv_blocks_used")
    with styled():
        figure = new_figure(7.0, 3.2)
        axes = figure.subplots()
        axes.stairs(means["kv_blocks_used"], edges, fill=True, color=GREYS["decode"], alpha=0.85, label="in use")
        if run.info.kv_blocks_total:
            axes.axhline(run.info.kv_blocks_total, color="black", linewidth=0.9, linestyle="--", label="capacity")
        axes.set(
            xlabel="time [s]", ylabel=f"KV blocks of {run.info.block_tokens} tokens", title=run_title(run, "KV use")
        )
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(bottom=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        return figure


def plot_hits(run: Run) -> Any:
    """Return the share of looked-up tokens that the prefix cache had, over time, and what its idle blocks take.

    The share is that of the requests admitted in each slice of time; the line through it is the share so far.
    """
    if "prefix_lookup_tokens" not in run.counters:
        raise InputError("the run had no prefix cache, so there are no hits to draw; simulate with prefix_cache=True")
    edges, means = _binned(run, "prefix_idle_blocks", "kv_blocks_used")
    asked, hit = (_at_edges(run, edges, f"prefix_{name}_tokens") for name in ("lookup", "hit"))
    with styled():
        figure = new_figure(6.4, 4.2)
        above, below = figure.subplots(2, 1, sharex=True)
        slices = edges[:: max(1, (len(edges) - 1) // _HIT_SLICES)]
        places = np.searchsorted(edges, slices)
        part, found = np.diff(asked[places]), np.diff(hit[places])
        share = np.divide(found, part, out=np.full(part.shape, np.nan), where=part > 0)
        above.stairs(100 * share, slices, fill=True, color=GREYS["prefill"], label="in this slice")
        so_far = np.divide(hit, asked, out=np.zeros_like(hit), where=asked > 0)
        above.plot(edges, 100 * so_far, color="black", linewidth=0.9, label="so far")
        above.set(ylabel="tokens found [%]", title=run_title(run, "Prefix cache"), ylim=(0, 100))
        used, idle = means["kv_blocks_used"], means["prefix_idle_blocks"]
        below.stairs(used, edges, fill=True, color=GREYS["decode"], label="residents")
        below.stairs(used + idle, edges, baseline=used, fill=True, color=GREYS["waiting"], label="cached, idle")
        if run.info.kv_blocks_total:
            below.axhline(run.info.kv_blocks_total, color="black", linewidth=0.9, linestyle="--", label="capacity")
        below.set(xlabel="time [s]", ylabel=f"blocks of {run.info.block_tokens} tokens")
        below.set_xlim(edges[0], edges[-1])
        below.set_ylim(bottom=0)
        handles = [axes.get_legend_handles_labels() for axes in (above, below)]
        figure.legend(*(a + b for a, b in zip(*handles, strict=True)), loc="outside lower center", ncols=3)
        return figure


def _at_edges(run: Run, edges: Float[np.ndarray, "edge"], name: str) -> Float[np.ndarray, "edge"]:
    """Return a total of the samples at each moment of `edges`."""
    start, column = run.samples["start_ps"] / PS_PER_S, run.samples[name].astype(float)
    return np.asarray(np.interp(edges, start, column))


def plot_queues(run: Run) -> Any:
    """Return the paths of the number waiting, running and in system."""
    if not run.count:
        raise InputError("the run has no requests, so there are no queues to draw")
    end = max(run.info.end_ps, int(run.requests["arrival_ps"][-1]), 1)
    grid = np.linspace(0, end, MOST_POINTS + 1).astype(np.int64)
    paths = queue_path(run, grid)
    with styled():
        figure = new_figure(7.0, 3.3)
        axes = figure.subplots()
        for place, name in enumerate(("in_system", "running", "waiting")):
            style = series_style(place) | {"marker": ""}
            axes.step(grid / PS_PER_S, paths[name], where="post", label=name.replace("_", " "), **style)
        last = int(run.requests["arrival_ps"][-1])
        if last < end:
            axes.axvline(last / PS_PER_S, color="grey", linewidth=0.9, linestyle=":", label="last arrival")
        axes.set(xlabel="time [s]", ylabel="requests", title=run_title(run, "Queues"))
        axes.set_xlim(0, end / PS_PER_S)
        axes.set_ylim(bottom=0)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


def _phases(run: Run, i: int) -> list[tuple[str, int, int]]:
    """Return (phase, begin, end) of request i: waiting, prefill, decode, as far as it got."""
    row = {name: int(run.requests[name][i]) for name in ("arrival_ps", "admit_ps", "prefill_end_ps", "finish_ps")}
    end = max(run.info.end_ps, row["arrival_ps"])
    moments = [
        row["arrival_ps"],
        *(row[n] if row[n] >= 0 else end for n in ("admit_ps", "prefill_end_ps", "finish_ps")),
    ]
    return [
        (name, a, b)
        for name, a, b in zip(("waiting", "prefill", "decode"), moments, moments[1:], strict=False)
        if b > a
    ]


def plot_gantt(run: Run, *, first: int = 0, count: int = 40, trace: Any = None, axes: Any = None) -> Any:
    """Return a Gantt chart of requests `first` to `first + count`: waiting, prefill and decode as bars over time.

    With the simulator's `trace` each bar is cut into the iterations in which the request took part, so that pauses
    (an unserved decode, a preemption) show; without it the bars are the phases from the request table. With `axes`
    it is drawn into them, without title and legend, so that several runs can stand beside each other.
    """
    number = positive_int("count", count)
    if number > _GANTT_MOST or not 0 <= first < run.count:
        raise InputError(
            f"Gantt chart of {count} requests from {first}; expected at most {_GANTT_MOST}, from 0 to {run.count - 1}"
        )
    chosen = list(range(first, min(first + number, run.count)))
    with styled():
        if axes is not None:
            _gantt(axes, run, chosen, trace)
            return axes.get_figure()
        figure = new_figure(7.2, 1.6 + 0.16 * len(chosen))
        axes = figure.subplots()
        _gantt(axes, run, chosen, trace)
        axes.set_title(run_title(run, "Requests"))
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5)
        return figure


def _gantt(axes: Any, run: Run, chosen: list[int], trace: Any) -> None:
    for i in chosen:
        for phase, begin, end in _phases(run, i):
            faint = trace is not None and phase != "waiting"
            _bar(axes, i, begin, end, phase, alpha=0.25 if faint else 1.0)
    if trace is not None:
        _trace_bars(axes, trace, set(chosen))
    hatched = [i for i in chosen if run.requests["preemptions"][i] > 0]
    rejected = [i for i in chosen if run.requests["status"][i] == REJECTED]
    for rows, marker, words in ((hatched, "x", "preempted"), (rejected, "|", "rejected")):
        if rows:
            axes.plot(
                [run.requests["arrival_ps"][i] / PS_PER_S for i in rows], rows, marker, color="black", label=words
            )
    if trace is not None:
        axes.barh([np.nan], [0], color=GREYS["decode"], alpha=0.25, label="admitted, not in the batch")
    for phase in ("waiting", "prefill", "decode"):
        axes.barh([np.nan], [0], color=GREYS[phase], edgecolor="black", linewidth=0.4, label=phase, hatch=_HATCH[phase])
    axes.set(xlabel="time [s]", ylabel="request (order of arrival)")
    axes.set_ylim(chosen[-1] + 0.6, chosen[0] - 0.6)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.grid(visible=False, axis="y")


_HATCH = {"waiting": "", "prefill": "////", "decode": ""}


def _bar(axes: Any, row: int, begin_ps: int, end_ps: int, phase: str, *, alpha: float = 1.0) -> None:
    axes.barh(
        row, (end_ps - begin_ps) / PS_PER_S, left=begin_ps / PS_PER_S, height=0.72, color=GREYS[phase], alpha=alpha,
        edgecolor="black", linewidth=0.3, hatch=_HATCH[phase],
    )  # fmt: skip


def _trace_bars(axes: Any, trace: Any, chosen: set[int]) -> None:
    columns = (trace.request, trace.start_ps, trace.duration_ps, trace.prefill_tokens)
    spans: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for request, start, duration, prefill in zip(*(c.tolist() for c in columns), strict=True):
        if request in chosen:
            phase = "prefill" if prefill else "decode"
            spans.setdefault((request, phase), []).append((start / PS_PER_S, duration / PS_PER_S))
    for (row, phase), bars in spans.items():
        # one artist a row, and no edges: hundreds of short bars would drown in them
        axes.broken_barh(bars, (row - 0.36, 0.72), facecolor=GREYS[phase], linewidth=0.0, hatch=_HATCH[phase])
