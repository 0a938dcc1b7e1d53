"""Share of the service per tenant over time, against its weight."""

from __future__ import annotations

__all__ = ["plot_tenants"]

from typing import Any

import numpy as np

from tileq_engine.metrics_tenants import service_series
from tileq_engine.plots_run import run_title
from tileq_engine.plots_style import new_figure, series_style, styled
from tileq_engine.run import PS_PER_S, Run
from tileq_theory.errors import InputError

_SLICES = 60


def plot_tenants(run: Run) -> Any:
    """Return each tenant's share of the service in slices of the run; thin: the share its weight stands for.

    A tenant without requests leaves its share to the others.
    """
    record = run.tenants
    if record is None or run.samples["start_ps"].size < 2:
        raise InputError("the run kept no tenants' accounts, so there are no shares to draw; simulate with tenants")
    start = run.samples["start_ps"] / PS_PER_S
    edges = np.linspace(float(start[0]), float(start[-1]), min(_SLICES, start.size - 1) + 1)
    had = np.stack([np.interp(edges, start, column) for column in service_series(record).T], axis=1)
    step = np.diff(had, axis=0)
    total = step.sum(axis=1)
    shares = np.divide(step, total[:, None], out=np.full_like(step, np.nan), where=total[:, None] > 0)
    weights = np.asarray(record.weights) / sum(record.weights)
    with styled():
        figure = new_figure(6.4, 2.8)
        axes = figure.subplots()
        for place, name in enumerate(record.names):
            style = series_style(place) | {"marker": ""}
            look = {"color": style["color"], "linestyle": style["linestyle"]}
            axes.stairs(shares[:, place], edges, baseline=None, label=name, linewidth=1.6, **look)
            axes.axhline(float(weights[place]), color=style["color"], linewidth=0.8, alpha=0.6)
        axes.plot([], [], color="black", linewidth=0.8, alpha=0.6, label="by weight")
        axes.set(xlabel="time [s]", ylabel="share of the service", title=run_title(run, "Tenants"))
        axes.set_xlim(edges[0], edges[-1])
        axes.set_ylim(0, 1)
        figure.legend(
            *axes.get_legend_handles_labels(), loc="outside lower center", ncols=min(len(record.names) + 1, 4)
        )
        return figure
