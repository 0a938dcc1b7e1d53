"""Printing: one JSON document, or text for a person, on standard output."""

from __future__ import annotations

__all__ = ["show"]

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def show(document: Mapping[str, Any], render: Callable[[Console], None], *, as_json: bool) -> None:
    """Print `document` as JSON, or let `render` write it for a person (80 columns and no colour when piped)."""
    if as_json:
        from tileq.plain import dumps

        sys.stdout.write(dumps(document) + "\n")
        return
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as written:
        render(console)
    # tables pad their cells; nobody wants blanks at the ends of lines in a file
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in written.get().splitlines()))
