"""What every iteration of a real run was and took: one row each, in the order in which they ran."""

from __future__ import annotations

__all__ = ["COLUMNS", "IterationLog", "LogWriter", "decision_of"]

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.simulator_result import IterationSamples

# of the scheduler's scalar record, as the batch was formed
FACTS = ("npre", "ndec", "seqs", "pairs2", "kv", "pad", "swap_tokens", "nwaiting", "nres", "work")
_BEFORE = ("prefill_tokens", "decode_tokens")
COLUMNS = (
    "start_ps",
    "duration_ps",
    "wall_ns",
    "cpu_ns",
    "probe_ns",
    "decide_ns",
    "launch_ns",
    "compute_ns",
    "sample_ns",
    *FACTS,
    "kv_blocks",
    *_BEFORE,
    "decision",
)


def decision_of(
    ids: Int[np.ndarray, "member"], prefill: Int[np.ndarray, "member"], decode: Int[np.ndarray, "member"]
) -> int:
    """Return a checksum of a batch: its members in order, each with its chunk or its decode."""
    found = 0
    for column in (ids, prefill, decode):
        found = zlib.crc32(column.astype(np.int64, copy=False).tobytes(), found)
    return found


class LogWriter:
    """Rows as they come, in one array that grows: lists of them would be walked by the garbage collector in a run."""

    def __init__(self) -> None:
        self._table = np.zeros((1024, len(COLUMNS)), dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, row: Sequence[int]) -> None:
        """Append one row, in the order of `COLUMNS`."""
        if self._count == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._table[self._count] = row
        self._count += 1

    def log(self, recent: int | None = None) -> IterationLog:
        """Return the rows so far, or the last `recent` of them."""
        first = 0 if recent is None else max(0, self._count - recent)
        return IterationLog(self._table[first : self._count].copy())


@dataclass(frozen=True, slots=True)
class IterationLog:
    """The iterations of a run; `log["duration_ps"]` is one column.

    Columns: when it began and what it took on the run's clock; real and CPU time; the smoothed probe (0 without one);
    where the time went; prefill and decode tokens, sequences, twice the query-key pairs, KV tokens read, padding,
    tokens swapped; waiting, resident, work left and blocks used as the batch was formed; tokens served before it; a
    checksum of who was in the batch with what (`decision_of`).
    """

    table: Int[np.ndarray, "iteration column"]

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, name: str) -> Int[np.ndarray, "iteration"]:
        return self.table[:, COLUMNS.index(name)]

    @property
    def tokens(self) -> Int[np.ndarray, "iteration"]:
        """Tokens through the model."""
        return np.asarray(self["npre"] + self["ndec"])

    @property
    def compositions(self) -> Float[np.ndarray, "iteration 4"]:
        """(n, A, K, m) of each iteration, as an `IterationTime` takes them."""
        return np.column_stack([self.tokens, self["pairs2"] / 2, self["kv"], self["seqs"]]).astype(float)

    @property
    def seconds(self) -> Float[np.ndarray, "iteration"]:
        """Time of each iteration on the run's clock."""
        return np.asarray(self["duration_ps"] / 1e12)

    @property
    def overhead(self) -> Float[np.ndarray, "iteration"]:
        """Share of each iteration's time that is neither the forward nor the wait for the device."""
        return np.asarray(1 - self["compute_ns"] / np.maximum(self["wall_ns"], 1))

    def take(self, first: int) -> IterationLog:
        """Return the iterations from `first` on."""
        return IterationLog(self.table[first:])

    def samples(self) -> IterationSamples:
        """Return the rows as the samples of a run: every iteration is one."""
        nothing = np.zeros(len(self), dtype=np.int64)  # an executor's log does not have them
        return IterationSamples(
            stride=1,
            iteration=np.arange(len(self)),
            start_ps=self["start_ps"],
            duration_ps=self["duration_ps"],
            prefill_tokens=self["npre"],
            decode_tokens=self["ndec"],
            sequences=self["seqs"],
            waiting=self["nwaiting"],
            running=self["nres"],
            kv_blocks_used=self["kv_blocks"],
            work_tokens=self["work"],
            served_prefill_tokens=self["prefill_tokens"],
            served_decode_tokens=self["decode_tokens"],
            prefix_lookup_tokens=nothing,
            prefix_hit_tokens=nothing,
            prefix_idle_blocks=nothing,
        )

    def shares(self) -> dict[str, Any]:
        """Return where the real time went, as shares of the whole, and the decision's own figures."""
        wall = max(int(self["wall_ns"].sum()), 1)
        parts = {name: float(self[f"{name}_ns"].sum() / wall) for name in ("decide", "launch", "compute", "sample")}
        parts["other"] = max(0.0, 1.0 - sum(parts.values()))
        median = float(np.median(self["decide_ns"])) if len(self) else 0.0
        return {**parts, "decide_median_us": median / 1e3}
