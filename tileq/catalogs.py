"""What can be named: GPUs, models, workloads, trace formats, policies, closed forms."""

from __future__ import annotations

__all__ = ["KINDS", "Catalog", "catalog"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tileq.plain import plain
from tileq_theory.errors import InputError, near_matches

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Catalog:
    """One list: its kind, a row per entry, and how to name an entry in a command.

    Examples
    --------
    >>> "h100-sxm" in [row["name"] for row in catalog("gpus").rows]
    True
    """

    kind: str
    usage: str
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the list as the document that `tileq catalog --json` prints."""
        document: dict[str, Any] = plain(
            {"schema_version": 1, "kind": self.kind, "usage": self.usage, "rows": self.rows}
        )
        return document


def catalog(kind: str) -> Catalog:
    """Return the list called `kind`; `InputError` with near matches when there is none."""
    if kind not in KINDS:
        raise InputError(f"catalog {kind!r} is not known; {near_matches('catalogs', kind, KINDS)}")
    usage, rows = KINDS[kind]
    return Catalog(kind, usage, tuple(rows()))


def _gpus() -> list[Row]:
    from tileq_theory.hardware import catalog_rows

    return [dict(row) for row in catalog_rows("gpus")]


def _models() -> list[Row]:
    from tileq_theory.hardware import catalog_rows

    return [dict(row) for row in catalog_rows("models")]


def _workloads() -> list[Row]:
    return []


def _traces() -> list[Row]:
    return []


def _policies() -> list[Row]:
    return []


def _closed_forms() -> list[Row]:
    from tileq_theory.closed_forms import closed_forms

    return [{"name": form.name, "title": form.title, "source": form.source} for form in closed_forms().values()]


KINDS: dict[str, tuple[str, Callable[[], list[Row]]]] = {
    "gpus": ("tileq plan --gpu NAME", _gpus),
    "models": ("tileq plan --model NAME", _models),
    "workloads": ("tileq plan --workload NAME", _workloads),
    "traces": ("tileq plan --trace FILE", _traces),
    "policies": ("", _policies),
    "closed-forms": ("tq.closed_form(NAME)", _closed_forms),
}
