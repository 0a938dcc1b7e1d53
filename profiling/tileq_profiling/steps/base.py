"""The contract of readers of measurements: a name, a line about it, a look at the content, and the reading itself."""

from __future__ import annotations

__all__ = ["OperatorReader", "ProfileOptions", "ProfileReader", "RunOptions", "RunReader", "first_keys", "header_has"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import ProfileReading
from tileq_profiling.steps.steps_table import MAX_ROWS

if TYPE_CHECKING:
    from tileq_profiling.steps.operators import OperatorTable
    from tileq_profiling.steps.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What a caller may say beside the path of step times."""

    kv_capacity_tokens: float | None = None
    prompt_tokens: int | None = None
    max_rows: int = MAX_ROWS


@dataclass(frozen=True, slots=True)
class ProfileReader:
    """One format of step times; `sniff` scores how surely the place holds it, 0 for no."""

    name: str
    summary: str
    sniff: Callable[[Place], float]
    read: Callable[[Place, ProfileOptions], ProfileReading]
    reads: bool = True


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a caller may say beside the path of a measured run."""

    run: int | None = None
    chars_per_token: float | None = None


@dataclass(frozen=True, slots=True)
class RunReader:
    """One format of a measured run; `count` tells how many a file holds, where it may hold several."""

    name: str
    summary: str
    sniff: Callable[[Place], float]
    read: Callable[[Place, RunOptions], "MeasuredRun"]
    count: Callable[[Place], int] | None = None


@dataclass(frozen=True, slots=True)
class OperatorReader:
    """One format of operator times."""

    name: str
    summary: str
    sniff: Callable[[Place], float]
    read: Callable[[Place], "OperatorTable"]


def header_has(place: Place, *names: str) -> bool:
    """Return whether the place is CSV text with all these columns."""
    header = place.source.header if place.source is not None else None
    return header is not None and header.has(*names)


def first_keys(place: Place) -> set[str]:
    """Return the keys of the first JSON object of the place; an empty set for other content or broken JSON."""
    if place.source is None or not place.source.is_json:
        return set()
    return set(place.source.first)
