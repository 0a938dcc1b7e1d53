"""Production traces with prefix block identities: Mooncake (Kimi), Bailian (Qwen) and the offline jobs of Bailian.

Mooncake counts milliseconds and blocks of 512 tokens; Bailian counts seconds and blocks of 16 tokens, and has
conversations (parent_chat_id -1 at the root). The offline jobs have no arrivals. Requests without tokens were not
served: they are left out and counted. Sources: Qin et al., Mooncake,
FAST 2025; Wang et al., KVCache in the wild, ATC 2025; Yang et al., ACDC, SOSP 2026.
"""

from __future__ import annotations

__all__ = ["READERS"]

from array import array
from typing import Any

import numpy as np

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import Rows, build_trace
from tileq_profiling.readers.json_rows import Collector, objects
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import PrefixBlocks, Trace

_LENGTHS = {"input_length", "output_length"}


class _Blocks:
    """Ragged block identities under construction."""

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.ids = array("q")
        self.offsets = array("q", [0])

    def add(self, rows: Collector, place: int, record: dict[str, Any]) -> None:
        ids = record.get("hash_ids", [])
        if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
            raise rows.refuse(place, "hash_ids", ids, "expected a list of whole numbers")
        try:
            self.ids.extend(ids)
        except OverflowError:
            raise rows.refuse(place, "hash_ids", ids, "expected whole numbers below 2^63") from None
        self.offsets.append(len(self.ids))

    def done(self) -> PrefixBlocks:
        return PrefixBlocks(np.array(self.ids, np.int64), np.array(self.offsets, np.int64), self.block_tokens)


def _read_mooncake(source: Source, options: Options) -> Trace:
    rows, blocks = Collector(source), _Blocks(512)
    for place, record in objects(source):
        rows.add(
            place,
            rows.whole(place, record, "input_length"),
            rows.whole(place, record, "output_length"),
            rows.time(place, record, "timestamp"),
        )
        blocks.add(rows, place, record)
    table = rows.rows(per_s=1e3)
    table.blocks = blocks.done()
    return build_trace(source, "mooncake", table, options.zeros or "skip")


def _read_bailian(source: Source, options: Options) -> Trace:
    rows, blocks, roots = Collector(source), _Blocks(16), dict[Any, Any]()
    for place, record in objects(source):
        rows.add(
            place,
            rows.whole(place, record, "input_length"),
            rows.whole(place, record, "output_length"),
            rows.time(place, record, "timestamp"),
        )
        for name in ("type", "turn"):
            rows.label(place, record, name)
        rows.label(place, {"conversation": _root(rows, place, record, roots)}, "conversation")
        blocks.add(rows, place, record)
    table = rows.rows()
    table.blocks = blocks.done()
    return build_trace(source, "bailian", table, options.zeros or "skip")


def _root(rows: Collector, place: int, record: dict[str, Any], roots: dict[Any, Any]) -> Any:
    """Return the first chat of the conversation; a parent outside the file stands for itself."""
    chat, parent = record.get("chat_id"), record.get("parent_chat_id", -1)
    for key, value in (("chat_id", chat), ("parent_chat_id", parent)):
        if type(value) not in (int, str):
            raise rows.refuse(place, key, value, "expected an identity")
    root = chat if parent in (-1, "-1") else roots.get(parent, parent)
    roots[chat] = root
    return root


def _read_offline(source: Source, options: Options) -> Trace:
    rows = Collector(source)
    for place, record in objects(source):
        rows.add(place, rows.whole(place, record, "input_length"), rows.whole(place, record, "output_length"))
        rows.label(place, record, "type")
    table: Rows = rows.rows()
    table.warnings.append("an offline job: all requests were submitted at once, there are no arrivals; pass a rate")
    return build_trace(source, "bailian-offline", table, options.zeros or "skip")


def _keys(source: Source, needed: set[str], absent: set[str], score: float) -> float:
    keys = source.first.keys()
    return score if keys >= needed and not keys & absent else 0.0


READERS = (
    Reader(
        "mooncake",
        "Mooncake (JSON lines; milliseconds, 512-token prefix blocks)",
        lambda source: _keys(source, {*_LENGTHS, "timestamp"}, {"chat_id", "parent_chat_id", "turn"}, 3.0),
        _read_mooncake,
    ),
    Reader(
        "bailian",
        "Bailian, Qwen traces (JSON lines; seconds, 16-token prefix blocks, conversations)",
        lambda source: _keys(source, {*_LENGTHS, "timestamp", "chat_id"}, set(), 4.0),
        _read_bailian,
    ),
    Reader(
        "bailian-offline",
        "Bailian offline jobs shipped with ServeGen (JSON lines; no arrivals)",
        lambda source: _keys(source, {*_LENGTHS, "request_id"}, {"timestamp"}, 3.0),
        _read_offline,
    ),
)
