"""Judging an answer: right, not yet with a hint, or not given; nothing a reader types raises."""

from __future__ import annotations

__all__ = ["Verdict", "about", "exactly", "given", "number"]

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from numbers import Real
from typing import Any


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """What a check says of an answer.

    Parameters
    ----------
    right
        True, False, or None where no answer was given.
    text
        One or two sentences.
    """

    right: bool | None
    text: str

    def __repr__(self) -> str:
        return f"{'Right' if self.right else 'Not yet' if self.right is False else 'No answer yet'}: {self.text}"


def given(answer: Any) -> Verdict | None:
    """Return the verdict on an answer that is still the dots of the exercise, else None."""
    if answer is Ellipsis or answer is None:
        return Verdict(None, "put your answer in place of the dots and run the cell again.")
    return None


def number(answer: Any) -> float | None:
    """Return the answer as a finite number, or None where it is none (a truth value is none)."""
    if isinstance(answer, bool) or not (isinstance(answer, Real) or hasattr(answer, "__float__")):
        return None
    try:
        value = float(answer)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def about(
    answer: Any, truth: Callable[[], float], *, rel: float, why: str, hint: str, traps: dict[str, Callable[[], float]]
) -> Verdict:
    """Judge a number: right within `rel` of the truth.

    Parameters
    ----------
    truth
        Computes the right answer, only when one was given.
    rel
        Relative distance that still counts as right.
    why, hint
        What to say of a right and of a wrong answer.
    traps
        What to say of a known wrong turn -> the number it leads to.
    """
    missing = given(answer)
    if missing is not None:
        return missing
    value = number(answer)
    if value is None:
        return Verdict(False, f"{answer!r} is no number.")
    if math.isclose(value, truth(), rel_tol=rel):
        return Verdict(True, why)
    for said, wrong in traps.items():
        if math.isclose(value, wrong(), rel_tol=rel):
            return Verdict(False, said)
    return Verdict(False, hint)


def exactly(answer: Any, truth: Callable[[], Hashable], *, why: str, hint: str) -> Verdict:
    """Judge a name, a whole number or a tuple of them: right only if equal; words whatever their case."""
    missing = given(answer)
    if missing is not None:
        return missing
    return Verdict(True, why) if _plain(answer) == _plain(truth()) else Verdict(False, hint)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.strip().casefold()
    if isinstance(value, (list, tuple)):
        return tuple(_plain(part) for part in value)
    as_number = number(value)
    return repr(value) if as_number is None else as_number
