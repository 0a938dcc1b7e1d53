"""Which reader a file needs, and the errors when there is none. The file's name is never looked at."""

from __future__ import annotations

__all__ = ["choose", "elsewhere_operators", "elsewhere_profile", "elsewhere_run", "guarded", "knows"]

import csv
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tileq_profiling.steps.base import OperatorReader, ProfileReader, RunReader
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.registry import OPERATOR_READERS, PROFILE_READERS, RUN_READERS
from tileq_theory.errors import InputError, near_matches

AnyReader = TypeVar("AnyReader", ProfileReader, RunReader, OperatorReader)
Result = TypeVar("Result")


def guarded(path: str | Path, read: Callable[[Place], Result]) -> Result:
    """Return what `read` makes of a place; what cannot be opened or decoded is an `InputError`."""
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


def choose(
    place: Place,
    name: str | None,
    readers: Sequence[AnyReader],
    what: str,
    elsewhere: Callable[[Place], str],
) -> AnyReader:
    """Return the reader of that name, or the one that the content fits best."""
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


def knows(place: Place, readers: Sequence[Any]) -> str | None:
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


def elsewhere_profile(place: Place) -> str:
    """Return where to go with a place that holds no step times but something else that is known; "" for nothing."""
    if name := knows(place, OPERATOR_READERS):
        return f"it holds times of single operators ({name}): read_operators reads it, and model= puts it together"
    if name := knows(place, RUN_READERS):
        return f"it is a measured run ({name}) without step times: read_run reads it"
    return ""


def elsewhere_run(place: Place) -> str:
    """Return where to go with a place that holds no a measured run but something else that is known; "" for nothing."""
    if name := knows(place, PROFILE_READERS):
        return f"it holds step times ({name}): read_profile reads it"
    return ""


def elsewhere_operators(place: Place) -> str:
    """Return where to go with a place that holds no operator times but something else that is known; "" for nothing."""
    if name := knows(place, PROFILE_READERS):
        return f"it holds times of whole iterations ({name}): read_profile reads it"
    return ""
