"""The library's own exceptions: what was given, what was expected, what to do.

`InputError` is the user's to mend (the command exits with 2); `SolveError` is a solver that stopped
without an answer (the command exits with 1). Both are one line long.
"""

from __future__ import annotations

__all__ = [
    "InputError",
    "SolveError",
    "TileqError",
    "boolean",
    "finite",
    "instance",
    "near_matches",
    "nonnegative",
    "nonnegative_int",
    "positive",
    "positive_int",
]

import difflib
import math
from collections.abc import Iterable


class TileqError(Exception):
    """Base of every error that Tileq raises on purpose."""


class InputError(TileqError, ValueError):
    """What was given cannot be used; the message names it, what was expected and what to do."""


class SolveError(TileqError, RuntimeError):
    """A solver ended without an answer; the message carries its status and the remedy."""


_LARGEST = 2.0**62  # what the kernels' whole numbers hold, with room to add two of them


def _truth(value: object) -> bool:
    """Return whether `value` is a truth value, Python's or numpy's."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def boolean(name: str, value: object) -> bool:
    """Return `value` as a bool if it is one (Python's or numpy's), else raise `InputError`; 1 is no truth value.

    Examples
    --------
    >>> boolean("chunks", True)
    True
    """
    if not _truth(value):
        raise InputError(f"{name} is {value!r}; expected true or false")
    return bool(value)


def finite(name: str, value: float) -> float:
    """Return `value` as a float if it is a finite number, else raise `InputError` naming it."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} is {value!r}; expected a number") from None
    except OverflowError:
        number = math.inf
    if _truth(value) or not math.isfinite(number):
        raise InputError(f"{name} is {value!r}; expected a finite number")
    return number


def nonnegative(name: str, value: float) -> float:
    """Return `value` as a float if it is finite and at least 0, else raise `InputError`."""
    number = finite(name, value)
    if number < 0:
        raise InputError(f"{name} is {value!r}; expected a number that is 0 or more")
    return number


def positive(name: str, value: float) -> float:
    """Return `value` as a float if it is finite and above 0, else raise `InputError`."""
    number = finite(name, value)
    if number <= 0:
        raise InputError(f"{name} is {value!r}; expected a number above 0")
    return number


def positive_int(name: str, value: float) -> int:
    """Return `value` as an int if it is a whole number of at least 1, else raise `InputError`."""
    number = finite(name, value)
    if number < 1 or number != int(number):
        raise InputError(f"{name} is {value!r}; expected a whole number that is 1 or more")
    if number > _LARGEST:
        raise InputError(f"{name} is {value!r}; expected at most 2^62")
    return int(value)


def instance(name: str, value: object, kind: type) -> None:
    """Refuse `value` unless it is of that kind, naming it."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is {value!r}; expected an object of {kind.__name__}")


def nonnegative_int(name: str, value: float) -> int:
    """Return `value` as an int if it is a whole number of at least 0, else raise `InputError`."""
    number = finite(name, value)
    if number < 0 or number != int(number):
        raise InputError(f"{name} is {value!r}; expected a whole number that is 0 or more")
    return int(value)


def near_matches(kind: str, given: object, known: Iterable[str]) -> str:
    """Return the end of an 'unknown name' message: the nearest known names, or all of them when few."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given).lower(), [n.lower() for n in names], n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known {kind}: {', '.join(names)}"
