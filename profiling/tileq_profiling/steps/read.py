"""Read step times, measured runs and operator times from whatever a tool left on disk."""

from __future__ import annotations

__all__ = ["read_operators", "read_profile", "read_profile_parts", "read_run"]

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tileq_profiling.operators import Launch
from tileq_profiling.profile import Profile
from tileq_profiling.steps.base import ProfileOptions, RunOptions
from tileq_profiling.steps.choosing import (
    choose,
    elsewhere_operators,
    elsewhere_profile,
    elsewhere_run,
    guarded,
    knows,
)
from tileq_profiling.steps.compose import whole_model
from tileq_profiling.steps.names import in_catalogue
from tileq_profiling.steps.operators import OperatorTable
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import ProfileReading
from tileq_profiling.steps.registry import (
    OPERATOR_READERS,
    PROFILE_READERS,
    RUN_READERS,
    operator_reader_names,
)
from tileq_profiling.steps.run import MeasuredRun
from tileq_profiling.steps.steps_table import MAX_ROWS
from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.hardware import Gpu, Model, load_gpu, load_model


def read_profile_parts(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - the word users look for
    *,
    kv_capacity_tokens: float | None = None,
    prompt_tokens: int | None = None,
    max_rows: int = MAX_ROWS,
) -> ProfileReading:
    """Return the step times of a file part by part (one part an engine or a condition); see `read_profile`."""
    options = ProfileOptions(
        None if kv_capacity_tokens is None else positive("kv_capacity_tokens", kv_capacity_tokens),
        None if prompt_tokens is None else positive_int("prompt_tokens", prompt_tokens),
        positive_int("max_rows", max_rows),
    )

    def read(place: Place) -> ProfileReading:
        return choose(place, format, PROFILE_READERS, "step times", elsewhere_profile).read(place, options)

    return guarded(path, read)


def read_profile(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - the word users look for
    *,
    where: Mapping[str, str] | None = None,
    model: Model | str | None = None,
    gpu: Gpu | str | None = None,
    launch: Launch | None = None,
    tp: int = 1,
    kv_capacity_tokens: float | None = None,
    prompt_tokens: int | None = None,
    max_rows: int = MAX_ROWS,
) -> Profile:
    """Return the iteration times in a log, a table or the folder of a run, whatever tool wrote it.

    Parameters
    ----------
    path
        A text file, plain or gzip, or a folder.
    format
        Name in `profile_reader_names()`; chosen by looking at the content when None.
    where
        Which engine or condition to read, where the file holds several: {"engine": "0"}, {"hardware": "h100-80gb"}.
        Engines of one log are read together when it is None; different conditions never are.
    model, gpu
        For profiles of operators: the model to put together (needed), and the device whose bandwidth prices kernels
        that the table lacks. Elsewhere they name the conditions of a file that does not tell them.
    launch, tp
        For profiles of operators: launch and host time to add, and the tensor-parallel degree to take.
    kv_capacity_tokens
        Size of the KV cache, for logs that give its usage as a share and not its size; for profiles of operators the
        largest KV that a batch may hold.
    prompt_tokens
        Length of the lone prompt, for tables of chunked prefill that do not say it (SLAI: 2048).
    max_rows
        Iterations to keep of a long log; beyond it they are drawn at random, and the conditions' notes say so.

    Returns
    -------
    Profile
        What was left out, with counts, and what to know before relying on the numbers is in its `conditions.notes`.

    Raises
    ------
    InputError
        The file cannot be read, is of no known format, or has a value that is not right (row and field are named).
    """
    shape = load_model(model) if isinstance(model, str) else model
    device = load_gpu(gpu) if isinstance(gpu, str) else gpu
    table = _operators_of(path, format)
    if table is not None:
        if shape is None:
            raise InputError(
                f"{path} holds times of single operators: give the model (model=, --model) to make iterations of"
            )
        return whole_model(table, shape, gpu=device, launch=launch, tp=tp, most_kv_tokens=kv_capacity_tokens)
    reading = read_profile_parts(
        path, format, kv_capacity_tokens=kv_capacity_tokens, prompt_tokens=prompt_tokens, max_rows=max_rows
    )
    return _named(reading.choose(where), shape, device)


def _operators_of(path: str | Path, name: str | None) -> OperatorTable | None:
    """Return the operators of a file that holds them (or is said to); None for any other."""
    if name is not None:
        return read_operators(path, name) if name in operator_reader_names() else None

    def holds(place: Place) -> bool:
        return knows(place, PROFILE_READERS) is None and knows(place, OPERATOR_READERS) is not None

    return read_operators(path) if guarded(path, holds) else None


def _named(profile: Profile, model: Model | None, gpu: Gpu | None) -> Profile:
    """Return the profile with the conditions that the caller knows and the file did not tell."""
    told = profile.conditions
    named = replace(told, model=model.name if model and not told.model else told.model)
    return profile.with_(conditions=replace(named, device=gpu.name if gpu and not told.device else told.device))


def read_run(
    path: str | Path,
    format: str | None = None,  # noqa: A002 - the word users look for
    *,
    run: int | None = None,
    chars_per_token: float | None = None,
) -> MeasuredRun:
    """Return what a measured run recorded: its requests with their latencies, its paths over time, its totals.

    Parameters
    ----------
    path
        A text file, plain or gzip, or the folder of a run.
    format
        Name in `run_reader_names()`; chosen by looking at the content when None.
    run
        Which run, from 1, of a file that holds several.
    chars_per_token
        For files whose output length is in characters (BurstGPT replays).

    Raises
    ------
    InputError
        The file cannot be read, is of no known format, or has a value that is not right (row and field are named).
    """
    options = RunOptions(run, chars_per_token)

    def read(place: Place) -> MeasuredRun:
        return choose(place, format, RUN_READERS, "a measured run", elsewhere_run).read(place, options)

    return guarded(path, read)


def read_operators(path: str | Path, format: str | None = None) -> OperatorTable:  # noqa: A002
    """Return the times of single operators (Vidur, LLMServingSim, aiconfigurator), in seconds.

    Parameters
    ----------
    path
        A CSV or Parquet file, or the folder that holds them.
    format
        Name in `operator_reader_names()`; chosen by looking at the content when None.
    """

    def read(place: Place) -> OperatorTable:
        table = choose(place, format, OPERATOR_READERS, "operator times", elsewhere_operators).read(place)
        return replace(table, conditions=in_catalogue(table.conditions))

    return guarded(path, read)
