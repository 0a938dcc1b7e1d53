"""An item: one published figure or table, and how it is computed, judged and drawn.

    ITEM = Item(name=..., paper=..., where=..., claim=..., simulated=..., smoke=..., full=...,
                pieces=pieces, compute=compute, rows=rows, plot=plot)

`compute` is slow and runs once a piece, in any order, in any process; `rows` and `plot` are fast and read data alone.
"""

from __future__ import annotations

__all__ = ["Data", "Item", "Piece", "Settings"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from paper_repro.framework.verdict import Row

Settings = Mapping[str, Any]
Piece = Mapping[str, Any]
Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Data:
    """All that an item computed, as plain data, and what it was computed with.

    Parameters
    ----------
    item
        Its name.
    size
        "smoke" or "full".
    seed
        Root of the random streams.
    settings
        The item's settings of that size.
    pieces, results
        What was asked, piece by piece, and what came out, in the same order.
    wall_s
        Seconds of computing, summed over pieces.
    origin
        Commit, versions and a digest of the sources.
    """

    item: str
    size: str
    seed: int
    settings: Settings
    pieces: tuple[Piece, ...]
    results: tuple[Result, ...]
    wall_s: float
    origin: Mapping[str, Any] = field(default_factory=dict)

    def where(self, **match: Any) -> list[Result]:
        """Return the results of all pieces with these entries, in order."""
        pairs = zip(self.pieces, self.results, strict=True)
        return [r for p, r in pairs if all(p.get(key) == value for key, value in match.items())]

    def one(self, **match: Any) -> Result:
        """Return the result of the only piece with these entries.

        Raises
        ------
        InputError
            Where there is none, or more than one.

        Examples
        --------
        >>> data = Data("x", "smoke", 0, {}, ({"load": 0.5}, {"load": 0.9}), ({"w": 2.0}, {"w": 10.0}), 0.0)
        >>> data.one(load=0.9)["w"]
        10.0
        """
        found = self.where(**match)
        if len(found) != 1:
            raise InputError(f"{self.item}: {len(found)} pieces have {match}; expected one")
        return found[0]


@dataclass(frozen=True, slots=True)
class Item:
    """One published figure or table.

    Parameters
    ----------
    name
        What `tileq reproduce` calls it: paper, then content, in lower case with hyphens.
    paper, where
        Source with its arXiv number; figure, table, theorem or section.
    claim
        What the source says, in one sentence.
    simulated
        What stands here for the source's measurement: hardware, trace, system.
    smoke, full
        Settings of the two sizes, plain data.
    pieces
        Settings -> the parts that are computed and kept one by one; each plain data, no two alike.
    compute
        (settings, piece, seed) -> plain data. Everything random comes from `seed` and the piece.
    rows
        Data -> what came out against what was published (`paper_repro.framework.verdict`).
    plot
        (data, pyplot) -> figure.
    """

    name: str
    paper: str
    where: str
    claim: str
    simulated: str
    smoke: Settings
    full: Settings
    pieces: Callable[[Settings], Sequence[Piece]]
    compute: Callable[[Settings, Piece, int], Result]
    rows: Callable[[Data], Sequence[Row]]
    plot: Callable[[Data, Any], Any]

    def settings(self, size: str) -> Settings:
        """Return the settings of "smoke" or "full"."""
        return self.smoke if size == "smoke" else self.full
