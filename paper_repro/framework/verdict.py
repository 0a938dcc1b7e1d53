"""Rows: a published value, ours, and one of three verdicts, with the reason where it is not "reproduced".

* `digits`: a number without chance in it; reproduced when it rounds to the printed digits.
* `within`: an estimate; reproduced when the printed number, as far as its digits tell, lies in the interval.
* `claim`: a statement without a number; reproduced when it holds.
* `shape`: a number that cannot come out exactly here; the direction or order is held against the source instead.
"""

from __future__ import annotations

__all__ = ["NOT_REPRODUCED", "REPRODUCED", "SHAPE_ONLY", "Row", "claim", "digits", "shape", "summary", "within"]

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tileq_engine.intervals import Interval
from tileq_theory.errors import InputError

REPRODUCED, SHAPE_ONLY, NOT_REPRODUCED = "reproduced", "shape only", "not reproduced"
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity: the published value and ours as texts, the numbers behind ours, the verdict and its reason."""

    quantity: str
    published: str
    ours: str
    verdict: str
    reason: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None

    def __post_init__(self) -> None:
        if self.verdict not in (REPRODUCED, SHAPE_ONLY, NOT_REPRODUCED):
            raise InputError(f"verdict is {self.verdict!r}; expected one of the three")

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return asdict(self)


def _decimals(printed: str) -> int:
    return len(printed.replace(",", "").partition(".")[2])


def _number(quantity: str, printed: str) -> tuple[float, float, str]:
    """Return value, half of the last printed digit and unit of a printed number such as '153.16 ms' or '-53 %'."""
    text, _, unit = printed.strip().partition(" ")
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        raise InputError(f"{quantity}: published {printed!r} does not begin with a number") from None
    return value, 0.5 * 10.0 ** -_decimals(text), f" {unit}" if unit else ""


def digits(quantity: str, published: str, ours: float, *, reason: str = "", also: str = "") -> Row:
    """Hold a number without chance in it against the printed digits.

    Parameters
    ----------
    published
        As printed, a unit after a blank; the last digit says how exact it is.
    ours
        In the same unit.
    reason
        Why it does not come out, if it does not.
    also
        A remark where it does.

    Examples
    --------
    >>> digits("t(512)", "153.16 ms", 153.1600001).verdict
    'reproduced'
    """
    value, half, unit = _number(quantity, published)
    good = abs(ours - value) <= half * (1 + _SLACK) + _SLACK * abs(value)
    text = published.split()[0]
    shown = f"{ours:,.{_decimals(text) + (0 if good else 1)}f}{unit}" if math.isfinite(ours) else str(ours)
    if "," not in text:
        shown = shown.replace(",", "")
    verdict = REPRODUCED if good else NOT_REPRODUCED
    return Row(quantity, published, shown, verdict, also if good else reason, value=float(ours))


def within(
    quantity: str,
    published: str,
    ours: Interval,
    *,
    reason: str = "",
    close: float | None = None,
    tell: float = 0.5,
) -> Row:
    """Hold an interval against a printed number, of which the last digit is rounded.

    Parameters
    ----------
    reason
        Why it does not come out, if it does not.
    close
        Relative distance up to which a miss is "shape only"; None: a miss is "not reproduced".
    tell
        Half-width, relative to the published number, beyond which an interval that holds it says nothing.

    Examples
    --------
    >>> from tileq_engine.intervals import student_interval
    >>> within("mean", "2.1", student_interval([1.9, 2.0, 2.2])).ours
    '2.033 [1.654, 2.413] (95 %)'
    """
    value, half, unit = _number(quantity, published)
    inside = ours.low - half <= value <= ours.high + half
    wide = inside and not ours.half_width <= tell * abs(value) + half
    good = inside and not wide
    reason = "the interval is too wide to tell: more replications" if wide else reason
    near = not wide and close is not None and abs(ours.estimate - value) <= close * abs(value)
    verdict = REPRODUCED if good else SHAPE_ONLY if near else NOT_REPRODUCED
    places = _places(ours)
    shown = f"{ours.estimate:.{places}f} [{ours.low:.{places}f}, {ours.high:.{places}f}]{unit} ({ours.level:.4g} %)"
    shown = shown.replace(f"({ours.level:.4g} %)", f"({100 * ours.level:.4g} %)")
    return Row(
        quantity,
        published,
        shown,
        verdict,
        "" if good else reason,
        value=ours.estimate,
        low=ours.low,
        high=ours.high,
        level=ours.level,
    )


def _places(interval: Interval) -> int:
    """Return as many decimals as show the interval's width with three digits, none below the unit."""
    width = interval.half_width
    if not math.isfinite(width) or width <= 0:
        return 4
    return max(0, 2 - math.floor(math.log10(width)))


def claim(quantity: str, published: str, holds: bool | np.bool_, ours: str, *, reason: str = "") -> Row:
    """Hold a statement: `published` says it, `ours` shows what was seen."""
    verdict = REPRODUCED if holds else NOT_REPRODUCED
    return Row(quantity, published, ours, verdict, "" if holds else reason)


def shape(quantity: str, published: str, holds: bool | np.bool_, ours: str, *, reason: str) -> Row:
    """Hold only the direction or order of a published number; `reason` says why the number itself is out of reach."""
    return Row(quantity, published, ours, SHAPE_ONLY if holds else NOT_REPRODUCED, reason)


def summary(rows: Iterable[Row]) -> str:
    """Return the verdicts of an item in words: how many rows have each.

    Examples
    --------
    >>> summary([digits("a", "1.0", 1.0), digits("b", "2.0", 3.0, reason="because")])
    '1 reproduced, 1 not reproduced'
    """
    counts = Counter(row.verdict for row in rows)
    if set(counts) == {REPRODUCED}:
        return REPRODUCED
    return ", ".join(f"{counts[v]} {v}" for v in (REPRODUCED, SHAPE_ONLY, NOT_REPRODUCED) if counts[v])
