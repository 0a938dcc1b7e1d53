"""Many points at once: joblib (or another of its backends by name) and a progress bar on stderr."""

from __future__ import annotations

__all__ = ["BACKENDS", "run_tasks"]

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tileq_theory.errors import InputError, near_matches

Item = TypeVar("Item")
Result = TypeVar("Result")
BACKENDS = {"joblib": "loky", "processes": "loky", "threads": "threading"}
_CLUSTERS = ("dask", "ray")  # how many work at once is the cluster's to say, not this machine's
_EXTERNAL = (*_CLUSTERS, "multiprocessing", "loky", "threading")


@contextmanager
def _progress(title: str, total: int, shown: bool | None) -> Iterator[Callable[[], None]]:
    """Yield a function to call once a finished task; draws on stderr, and only on a terminal unless told otherwise."""
    visible = sys.stderr.isatty() if shown is None else shown
    if not visible or total < 2:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda: bar.advance(task)


def _joblib_backend(name: str) -> str:
    if name in BACKENDS:
        return BACKENDS[name]
    if name in _EXTERNAL:
        if name in _CLUSTERS:
            _set_up(name)
        return name
    known = ("serial", *BACKENDS, *_EXTERNAL)
    raise InputError(f"unknown backend {name!r}; {near_matches('backends', name, known)}")


def _set_up(name: str) -> None:
    """Make joblib know a backend of several machines; each missing piece is one line."""
    if name == "ray":
        try:
            from ray.util.joblib import register_ray  # type: ignore[import-not-found]
        except ImportError:
            raise InputError("backend 'ray' needs the package ray; install it or use 'joblib'") from None
        register_ray()
        return
    try:
        from distributed import get_client  # type: ignore[import-not-found]
    except ImportError:
        raise InputError("backend 'dask' needs the package distributed; install it or use 'joblib'") from None
    try:
        get_client()
    except ValueError:
        raise InputError("backend 'dask' found no client; make a dask.distributed.Client(...) first") from None


def run_tasks(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    backend: str = "joblib",
    workers: int | None = None,
    progress: bool | None = None,
    title: str = "runs",
) -> list[Result]:
    """Return [function(item) for item in items], computed in parallel; the first failure ends it.

    Parameters
    ----------
    backend
        "serial", "threads" (best for compiled code that releases the interpreter), "processes" or "joblib" (joblib's
        process pool), or a backend of joblib by its own name ("dask" and "ray" when installed and set up).
    workers
        Parallel workers; None: as many as CPUs this process may use, or all the workers of a Dask or Ray cluster.
    progress
        True or False shows or hides the bar; None shows it on a terminal.
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers!r}; expected 1 or more")
    with _progress(title, len(items), progress) as done:
        if backend == "serial" or len(items) < 2:
            return [_after(function(item), done) for item in items]
        import joblib

        chosen = _joblib_backend(backend)
        tasks = [joblib.delayed(_numbered)(function, place, item) for place, item in enumerate(items)]
        found: dict[int, Any] = {}
        with joblib.parallel_config(backend=chosen):
            for place, result in _unordered(joblib, _jobs(workers, backend, len(items)))(tasks):
                found[place] = result
                done()
        return [found[place] for place in range(len(items))]


def _jobs(workers: int | None, backend: str, tasks: int) -> int:
    """Return what joblib is asked for: -1 leaves the number to a cluster, which this machine cannot know."""
    if workers is None and backend in _CLUSTERS:
        return -1
    return min(workers or _cpus(), tasks)


def _cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _after(result: Result, done: Callable[[], None]) -> Result:
    done()
    return result


def _numbered(function: Callable[[Any], Any], place: int, item: Any) -> tuple[int, Any]:
    return place, function(item)


def _unordered(joblib: Any, workers: int) -> Any:
    """Return a pool that hands results over as they finish, or all at the end where the backend cannot."""
    try:
        return joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
    except ValueError:
        return joblib.Parallel(n_jobs=workers)
