"""Figures of runs and sweeps: each function returns a matplotlib Figure; `save_figure` writes it reproducibly."""

from __future__ import annotations

__all__ = [
    "plot_batches",
    "plot_gantt",
    "plot_hits",
    "plot_kv",
    "plot_queues",
    "plot_rates",
    "plot_tenants",
    "save_figure",
]

from tileq_engine.plots_rates import plot_rates
from tileq_engine.plots_run import plot_batches, plot_gantt, plot_hits, plot_kv, plot_queues
from tileq_engine.plots_style import save_figure
from tileq_engine.plots_tenants import plot_tenants
