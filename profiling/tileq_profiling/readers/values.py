"""Text and JSON values to numbers: whole tokens and times, exact or refused."""

from __future__ import annotations

__all__ = ["MAX_TOKENS", "BadValueError", "as_time", "as_whole", "parse_time", "parse_whole"]

import math
import re
from decimal import Decimal
from typing import Any

# Squares and sums of lengths stay exact in 64 bits below this; no model's context comes near it.
MAX_TOKENS = 10**9
MAX_TIME = 1 << 63

WHOLE = f"expected a whole number of 1 or more (at most {MAX_TOKENS})"
TIME = "expected a finite number that is 0 or more"
_DECIMAL = re.compile(r"-?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?")


class BadValueError(ValueError):
    """A value that is not what its field needs; the message says what was expected."""


def parse_whole(text: str) -> int:
    """Return the whole number written in `text` (12, 12.0, 1.2e1); raise `BadValueError` for anything else."""
    if not _DECIMAL.fullmatch(text):
        raise BadValueError(WHOLE)
    number = Decimal(text)
    if not 0 <= number <= MAX_TOKENS or number != number.to_integral_value():
        raise BadValueError(WHOLE)
    return int(number)


def parse_time(text: str) -> int | float:
    """Return the time written in `text`, as an int where it is one; raise `BadValueError` otherwise."""
    if not _DECIMAL.fullmatch(text):
        raise BadValueError(TIME)
    return as_time(int(text) if text.isdigit() else float(text))


def as_whole(value: Any) -> int:
    """Return a JSON number as a whole number of tokens; raise `BadValueError` for anything else."""
    if type(value) is int:
        whole = value
    elif type(value) is float and value.is_integer():
        whole = int(value)
    else:
        raise BadValueError(WHOLE)
    if not 0 <= whole <= MAX_TOKENS:
        raise BadValueError(WHOLE)
    return whole


def as_time(value: Any) -> int | float:
    """Return a JSON number as a time; raise `BadValueError` for anything else."""
    if type(value) not in (int, float) or not 0 <= value < MAX_TIME or not math.isfinite(value):
        raise BadValueError(TIME)
    number: int | float = value
    return number
