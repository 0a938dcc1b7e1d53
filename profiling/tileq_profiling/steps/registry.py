"""All readers of measurements. A format is chosen by its content; the file's name is never looked at.

To add a format: a module with a tuple of readers (`base.ProfileReader`, `RunReader`, `OperatorReader`) and a line
below. The highest score of `sniff` wins.
"""

from __future__ import annotations

__all__ = [
    "operator_reader_names",
    "profile_reader_names",
    "read_operators",
    "read_profile",
    "read_profile_parts",
    "read_run",
    "run_reader_names",
]

import csv
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tileq_profiling.operators import Launch
from tileq_profiling.profile import Profile
from tileq_profiling.steps import (
    aiconfigurator,
    bench_runs,
    burstgpt_run,
    forward_sweep,
    generator_runs,
    llmservingsim_operators,
    llmservingsim_run,
    own_profile,
    sarathi,
    sarathi_tables,
    sequence_runs,
    sglang_log,
    slai_table,
    splitwise_table,
    totals_runs,
    trtllm,
    vidur_operators,
    vllm_iterations,
    vllm_stats,
)
from tileq_profiling.steps.base import OperatorReader, ProfileOptions, ProfileReader, RunOptions, RunReader
from tileq_profiling.steps.compose import whole_model
from tileq_profiling.steps.names import in_catalogue
from tileq_profiling.steps.operators import OperatorTable
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import ProfileReading
from tileq_profiling.steps.run import MeasuredRun
from tileq_profiling.steps.steps_table import MAX_ROWS
from tileq_theory.errors import InputError, near_matches, positive, positive_int
from tileq_theory.hardware import Gpu, Model, load_gpu, load_model

PROFILE_READERS: tuple[ProfileReader, ...] = (
    *own_profile.READERS,
    *vllm_iterations.READERS,
    *vllm_stats.PROFILE_READERS,
    *sglang_log.PROFILE_READERS,
    *trtllm.PROFILE_READERS,
    *sarathi.PROFILE_READERS,
    *sarathi_tables.READERS,
    *slai_table.READERS,
    *splitwise_table.READERS,
    *forward_sweep.READERS,
    *burstgpt_run.PROFILE_READERS,
)
RUN_READERS: tuple[RunReader, ...] = (
    *vllm_stats.RUN_READERS,
    *sglang_log.RUN_READERS,
    *trtllm.RUN_READERS,
    *bench_runs.READERS,
    *generator_runs.READERS,
    *sequence_runs.READERS,
    *totals_runs.READERS,
    *sarathi.RUN_READERS,
    *burstgpt_run.RUN_READERS,
    *llmservingsim_run.READERS,
)
OPERATOR_READERS: tuple[OperatorReader, ...] = (
    *vidur_operators.READERS,
    *llmservingsim_operators.READERS,
    *aiconfigurator.READERS,
)
AnyReader = TypeVar("AnyReader", ProfileReader, RunReader, OperatorReader)
Result = TypeVar("Result")


def profile_reader_names() -> dict[str, str]:
    """Return every format of step times that `read_profile` knows, with one line about each."""
    return {reader.name: reader.summary for reader in PROFILE_READERS}


def run_reader_names() -> dict[str, str]:
    """Return every format of measured runs that `read_run` knows, with one line about each."""
    return {reader.name: reader.summary for reader in RUN_READERS}


def operator_reader_names() -> dict[str, str]:
    """Return every format of operator times that `read_operators` knows, with one line about each."""
    return {reader.name: reader.summary for reader in OPERATOR_READERS}


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
        return _choose(place, format, PROFILE_READERS, "step times", _elsewhere_profile).read(place, options)

    return _guarded(path, read)


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
            raise InputError(f"{path} holds times of single operators: pass model= to put its iterations together")
        return whole_model(table, shape, gpu=device, launch=launch, tp=tp, most_kv_tokens=kv_capacity_tokens)
    reading = read_profile_parts(
        path, format, kv_capacity_tokens=kv_capacity_tokens, prompt_tokens=prompt_tokens, max_rows=max_rows
    )
    return _named(reading.choose(where), shape, device)


def _operators_of(path: str | Path, name: str | None) -> OperatorTable | None:
    """Return the operators of a file that holds them (or is said to); None for any other."""
    if name is not None:
        return read_operators(path, name) if name in operator_reader_names() else None

    def knows(place: Place) -> bool:
        return _knows(place, PROFILE_READERS) is None and _knows(place, OPERATOR_READERS) is not None

    return read_operators(path) if _guarded(path, knows) else None


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
        return _choose(place, format, RUN_READERS, "a measured run", _elsewhere_run).read(place, options)

    return _guarded(path, read)


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
        table = _choose(place, format, OPERATOR_READERS, "operator times", _elsewhere_operators).read(place)
        return replace(table, conditions=in_catalogue(table.conditions))

    return _guarded(path, read)


def _guarded(path: str | Path, read: Callable[[Place], Result]) -> Result:
    try:
        return read(Place(path))
    except UnicodeDecodeError as problem:
        raise InputError(f"{path} is not UTF-8 text ({problem.reason}); save it as UTF-8") from None
    except (EOFError, zlib.error) as problem:
        raise InputError(f"{path} is a damaged gzip file ({problem}); unpack it again or fetch it anew") from None
    except OSError as problem:
        raise InputError(f"{path} cannot be read: {problem.strerror or problem}") from None
    except RecursionError:
        raise InputError(f"{path} is nested too deeply to be a measurement") from None
    except csv.Error as problem:
        raise InputError(f"{path} cannot be read as CSV: {problem}") from None


def _choose(
    place: Place,
    name: str | None,
    readers: Sequence[AnyReader],
    what: str,
    elsewhere: Callable[[Place], str],
) -> AnyReader:
    if name is not None:
        for reader in readers:
            if reader.name == name:
                return reader
        known = [reader.name for reader in readers]
        raise InputError(f"unknown format of {what} {name!r}; {near_matches('formats', name, known)}")
    scores, problems = [], list[Exception]()
    for reader in readers:
        try:
            scores.append((reader.sniff(place), reader))
        except (InputError, UnicodeDecodeError, csv.Error) as problem:
            problems.append(problem)  # broken as this format would be; another may still read it
    best = max((score for score, _ in scores), default=0.0)
    if best <= 0 and problems:
        raise problems[0]
    if best <= 0:
        hint = elsewhere(place)
        all_known = ", ".join(reader.name for reader in readers)
        raise InputError(
            f"{place.name} holds no known form of {what}: {place.shape}; {hint or f'known formats: {all_known}'}"
        )
    return next(reader for score, reader in scores if score == best)


def _knows(place: Place, readers: Sequence[Any]) -> str | None:
    """Return the name of the reader that knows the place best, or None."""
    best: tuple[float, str | None] = (0.0, None)
    for reader in readers:
        try:
            score = reader.sniff(place)
        except (InputError, UnicodeDecodeError, csv.Error):
            continue
        if score > best[0]:
            best = (score, str(reader.name))
    return best[1]


def _elsewhere_profile(place: Place) -> str:
    if name := _knows(place, OPERATOR_READERS):
        return f"it holds times of single operators ({name}): read_operators reads it, and model= puts it together"
    if name := _knows(place, RUN_READERS):
        return f"it is a measured run ({name}) without step times: read_run reads it"
    return ""


def _elsewhere_run(place: Place) -> str:
    if name := _knows(place, PROFILE_READERS):
        return f"it holds step times ({name}): read_profile reads it"
    return ""


def _elsewhere_operators(place: Place) -> str:
    if name := _knows(place, PROFILE_READERS):
        return f"it holds times of whole iterations ({name}): read_profile reads it"
    return ""
