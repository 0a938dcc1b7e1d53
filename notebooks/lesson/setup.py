"""The first line of a notebook: the project's style for every figure, and how large its experiments are."""

from __future__ import annotations

__all__ = ["VARIABLE", "Size", "start"]

import os
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from tileq_theory.errors import InputError

VARIABLE = "TILEQ_NOTEBOOK_SIZE"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Size:
    """How large the experiments of a notebook are.

    Parameters
    ----------
    name
        "full", what a reader sees, or "smoke", the same cells in seconds.

    Examples
    --------
    >>> Size("smoke")(full=4000, smoke=200)
    200
    """

    name: Literal["full", "smoke"]

    def __call__(self, *, full: _T, smoke: _T) -> _T:
        """Return the value for this size."""
        return full if self.name == "full" else smoke


def start() -> Size:
    """Draw all figures in the project's style and return the size that the environment asks for; "full" if none."""
    from tileq.plots.figure import use_style

    name = os.environ.get(VARIABLE, "full")
    if name != "full" and name != "smoke":
        raise InputError(f"{VARIABLE} is {name!r}; expected 'full' or 'smoke'")
    _show_figures_inline()
    use_style()
    return Size("full" if name == "full" else "smoke")


def _show_figures_inline() -> None:
    """Show every Figure that a cell ends with as a picture, from the first on; nothing outside a kernel."""
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    if shell is not None and hasattr(shell, "kernel"):
        shell.enable_matplotlib("inline")
