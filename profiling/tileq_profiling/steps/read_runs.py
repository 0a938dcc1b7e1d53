"""All measured runs of a file or a folder, for fits that want several rates."""

from __future__ import annotations

__all__ = ["holds_runs_only", "read_runs"]

from dataclasses import replace
from pathlib import Path

from tileq_profiling.steps.base import RunOptions
from tileq_profiling.steps.choosing import choose, elsewhere_run, guarded, knows
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.registry import (
    OPERATOR_READERS,
    PROFILE_READERS,
    RUN_READERS,
    operator_reader_names,
    profile_reader_names,
    run_reader_names,
)
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

_MOST_FILES = 200


def holds_runs_only(path: str | Path, format: str | None = None) -> bool:  # noqa: A002 - the word users look for
    """Return whether the place holds measured runs with their latencies, and no step times or operator times."""
    if format is not None:
        return format in run_reader_names() and format not in {*profile_reader_names(), *operator_reader_names()}

    def look(place: Place) -> bool:
        if knows(place, PROFILE_READERS) or knows(place, OPERATOR_READERS):
            return False
        return knows(place, RUN_READERS) is not None or (place.is_folder and bool(_inside(Path(path))))

    return guarded(path, look)


def read_runs(
    path: str | Path,
    format: str | None = None,  # noqa: A002
    *,
    run: int | None = None,
    chars_per_token: float | None = None,
) -> tuple[MeasuredRun, ...]:
    """Return every run of a file (a sweep has several), or of all files of a folder that hold one.

    Parameters
    ----------
    path, format, run, chars_per_token
        As in `read_run`; with `run` only that one.

    Raises
    ------
    InputError
        As in `read_run`; a folder with no run in it.
    """

    def read(place: Place) -> tuple[MeasuredRun, ...]:
        if place.is_folder and format is None and knows(place, RUN_READERS) is None:
            files = _inside(Path(path))
            if not files:
                raise InputError(f"{path}: no file of this folder holds a measured run")
            return _of_folder(files, run, chars_per_token)
        reader = choose(place, format, RUN_READERS, "a measured run", elsewhere_run)
        count = reader.count(place) if reader.count is not None else 1
        chosen = range(1, count + 1) if run is None and count > 1 else (run,)
        return tuple(reader.read(place, RunOptions(one, chars_per_token)) for one in chosen)

    return guarded(path, read)


def _of_folder(files: list[Path], run: int | None, chars_per_token: float | None) -> tuple[MeasuredRun, ...]:
    """Return the runs of all files; those without a served request are named in the first run's warnings."""
    found, left = list[MeasuredRun](), list[InputError]()
    for file in files:
        try:
            found += read_runs(file, run=run, chars_per_token=chars_per_token)
        except InputError as problem:
            left.append(problem)
    if not found:
        raise left[0]
    told = tuple(f"left out: {problem}" for problem in left)
    return (replace(found[0], warnings=(*found[0].warnings, *told)), *found[1:])


def _inside(folder: Path) -> list[Path]:
    """Return the files of a folder that hold runs and no step times."""
    files = sorted(item for item in folder.iterdir() if item.is_file() and not item.name.startswith("."))
    if len(files) > _MOST_FILES:
        raise InputError(f"{folder} has {len(files)} files; expected at most {_MOST_FILES} results of one engine")
    found = []
    for file in files:
        try:
            if holds_runs_only(file):
                found.append(file)
        except InputError:
            continue  # broken, or of another kind: not a run's file
    return found
