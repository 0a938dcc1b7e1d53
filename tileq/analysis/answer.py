"""What every analysis returns: its document, the same as text, and a picture where there is one."""

from __future__ import annotations

__all__ = ["Analysis", "Section", "analysis"]

from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from tileq.plain import plain
from tileq_theory.errors import InputError

SCHEMA_VERSION = 1
Section = tuple[str, list[tuple[str, str]]]


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """The answer of an analysis.

    Parameters
    ----------
    what
        "chain", "fluid", "certificate", "latency", "sizing", "network", "disaggregate" or "modes".
    document
        Plain data: what was asked (`question`), the answer, `provenance`, `warnings`.
    headline
        One line that says what was found.
    sections
        The same for a reader: titles with rows of (name, text).
    """

    what: str
    document: dict[str, Any] = field(repr=False)
    headline: str
    sections: tuple[Section, ...] = field(repr=False)
    draw: Callable[[], Any] | None = field(repr=False, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq analyze ... --json` prints."""
        return self.document

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw the analysis and write it to `path` (.png, .svg or .pdf).

        Raises
        ------
        InputError
            An analysis without a picture, or another kind of file.
        """
        from tileq.plots import figure

        where = figure.check(Path(path))
        if self.draw is None:
            raise InputError(f"{self.what} has no picture; fluid and disaggregate have one")
        with figure.styled():
            figure.save(self.draw(), where)


def analysis(
    what: str,
    *,
    question: dict[str, Any],
    answer: dict[str, Any],
    headline: str,
    sections: list[Section],
    provenance: dict[str, Any] | None = None,
    warnings: list[str] | None = None,
    draw: Callable[[], Any] | None = None,
) -> Analysis:
    """Return the answer with the keys that all documents share."""
    from tileq import __version__

    notes = warnings or []
    document = plain(
        {
            "schema_version": SCHEMA_VERSION,
            "what": what,
            "question": question,
            **answer,
            "provenance": {**(provenance or {}), "tileq": __version__},
            "warnings": notes,
        }
    )
    if notes:
        sections = [*sections, ("How far to trust it", [("note", note) for note in notes])]
    return Analysis(what, document, headline, tuple(sections), draw)
