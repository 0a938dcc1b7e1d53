"""Showing an analysis: its picture, its document, or its sections."""

from __future__ import annotations

__all__ = ["present"]

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tileq.cli.show import show
from tileq.cli.text import facts, title

if TYPE_CHECKING:
    from rich.console import Console

    from tileq.analysis import Analysis


def present(make: Callable[[], Analysis], *, plot: Path | None, json: bool) -> None:
    """Make the analysis, draw it where asked, and print it."""
    from tileq.plots import figure

    if plot is not None:
        figure.check(plot)
    answer = make()
    if plot is not None:
        answer.plot(plot)
    show(answer.to_dict(), lambda console: _render(answer, console), as_json=json)


def _render(answer: Analysis, console: Console) -> None:
    console.print(answer.headline, markup=False, style="bold")
    for name, rows in answer.sections:
        title(console, name)
        facts(console, rows)
