"""Iterations as they are read: bounded in number, told apart by engine, counted where they were left out."""

from __future__ import annotations

__all__ = ["MAX_ROWS", "StepRows"]

from array import array
from collections import Counter

import numpy as np
from jaxtyping import Bool, Float, Int

from tileq_profiling.profile import Conditions, Profile

MAX_ROWS = 1_000_000
_BATCH = 1 << 16
_COLUMNS = ("tokens", "prefill_tokens", "kv_tokens", "sequences", "seconds")


class StepRows:
    """Columns of iterations that take at most `2 * limit` rows of memory, whatever the length of the log.

    Beyond the limit iterations are kept by chance, each with the same probability, so that any share (of mixed
    batches, of large ones) stays what it was. The draw is seeded: a file always gives the same rows.
    """

    def __init__(self, limit: int = MAX_ROWS) -> None:
        self.limit = limit
        self.seen = 0
        self.dropped: Counter[str] = Counter()
        self._share = 1.0
        self._random = np.random.default_rng(0)
        self._parts: list[Float[np.ndarray, "row 5"]] = []
        self._engines: list[Int[np.ndarray, "row"]] = []
        self._draws: list[Float[np.ndarray, "row"]] = []
        self._held = 0
        self._values = array("d")
        self._owners = array("q")

    def append(
        self, tokens: float, prefill: float, kv: float, sequences: float, seconds: float, engine: int = 0
    ) -> None:
        """Append one iteration; `kv` is NaN where the log does not tell it."""
        self._values.extend((tokens, prefill, kv, sequences, seconds))
        self._owners.append(engine)
        if len(self._owners) >= _BATCH:
            self.flush()

    def flush(self) -> None:
        """Move what was appended to the table."""
        if self._owners:
            rows, engines = np.array(self._values).reshape(-1, len(_COLUMNS)), np.array(self._owners, np.int64)
            self._values, self._owners = array("d"), array("q")
            self.add(rows, engines)

    def add(self, rows: Float[np.ndarray, "row 5"], engines: Int[np.ndarray, "row"]) -> None:
        """Append iterations (tokens, prefill_tokens, kv_tokens, sequences, seconds), each with its engine's number."""
        self.seen += len(rows)
        draws = self._random.random(len(rows))
        keep = draws < self._share
        self._parts.append(rows[keep])
        self._engines.append(engines[keep])
        self._draws.append(draws[keep])
        self._held += int(np.count_nonzero(keep))
        while self._held > 2 * self.limit:
            self._thin()

    def _thin(self) -> None:
        self._share /= 2
        rows, engines, draws = self._joined()
        keep = draws < self._share
        self._parts, self._engines, self._draws = [rows[keep]], [engines[keep]], [draws[keep]]
        self._held = int(np.count_nonzero(keep))

    def _joined(self) -> tuple[Float[np.ndarray, "row 5"], Int[np.ndarray, "row"], Float[np.ndarray, "row"]]:
        self.flush()
        if not self._parts:
            return np.empty((0, len(_COLUMNS))), np.empty(0, np.int64), np.empty(0)
        return np.concatenate(self._parts), np.concatenate(self._engines), np.concatenate(self._draws)

    @property
    def held(self) -> int:
        """Rows in memory."""
        self.flush()
        return self._held

    def notes(self) -> list[str]:
        """Return what was left out, one line a reason."""
        self.flush()
        found = [f"{count} {reason}" for reason, count in self.dropped.items()]
        if self._share < 1:
            found.append(f"{self._held} of {self.seen} iterations kept, drawn at random, to bound memory")
        return found

    def engines(self) -> Int[np.ndarray, "row"]:
        """Return the engine number of each row held."""
        return self._joined()[1]

    def profile(self, conditions: Conditions, which: Bool[np.ndarray, "row"] | None = None) -> Profile:
        """Return the rows held (or those of the mask) as a profile; pairs are unknown to every log.

        KV tokens are unknown to the whole when they are to one row.
        """
        rows = self._joined()[0]
        columns = dict(zip(_COLUMNS, (rows if which is None else rows[which]).T, strict=True))
        kv = columns.pop("kv_tokens")
        return Profile.of(**columns, kv_tokens=None if np.isnan(kv).any() else kv, conditions=conditions)
