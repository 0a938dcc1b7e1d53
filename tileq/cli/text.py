"""Pieces of text that every command writes alike: titles, two columns, tables; 80 columns, no colour when piped."""

from __future__ import annotations

__all__ = ["facts", "paragraph", "table", "title"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = 2


def title(console: Console, text: str) -> None:
    """Write a heading with a blank line above."""
    console.print()
    console.print(text, style="bold", markup=False)


def paragraph(console: Console, text: str) -> None:
    """Write running text, indented."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(text), (0, 0, 0, _INDENT)))


def facts(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Write name and text in two columns; long texts wrap inside theirs."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for name, text in rows:
        grid.add_row(Text(name), Text(text))
    console.print(Padding(grid, (0, 0, 0, _INDENT)))


def table(console: Console, names: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = ()) -> None:
    """Write a table of numbers, to the right in their columns (to the left in those of `left`)."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, name in enumerate(names):
        if place in left:
            grid.add_column(name, overflow="fold")  # a name cut short would be another's name
        else:
            grid.add_column(name, justify="right")
    for row in rows:
        grid.add_row(*(Text(cell) for cell in row))
    console.print(Padding(grid, (0, 0, 0, _INDENT)))
