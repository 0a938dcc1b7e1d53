r"""Block references of a trace in the order in which a cache sees them, and how far apart those of one block lie.

Request r holds the chain b_1, ..., b_m of prefix blocks. It looks the whole chain up when it arrives; then its blocks
are touched deepest first, so that a parent is never older than its child. That is least-recently-used order over the
leaves of a radix tree, and what a cache holds of a chain is always a prefix of it.

The clock counts touches. The *age* of a reference is the number of touches since the last one of its block, the block's
own included: 1 for the block touched last, infinite for a block never seen.
"""

from __future__ import annotations

__all__ = ["NEVER", "Touches", "touches_of"]

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tileq_theory.errors import InputError

NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Touches:
    """References in the order of touches.

    Parameters
    ----------
    place
        Position of the reference in the trace's own order (request by request, first block first).
    begin
        Touches made before the request of the reference arrived.
    previous
        Position of the last touch of the same block, -1 for none.
    """

    place: Int[np.ndarray, "touch"]
    begin: Int[np.ndarray, "touch"]
    previous: Int[np.ndarray, "touch"]

    @property
    def arrival_age(self) -> Int[np.ndarray, "touch"]:
        """Age when the request arrives, before it touches anything; `NEVER` for a first reference."""
        return np.where(self.previous < 0, NEVER, self.begin - self.previous)

    @property
    def touch_age(self) -> Int[np.ndarray, "touch"]:
        """Age at the touch itself; `NEVER` for a first reference."""
        return np.where(self.previous < 0, NEVER, np.arange(self.previous.size) - self.previous)


def touches_of(ids: Int[np.ndarray, "block"], offsets: Int[np.ndarray, "edge"]) -> Touches:
    """Return the touches of requests that hold `ids[offsets[r]:offsets[r + 1]]`, first block first.

    Raises
    ------
    InputError
        Offsets that do not cover the blocks in order, or a request that holds a block twice.
    """
    edges = np.asarray(offsets, dtype=np.int64)
    count = np.diff(edges)
    if edges.size < 2 or edges[0] != 0 or edges[-1] != ids.size or (count < 0).any():
        raise InputError(
            f"offsets do not run from 0 to {ids.size} without falling; expected one edge more than requests"
        )
    first = np.repeat(edges[:-1], count)
    place = first + np.repeat(edges[1:] - 1, count) - np.arange(ids.size)
    order = np.argsort(ids[place], kind="stable")
    named = ids[place][order]
    previous = np.full(ids.size, -1, dtype=np.int64)
    again = np.flatnonzero(named[1:] == named[:-1])
    previous[order[again + 1]] = order[again]
    twice = np.flatnonzero(previous >= first)
    if twice.size:
        where = int(np.searchsorted(edges, twice[0], side="right"))
        raise InputError(f"request {where} holds block {ids[place][twice[0]]} twice; expected different blocks")
    return Touches(place, first, previous)
