"""Compute what is missing, piece by piece on all cores, then draw and judge."""

from __future__ import annotations

__all__ = ["ItemResult", "Reproduced", "compute", "reproduce"]

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from paper_repro.framework.item import Data, Item, Piece
from paper_repro.framework.origin import origin, sources
from paper_repro.framework.store import Key, Store
from paper_repro.framework.verdict import Row, summary
from paper_repro.registry import item, item_module, item_names
from tileq.plain import plain
from tileq_engine.experiment_parallel import run_tasks
from tileq_theory.errors import InputError, TileqError, positive_int


@dataclass(frozen=True, slots=True)
class ItemResult:
    """One item's data, rows and figure."""

    item: Item
    data: Data
    rows: tuple[Row, ...]
    figure: Path

    @property
    def verdict(self) -> str:
        """How many rows have which verdict, in words."""
        return summary(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the item's part of the document."""
        return {
            "name": self.item.name,
            "paper": self.item.paper,
            "where": self.item.where,
            "claim": self.item.claim,
            "simulated": self.item.simulated,
            "verdict": self.verdict,
            "rows": [row.to_dict() for row in self.rows],
            "figure": str(self.figure),
            "data": str(self.figure.with_suffix(".json")),
            "size": self.data.size,
            "seed": self.data.seed,
            "wall_s": self.data.wall_s,
            "commit": self.data.origin.get("commit", ""),
        }


@dataclass(frozen=True, slots=True)
class Reproduced:
    """What `reproduce` returns: the items in order, the folder they lie in and the report, if one was written."""

    items: tuple[ItemResult, ...]
    folder: Path
    report: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the document of `tileq reproduce --json`."""
        return {
            "schema_version": 1,
            "items": [found.to_dict() for found in self.items],
            "folder": str(self.folder),
            "report": None if self.report is None else str(self.report),
            "wall_s": sum(found.data.wall_s for found in self.items),
            "warnings": [],
        }


def _key(name: str, size: str, seed: int) -> Key:
    return Key(name, size, seed, plain(item(name).settings(size)), sources(item_module(name)))


def _piece(store: Store, task: tuple[Key, Piece]) -> None:
    """Compute one piece and keep it; runs in a worker process."""
    key, piece = task
    begun = time.perf_counter()
    try:
        result = item(key.item).compute(key.settings, piece, key.seed)
    except TileqError as error:
        raise type(error)(f"item {key.item}, piece {dict(piece)}: {error}") from error
    store.write_piece(key, piece, result, time.perf_counter() - begun)


def _pieces(key: Key) -> tuple[Piece, ...]:
    pieces = tuple(plain(p) for p in item(key.item).pieces(key.settings))
    if len({repr(p) for p in pieces}) != len(pieces) or not pieces:
        raise InputError(f"item {key.item}: its pieces must be one or more, no two alike")
    return pieces


def compute(
    names: Sequence[str],
    store: Store,
    *,
    smoke: bool = False,
    seed: int = 0,
    jobs: int | None = None,
    fresh: bool = False,
    progress: bool | None = None,
) -> dict[str, Data]:
    """Return the data of items, computing what the folder does not hold yet; the pieces of all items share the cores.

    Parameters
    ----------
    smoke
        Small settings, for tests.
    jobs
        Worker processes; None: one a CPU; 1: this process.
    fresh
        Compute again what is there.
    progress
        True or False shows or hides the bar; None: on a terminal.
    """
    store.folder.mkdir(parents=True, exist_ok=True)
    keys = {name: _key(name, "smoke" if smoke else "full", seed) for name in names}
    done = {name: None if fresh else store.read_if(key) for name, key in keys.items()}
    todo = [key for name, key in keys.items() if done[name] is None]
    tasks = [(k, p) for k in todo for p in _pieces(k) if fresh or store.read_piece(k, p) is None]
    backend = "serial" if jobs == 1 else "joblib"
    with warnings.catch_warnings():
        # joblib replaces a worker whose memory has grown, and says so; nothing is lost
        warnings.filterwarnings("ignore", message="A worker stopped")
        run_tasks(partial(_piece, store), tasks, backend=backend, workers=jobs, progress=progress, title="pieces")
    return {name: done[name] or _merged(store, keys[name]) for name in names}


def _merged(store: Store, key: Key) -> Data:
    pieces = _pieces(key)
    kept = [store.read_piece(key, piece) for piece in pieces]
    whole = [k for k in kept if k is not None]
    if len(whole) != len(pieces):
        raise InputError(f"item {key.item}: pieces vanished from {store.folder} while it was running; start again")
    data = Data(
        item=key.item,
        size=key.size,
        seed=key.seed,
        settings=key.settings,
        pieces=pieces,
        results=tuple(k["result"] for k in whole),
        wall_s=sum(k["wall_s"] for k in whole),
        origin=origin(item_module(key.item)),
    )
    store.write(key, data)
    return data


def _judged(name: str, data: Data, store: Store) -> ItemResult:
    from tileq.plots.figure import save, styled

    found = item(name)
    path = store.figure_path(name)
    with styled() as plt:
        save(found.plot(data, plt), path)
    return ItemResult(found, data, tuple(found.rows(data)), path)


def _stored(name: str, store: Store) -> Data:
    data = store.read(name)
    if data is None:
        raise InputError(f"{store.data_path(name)} is not there; compute it first (without redraw)")
    return data


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
) -> Reproduced:
    """Reproduce published results: compute, judge, draw.

    Parameters
    ----------
    names
        Items (`item_names`); None: all.
    smoke
        Small settings, seconds in place of minutes.
    folder
        Where data, figures and report go, and from where an earlier run is taken up.
    seed
        Root of all random streams.
    jobs
        Worker processes; None: one a CPU.
    fresh
        Compute again what the folder holds.
    redraw
        Compute nothing: judge and draw the data that are there, whatever computed them.
    report
        Write REPORT.md too.
    progress
        True or False shows or hides the bar; None: on a terminal.

    Raises
    ------
    InputError
        For an unknown item, a folder that is a file or cannot be written, or missing data with `redraw`.
    """
    from paper_repro.framework.report import write_report

    chosen = list(dict.fromkeys(item_names() if names is None else names))
    for name in chosen:
        item_module(name)
    if not chosen:
        raise InputError("no item to reproduce; name one, or ask for all (tileq reproduce --list)")
    if isinstance(seed, bool) or int(seed) != seed or seed < 0:
        raise InputError(f"seed is {seed!r}; expected a whole number that is 0 or more")
    store = Store(Path(folder))
    if store.folder.exists() and not store.folder.is_dir():
        raise InputError(f"{store.folder} is a file; expected a folder for data and figures")
    if redraw:
        found = {name: _stored(name, store) for name in chosen}
        store.require_writable()
    else:
        store.require_writable()
        workers = None if jobs is None else positive_int("jobs", jobs)
        found = compute(chosen, store, smoke=smoke, seed=seed, jobs=workers, fresh=fresh, progress=progress)
    results = tuple(_judged(name, found[name], store) for name in chosen)
    written = write_report(results, store.report_path) if report else None
    return Reproduced(results, store.folder, written)
