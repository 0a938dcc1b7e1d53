"""A cluster's run in pictures: load of each node, queues of the pools, shares of the tenants."""

from __future__ import annotations

__all__ = ["plot_nodes", "plot_pools", "plot_tenants"]

from typing import Any

import numpy as np

from tileq_engine.cluster.paths import on_grid
from tileq_engine.cluster.result import ClusterRun
from tileq_engine.plots_style import GREYS, new_figure, series_style, styled
from tileq_engine.run import PS_PER_S
from tileq_theory.errors import InputError

_LINES = 8  # more lines than that nobody tells apart
_POINTS = 400
_TENANTS = 8


def plot_nodes(run: ClusterRun) -> Any:
    """Return the load of each node: busy share and KV in use as bars, and requests in its system over time."""
    load = run.node_load()
    count = len(load.name)
    at = np.linspace(0, run.end_ps, _POINTS).astype(np.int64)
    with styled():
        figure = new_figure(6.4, min(2.6 + 0.16 * count, 9.0) + 2.4)
        bars, lines = figure.subplots(2, 1, height_ratios=[max(1.0, 0.12 * count), 1.2])
        place = np.arange(count)
        bars.barh(place - 0.2, load.busy_share, 0.4, color=GREYS["decode"], label="not empty")
        bars.barh(place + 0.2, load.kv_share, 0.4, color=GREYS["prefill"], label="KV in use")
        shown = place if count <= 40 else place[:: -(-count // 40)]
        bars.set_yticks(shown, [load.name[k] for k in shown])
        bars.invert_yaxis()
        bars.set(
            xlabel="share of the time; of the KV memory",
            xlim=(0, 1.02),
            title=f"Nodes behind {run.cluster.router.name}",
        )
        paths = [on_grid(n.samples, "waiting", at) + on_grid(n.samples, "running", at) for n in run.nodes]
        time = at / PS_PER_S
        if count <= _LINES:
            for k, path in enumerate(paths):
                style = {**series_style(k), "marker": ""}
                lines.step(time, path, where="post", label=load.name[k], **style)
        else:
            lowest, middle, highest = np.percentile(np.array(paths), [0, 50, 100], axis=0)
            lines.fill_between(time, lowest, highest, step="post", color="#d0d0d0", label="least to most")
            lines.step(time, middle, where="post", color="black", label="median node")
        lines.set(xlabel="time [s]", ylabel="requests in a node", xlim=(0, time[-1]))
        lines.set_ylim(bottom=0)
        handles = [axes.get_legend_handles_labels() for axes in (bars, lines)]
        figure.legend(handles[0][0] + handles[1][0], handles[0][1] + handles[1][1], loc="outside lower center", ncols=4)
        return figure


def plot_pools(run: ClusterRun) -> Any:
    """Return what runs and waits in each pool over time, one on the other, and on top those whose KV is not there."""
    roles = [role for role in ("both", "prefill", "decode") if any(n.role == role for n in run.nodes)]
    with styled():
        figure = new_figure(6.4, 1.0 + 1.8 * len(roles))
        panels = np.atleast_1d(figure.subplots(len(roles), 1, sharex=True))
        for axes, role in zip(panels, roles, strict=True):
            time, waiting = run.pool_path(role, "waiting")
            running = run.pool_path(role, "running")[1]
            size = sum(n.role == role for n in run.nodes)
            layers = [("in a batch", running, GREYS["decode"]), ("waiting", waiting, GREYS["waiting"])]
            if role == "decode":
                layers.append(("handed over, KV not there", run.waiting_for_decode(len(time))[1], GREYS["prefill"]))
            below = np.zeros(len(time))
            for label, height, color in layers:
                axes.fill_between(
                    time, below, below + height, step="post", facecolor=color, edgecolor="none", label=label
                )
                below = below + height
            word = {"both": "nodes of both phases", "prefill": "prefill nodes", "decode": "decode nodes"}[role]
            axes.set(ylabel="requests", title=f"{size} {word}")
            axes.set_ylim(bottom=0)
        panels[-1].set(xlabel="time [s]", xlim=(0, time[-1]))
        figure.legend(*panels[-1].get_legend_handles_labels(), loc="outside lower center", ncols=3)
        return figure


def plot_tenants(run: ClusterRun) -> Any:
    """Return each tenant's share of the tokens of requests that finished, over time."""
    done = run.finish_ps >= 0
    if not done.any():
        raise InputError("no request finished, so there are no shares to draw")
    tenants = np.unique(run.requests.tenant[done])
    if len(tenants) > _TENANTS:
        tokens = np.array([run.requests.output_tokens[done & (run.requests.tenant == t)].sum() for t in tenants])
        tenants = np.sort(tenants[np.argsort(-tokens, kind="stable")[:_TENANTS]])
    edges = np.linspace(0, run.end_ps, 41)
    served = (run.requests.prompt_tokens + run.requests.output_tokens).astype(float)
    total = np.histogram(run.finish_ps[done], edges, weights=served[done])[0]
    middle = (edges[1:] + edges[:-1]) / 2 / PS_PER_S
    with styled():
        figure = new_figure(6.4, 2.8)
        axes = figure.subplots()
        for k, tenant in enumerate(tenants.tolist()):
            own = done & (run.requests.tenant == tenant)
            part = np.histogram(run.finish_ps[own], edges, weights=served[own])[0]
            share = np.divide(part, total, out=np.full_like(part, np.nan), where=total > 0)
            axes.plot(middle, share, label=_tenant_name(run, tenant), **{**series_style(k), "marker": ""})
        axes.set(
            xlabel="time [s]", ylabel="share of tokens", ylim=(0, 1.02), title="Tenants: tokens of finished requests"
        )
        axes.set_xlim(0, run.end_ps / PS_PER_S)
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


def _tenant_name(run: ClusterRun, tenant: int) -> str:
    """Return the tenant's own name, that of the class where each class is a tenant, or its number."""
    record = run.nodes[0].tenants
    if record is not None and tenant < len(record.names):
        return record.names[tenant]
    named = tenant < len(run.class_names) and np.array_equal(run.requests.tenant, run.requests.class_index)
    return run.class_names[tenant] if named else f"tenant {tenant}"
