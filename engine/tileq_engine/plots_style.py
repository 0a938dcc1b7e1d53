"""One style for all figures: units on every axis, no colour that grey cannot tell apart, the same bytes every time."""

from __future__ import annotations

__all__ = ["GREYS", "new_figure", "save_figure", "series_style", "styled"]

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tileq_engine.run_io import atomic_write
from tileq_theory.errors import InputError
from tileq_theory.figure_style import in_style

# dark to light in equal steps of luminance, so that they stay apart in grey; markers and dashes repeat the difference
_COLOURS = ("#1b1f5e", "#a1343c", "#2f7f6f", "#c77a1c", "#7a6fb5", "#4c4c4c", "#5aa0d6", "#b8a13a")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (1, 1)), (0, (8, 2)))
GREYS = {"waiting": "#d9d9d9", "prefill": "#d08a3c", "decode": "#2b3a67"}
_FORMATS = (".svg", ".png", ".pdf")
_COMPACT: dict[Any, Any] = {"lines.markersize": 5, "path.simplify_threshold": 0.1}  # hundreds of points in a panel


@contextmanager
def styled() -> Iterator[None]:
    """Apply the project's style for as long as the block runs."""
    import matplotlib as mpl

    with in_style(), mpl.rc_context(_COMPACT):
        yield


def new_figure(width_in: float, height_in: float) -> Any:
    """Return an empty figure that belongs to no window and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def series_style(place: int) -> dict[str, Any]:
    """Return colour, marker and dashes of the series at `place`."""
    i = place % len(_COLOURS)
    return {"color": _COLOURS[i], "marker": _MARKERS[i], "linestyle": _DASHES[i]}


def save_figure(figure: Any, path: str | Path) -> Path:
    """Write a figure as SVG, PNG or PDF by the name's ending, with no date inside; atomic."""
    kind = Path(path).suffix.lower()
    if kind not in _FORMATS:
        raise InputError(f"cannot write a figure to {path}: expected a name that ends in {', '.join(_FORMATS)}")
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {"Software": None}}[kind]

    def write(part: Path) -> None:
        with styled(), part.open("wb") as file:
            figure.savefig(file, format=kind[1:], metadata=metadata)

    return atomic_write(path, write)
