"""Pictures of the maps: the winner's shade in every cell, and by how much it leads the next mode."""

from __future__ import annotations

__all__ = ["plot_map", "plot_mode_map"]

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.disaggregation.compare import MODES, WorkloadMap
from tileq_theory.disaggregation.maps import ModeMap
from tileq_theory.figure_style import in_style

_SHADES = ("#ffffff", "#2f5d80", "#9dbdb9", "#f2dfae")  # none, then MODES: apart in grey


def plot_map(grid: WorkloadMap) -> Any:
    """Return a matplotlib figure of the winners; each cell says how far the winner is ahead of the next mode."""
    with in_style():
        figure = _figure(2.2 + 0.8 * grid.prompt_shares.size, 1.6 + 0.55 * grid.tbt_s.size)
        axes = figure.add_subplot()
        mesh = _cells(axes, grid.rates_per_s, grid.winner)
        axes.set_xticks(range(grid.prompt_shares.size), [f"{s:g}" for s in grid.prompt_shares])
        axes.set_yticks(range(grid.tbt_s.size), ["none" if np.isinf(t) else f"{1e3 * t:.3g}" for t in grid.tbt_s])
        axes.set_xlabel("prompt tokens / all tokens")
        axes.set_ylabel("TBT limit (ms)")
        axes.set_title("Which mode carries most, and how far ahead of the next")
        _name_shades(figure, mesh)
    return figure


def plot_mode_map(grid: ModeMap) -> Any:
    """Return a matplotlib figure, a panel a TBT limit; each cell says by how much its winner leads the next mode."""
    panels = grid.tbt_s.size
    columns = min(panels, 2)  # side by side, three or more would be too small to read in a page's column
    rows = -(-panels // columns)
    width, height = 0.62 * grid.ratios.size, 0.42 * grid.links_bytes_per_s.size
    with in_style():
        figure = _figure(2.0 + columns * (width + 0.2), rows * (height + 0.5) + 0.6)
        mesh: Any = None
        places = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for spare in places.flat[panels:]:
            spare.remove()
        for i, axes in enumerate(places.flat[:panels]):
            mesh = _cells(axes, grid.rates_per_s[:, i], grid.winner[i])
            axes.set_xticks(range(grid.ratios.size), [f"{r:.3g}" for r in grid.ratios])
            axes.set_yticks(range(grid.links_bytes_per_s.size), [f"{b / 1e9:.3g}" for b in grid.links_bytes_per_s])
            limit = grid.tbt_s[i]
            axes.set_title("no TBT limit" if np.isinf(limit) else f"TBT {1e3 * limit:.3g} ms")
            axes.tick_params(labelbottom=i + columns >= panels)
            if i + columns >= panels:
                axes.set_xlabel("prompt / output tokens")
            if i % columns == 0:
                axes.set_ylabel("port of a node (GB/s)")
        _name_shades(figure, mesh)
    return figure


def _figure(wide_in: float, high_in: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(wide_in, 6.0), max(high_in, 3.2)))
    FigureCanvasAgg(figure)
    return figure


def _cells(axes: Any, rates_per_s: Float[np.ndarray, "mode row column"], winner: Int[np.ndarray, "row column"]) -> Any:
    """Shade every cell by its winner and write how far it is ahead; return the picture."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    mesh = axes.imshow(winner, cmap=ListedColormap(_SHADES), norm=BoundaryNorm(np.arange(-1.5, 3), 4), aspect="auto")
    axes.grid(visible=False)
    for i, j in np.ndindex(*winner.shape):
        ordered = np.sort(rates_per_s[:, i, j])
        if ordered[-1] > 0:
            ahead = f"+{100 * (ordered[-1] / ordered[-2] - 1):.0f}%" if ordered[-2] > 0 else "only"
            ink = "white" if winner[i, j] == 0 else "black"
            axes.text(j, i, ahead, ha="center", va="center", fontsize="small", color=ink)
    return mesh


def _name_shades(figure: Any, mesh: Any) -> None:
    bar = figure.colorbar(mesh, ax=figure.axes, ticks=range(-1, 3))
    bar.ax.set_yticklabels(["none", *MODES])
