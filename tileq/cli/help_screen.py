"""How `--help` looks: one line an option, no boxes, so that all options of a command stand on one screen.

A command that has more of them leaves the rarest out, says so, and shows them with `--help-all`.

A choice is written out, a default stands in brackets: `--times CHOICE  Roofline: corrected | datasheet. [corrected]`.
Nothing heavy is imported here: help answers at once.
"""

from __future__ import annotations

__all__ = ["ALL", "RARE", "SCREEN_COLUMNS", "SCREEN_LINES", "HelpScreen", "fitted", "note"]

import textwrap
from collections.abc import Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

# A terminal's usual width, and the lines that a maximised window of a small laptop shows; a test measures every page.
SCREEN_COLUMNS = 80
SCREEN_LINES = 50
ALL = "--help-all"
# what a first plan or run does not need; left out only where the page would be longer than a screen
RARE = frozenset(
    {
        "--control-tbt",
        "--convention",
        "--export",
        "--fabric",
        "--kv-dtype",
        "--kv-tokens",
        "--link",
        "--memory-utilisation",
        "--reservation",
        "--swap-gb-per-s",
        "--times",
        "--token-prices",
        "--watermark",
    }
)
_WIDEST_NAME = 27  # a longer name has its text on the next line


class HelpScreen:
    """Writes usage, description and panels of a help page; what cyclopts calls a help formatter.

    Attributes
    ----------
    short
        Whether rare options are left out.
    left_out
        How many were, on the page that is being written.
    """

    def __init__(self) -> None:
        self.short = False
        self.left_out = 0

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Write one panel: its title, then its options or commands."""
        entries = [e for e in panel.entries if not (self.short and RARE.intersection(e.names))]
        self.left_out += len(panel.entries) - len(entries)
        if not entries:
            return
        names = [_name(entry) for entry in entries]
        wide = min(_WIDEST_NAME, max(map(len, names)))
        _write(console, _plain(panel.title), style="bold")
        for name, entry in zip(names, entries, strict=True):
            lines = textwrap.wrap(_text(entry), max(20, console.width - wide - 4), break_on_hyphens=False) or [""]
            if len(name) > wide:
                _write(console, f"  {name}")
                name = ""
            for line in lines:
                _write(console, f"  {name:{wide}}  {line}".rstrip())
                name = ""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Write the line of usage, the first of a page."""
        self.left_out = 0
        if usage:
            text = _plain(usage).strip()
            _write(console, text if text.startswith("Usage:") else f"Usage: {text}")
            _write(console, "")

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """Write what the command does."""
        if description:
            with console.capture() as written:
                console.print(description)
            _write(console, "\n".join(textwrap.wrap(written.get(), console.width)) + "\n")


def fitted(app: App, arguments: Sequence[str]) -> list[str]:
    """Return the arguments with `--help-all` as `--help`, and the page cut to a screen unless all is wanted."""
    screen = app.help_formatter
    words = ["--help" if word == ALL else word for word in arguments]
    if isinstance(screen, HelpScreen) and not {"--help", "-h"}.isdisjoint(words):
        screen.short = False
        screen.short = ALL not in arguments and _lines(app, words) > SCREEN_LINES
    return words


def note(app: App) -> str:
    """Return the line that ends a page from which options were left out; "" where none were, or no page was written."""
    screen = app.help_formatter
    if not isinstance(screen, HelpScreen) or not screen.left_out:
        return ""
    count, screen.left_out = screen.left_out, 0
    return f"{count} rarer options: {ALL}\n"


def _lines(app: App, words: Sequence[str]) -> int:
    from cyclopts import CycloptsError
    from rich.console import Console

    page = StringIO()
    try:
        app.help_print([word for word in words if not word.startswith("-")], console=Console(file=page, width=80))
    except CycloptsError:
        return 0  # no such command: said when it is called
    return page.getvalue().count("\n")


def _name(entry: HelpEntry) -> str:
    label = " ".join(entry.display_labels_with_metavar)
    return label.removesuffix(" STR...") + " STR" if label.endswith(" STR...") else label


def _text(entry: HelpEntry) -> str:
    """Return the text of an option with its choices and its default."""
    text = _plain(entry.description) if entry.description is not None else ""
    if entry.choices:
        text = f"{text.rstrip('.')}: {' | '.join(entry.choices)}."
    if entry.required:
        text += " [required]"
    elif entry.default is not None:
        text += f" [{entry.default}]"
    return text


def _plain(text: Any) -> str:
    """Return a renderable's text without its styles."""
    inner = getattr(text, "primary_renderable", text)
    return str(getattr(inner, "plain", inner))


def _write(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
