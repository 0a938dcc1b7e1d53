"""`tileq catalog`: print one list."""

from __future__ import annotations

__all__ = ["EXAMPLE", "catalog"]

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from tileq.cli import options as o
from tileq.cli.show import show

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: `tileq catalog gpus`"
Kind = Annotated[
    Literal["gpus", "models", "workloads", "traces", "policies", "closed-forms"], Parameter(help="What to list.")
]


def catalog(kind: Kind, /, *, json: o.Json = False) -> None:
    """List what can be named: GPUs, models, workloads, trace formats and more."""
    from tileq import catalogs

    document = catalogs.catalog(kind).to_dict()
    show(document, lambda console: _render(document, console), as_json=json)


def _render(document: dict[str, Any], console: Console) -> None:
    from rich.table import Table

    rows = document["rows"]
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    columns = [name for name in rows[0] if any(row.get(name) not in (None, "") for row in rows)] if rows else []
    for name in columns:
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    console.print(table, markup=False)
    if document["usage"]:
        console.print(f"\nUse: {document['usage']}", markup=False)


def _cell(value: Any) -> str:
    from tileq.words import number

    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
