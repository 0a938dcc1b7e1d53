"""`tileq reproduce`: the published results, in the folder `paper_repro`, which stands above this package.

It is looked up by name when asked for: nothing of the library depends on the reproductions.
"""

from __future__ import annotations

__all__ = ["reproduce", "reproductions"]

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from tileq_theory.errors import InputError


def _reproductions() -> Any:
    try:
        return import_module("paper_repro")
    except ModuleNotFoundError as error:
        if error.name != "paper_repro":
            raise
        raise InputError("the package paper_repro is not installed; install tileq from its repository") from None


def reproductions() -> list[dict[str, str]]:
    """Return name, source and claim of every item."""
    folder = _reproductions()
    items = [folder.item(name) for name in folder.item_names()]
    return [{"name": i.name, "paper": i.paper, "where": i.where, "claim": i.claim} for i in items]


def reproduce(
    names: Iterable[str] | None = None,
    *,
    smoke: bool = False,
    folder: str | Path = "reproduced",
    seed: int = 0,
    jobs: int | None = None,
    fresh: bool = False,
    redraw: bool = False,
    report: bool = False,
    progress: bool | None = None,
) -> Any:
    """Reproduce published results by name (None: all); see `paper_repro.framework.run.reproduce`.

    Returns
    -------
    Reproduced
        Items with data, rows, verdict and figure; `to_dict()` is the document of the command.
    """
    return _reproductions().reproduce(
        names,
        smoke=smoke,
        folder=folder,
        seed=seed,
        jobs=jobs,
        fresh=fresh,
        redraw=redraw,
        report=report,
        progress=progress,
    )
