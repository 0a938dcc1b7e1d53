"""The look of every figure of the project, in one file: `tileq.mplstyle` beside this one.

Lines differ by dash and marker and areas by hatch, so that a grey print reads as well; text is large enough where a
figure of 7 inches is as wide as the column of a README.

    with in_style():
        figure = Figure()
"""

from __future__ import annotations

__all__ = ["INK", "STYLE", "in_style"]

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STYLE = Path(__file__).with_name("tileq.mplstyle")
INK = ("#0b3954", "#c8553d", "#588b8b", "#8f6c9f", "#b08900", "#6b6b6b")


@contextmanager
def in_style() -> Iterator[None]:
    """Apply the style for as long as the block runs; to be open both where a figure is made and where it is written.

    Examples
    --------
    >>> import matplotlib as mpl
    >>> with in_style():
    ...     mpl.rcParams["svg.hashsalt"]
    'tileq'
    """
    from matplotlib import style

    with style.context(str(STYLE)):
        yield
