"""Run inside a kernel before a notebook: notes what every figure shown says on its axes."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

from matplotlib.backend_bases import FigureCanvasBase

SEEN: list[dict[str, Any]] = []
_print = FigureCanvasBase.print_figure


def _named(axis: Any, axes: Any) -> bool:
    """Whether an axis says what it is: a label, its own or that of the axes it is shared with, or names as ticks."""
    if axis.get_label_text() or not axis.get_visible() or not axes.axison:
        return True
    shared = axes.get_shared_x_axes() if axis is axes.xaxis else axes.get_shared_y_axes()
    pick = "xaxis" if axis is axes.xaxis else "yaxis"
    if any(getattr(other, pick).get_label_text() for other in shared.get_siblings(axes) if other is not axes):
        return True
    ticks = [label.get_text() for label in axis.get_ticklabels()]
    return not ticks or any(any(letter.isalpha() for letter in text.replace("mathdefault", "")) for text in ticks)


def _watch(self: Any, *args: Any, **kwargs: Any) -> Any:
    figure = self.figure
    done = _print(self, *args, **kwargs)
    shown = bool(args) and isinstance(args[0], BytesIO)  # a file is not what the reader sees
    for axes in figure.axes if shown else ():
        if axes.has_data() or axes.collections:
            texts = [axes.xaxis.label, axes.yaxis.label, axes.title, *axes.get_xticklabels(), *axes.get_yticklabels()]
            small = min((text.get_fontsize() for text in texts if text.get_text()), default=99.0)
            named = _named(axes.xaxis, axes) and _named(axes.yaxis, axes)
            labels = [axes.get_xlabel(), axes.get_ylabel()]
            SEEN.append({"labels": labels, "named": named, "small": small, "title": axes.get_title(loc="left")})
    return done


FigureCanvasBase.print_figure = _watch


def report() -> str:
    """Return what was seen, and the CPU seconds of this kernel, as JSON."""
    import time

    return json.dumps({"figures": SEEN, "cpu_s": time.process_time()})
