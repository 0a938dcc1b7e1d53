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
    "choice",
    "finite",
    "instance",
    "near_matches",
    "no_such_file",
    "nonnegative",
    "nonnegative_int",
    "positive",
    "positive_int",
    "row_of_numbers",
    "sequence",
]

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class TileqError(Exception):
    """Base of every error that Tileq raises on purpose; its message is one line, whatever was given."""

    def __init__(self, *told: object) -> None:
        super().__init__(*(" ".join(t.split()) if isinstance(t, str) and "\n" in t else t for t in told))


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


def positive_int(name: str, value: float, most: float = _LARGEST) -> int:
    """Return `value` as an int if it is a whole number from 1 to `most`, else raise `InputError`."""
    number = finite(name, value)
    if number < 1 or number != int(number):
        raise InputError(f"{name} is {value!r}; expected a whole number that is 1 or more")
    if number > most:
        raise InputError(f"{name} is {value!r}; expected at most {'2^62' if most == _LARGEST else f'{most:g}'}")
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


def choice(name: str, value: object, known: Sequence[str]) -> str:
    """Return `value` if it is one of the known words, else raise `InputError` that lists or suggests them.

    Examples
    --------
    >>> choice("role", "both", ("both", "decode"))
    'both'
    """
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} is {value!r}; expected one of {', '.join(known)}")
    return value


def sequence(name: str, value: Any, of: str) -> tuple[Any, ...]:
    """Return the items of a list, tuple or array; a text, a mapping or a lone value raises `InputError`.

    Examples
    --------
    >>> sequence("nodes", [1, 2], "nodes")
    (1, 2)
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"{name} is {value!r}; expected a sequence of {of}")
    items: list[Any] = getattr(value, "tolist", lambda: list(value))()
    return tuple(items)


def row_of_numbers(name: str, values: Any, *, whole: bool = False) -> Any:
    """Return the values as one row of floats (of int64 if `whole`); anything else raises `InputError`.

    Examples
    --------
    >>> row_of_numbers("rates", [1, 2.5]).tolist()
    [1.0, 2.5]
    """
    import numpy as np

    try:
        array = np.asarray(values)
        if array.ndim != 1 or (array.size and array.dtype.kind not in ("iu" if whole else "iufO")):
            raise TypeError
        return array.astype(np.int64 if whole else float)
    except (TypeError, ValueError):
        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{name} is {values!r}; expected one row of {kind}") from None


def no_such_file(path: object, expected: str = "the path of a file") -> InputError:
    """Return the one error that every reader raises for a file that is not there.

    Examples
    --------
    >>> print(no_such_file("trace.csv", "a trace"))
    trace.csv: no such file; expected a trace
    """
    return InputError(f"{path}: no such file; expected {expected}")


def near_matches(kind: str, given: object, known: Iterable[str]) -> str:
    """Return the end of an 'unknown name' message: the nearest known names, or all of them when few."""
    names = sorted(known)
    near = difflib.get_close_matches(str(given).lower(), [n.lower() for n in names], n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"known {kind}: {', '.join(names)}"
