"""Opening and saving a figure: the project's style, and files that do not change when the data do not."""

from __future__ import annotations

__all__ = ["DASHES", "FORMATS", "INK", "STYLE", "binds", "check", "in_style", "save", "styled", "use_style"]

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tileq.experiments import writable
from tileq_theory.errors import InputError

# what each writer would stamp into the file, removed: a date or a version would make every file differ
FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"metadata": {"Software": None}},
    ".svg": {"metadata": {"Date": None, "Creator": None}},
    ".pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}
# a constraint has the same dash in every figure
DASHES: dict[str, Any] = {
    "time": "-",
    "slots": "--",
    "memory": "-.",
    "tbt": ":",
    "weights_floor": (0, (5, 1, 1, 1, 1, 1)),
}
_BINDS = {
    "time": "time binds",
    "slots": "slots bind",
    "memory": "KV memory binds",
    "tbt": "TBT limit binds",
    "weights_floor": "reading the weights binds",
}
STYLE = Path(__file__).with_name("tileq.mplstyle")
INK = ("#0b3954", "#c8553d", "#588b8b", "#8f6c9f", "#b08900", "#6b6b6b")


def binds(constraint: str) -> str:
    """Return the constraint as a legend names it: 'time binds'."""
    return _BINDS.get(constraint, f"{constraint} binds")


def check(path: Path) -> Path:
    """Return `path` if a figure can be written to it, else raise `InputError`; done before any long work."""
    if path.is_dir():
        raise InputError(f"plot {path} is a folder; expected the name of a file to write")
    if path.suffix.lower() not in FORMATS:
        ending = repr(path.suffix) if path.suffix else "nothing known"
        raise InputError(f"plot {path} ends in {ending}; expected {', '.join(FORMATS)}")
    return writable("plot", path)


def use_style() -> None:
    """Draw every figure of this process in the project's style: the first line of a notebook."""
    import matplotlib.pyplot as plt

    plt.style.use(str(STYLE))


@contextmanager
def in_style() -> Iterator[Any]:
    """Yield the class `Figure` under the project's style: figures that belong to the caller, without pyplot."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(str(STYLE)):
        yield Figure


@contextmanager
def styled() -> Iterator[Any]:
    """Yield pyplot under the project's style, without a display; figures opened inside are closed at the end."""
    import matplotlib as mpl

    before = mpl.get_backend()
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    known = set(plt.get_fignums())
    try:
        with plt.style.context(str(STYLE)):
            yield plt
    finally:
        for number in set(plt.get_fignums()) - known:
            plt.close(number)
        mpl.use(before)


def save(figure: Any, path: Path) -> None:
    """Write `figure` to `path`; the format follows the ending (.png, .svg or .pdf)."""
    try:
        with in_style():  # what makes the names inside an SVG is part of the style
            figure.savefig(check(path), **FORMATS[path.suffix.lower()])
    except OSError as error:
        raise InputError(f"plot {path} cannot be written: {error.strerror or error}") from None
