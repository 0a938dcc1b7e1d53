"""`tileq catalog`: print one list."""

from __future__ import annotations

__all__ = ["EXAMPLE", "catalog"]

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tileq.cli import options as o
from tileq.cli.show import show
from tileq.cli.text import paragraph, table

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq catalog gpus"
Kind = Annotated[
    Literal["gpus", "models", "workloads", "traces", "policies", "closed-forms", "calibrations", "profiles"],
    Parameter(help="What to list."),
]


def catalog(kind: Kind, /, *, json: o.Json = False) -> None:
    """List what can be named: GPUs, models, workloads, trace formats and more."""
    from tileq import catalogs

    found = catalogs.catalog(kind)
    document = found.to_dict()
    show(document, lambda console: _render(document, found.columns, console), as_json=json)


def _render(document: dict[str, Any], columns: tuple[str, ...], console: Console) -> None:
    rows = document["rows"]
    numeric = [all(isinstance(row[name], int | float | None) for row in rows) for name in columns]
    names = [name.replace("_", " ") for name in columns]
    left = [place for place, is_number in enumerate(numeric) if not is_number]
    table(console, names, [[_cell(row[name]) for name in columns] for row in rows], left=left)
    paragraph(console, f"\n{len(rows)} {document['kind']}; use: {document['usage']}")


def _cell(value: Any) -> str:
    from tileq.words import number

    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
