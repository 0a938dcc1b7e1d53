"""Client log of a BurstGPT replay against vLLM: one JSON object of events.

`record_time` is taken when an answer is complete, so a request arrived at record_time - total_chunk_time: in the
published files these differences are in the order of `event_id` exactly, and record_time is not. `out_len` is not a
number of tokens: it adds up to 6.5 times what the server's own log counts, so it is converted only when told how.
Source: github.com/liao4s/BurstGPT_test.
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import build_trace
from tileq_profiling.readers.json_rows import Collector, as_object
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError, positive

_KEYS = {"event_id", "in_len", "out_len", "record_time", "total_chunk_time"}


def _sniff(source: Source) -> float:
    first = next(iter(source.first.values()), None)
    return 5.0 if isinstance(first, dict) and first.keys() >= _KEYS else 0.0


def _read(source: Source, options: Options) -> Trace:
    if options.chars_per_token is None:
        raise InputError(
            f"{source.name}: out_len of a BurstGPT replay is not in tokens (the published files hold about 6.5 "
            "of it per token in the server's log); pass chars_per_token=6.5, or use the BurstGPT trace itself"
        )
    per_token = positive("chars_per_token", options.chars_per_token)
    rows = Collector(source, "event")
    for number, event in enumerate(as_object(source, source.document, "document").values(), start=1):
        record = as_object(source, event, f"event {number}")
        end = rows.time(number, record, "record_time")
        took = rows.time(number, record, "total_chunk_time")
        prompt = rows.whole(number, record, "in_len")
        output = rows.whole(number, record, "out_len")
        if took > end:
            raise rows.refuse(number, "total_chunk_time", took, "expected at most record_time")
        rows.add(number, prompt, round(output / per_token), end - took)
    table = rows.rows()
    table.warnings += [
        f"out_len divided by {per_token:g} and rounded: output tokens are estimates",
        "in_len is counted with the client's tokenizer; the served model's may differ (by 20 % in the published files)",
        "arrival is record_time - total_chunk_time",
    ]
    return build_trace(source, "burstgpt-replay", table, options.zeros or "skip")


READERS = (Reader("burstgpt-replay", "BurstGPT replay client log (JSON; needs chars_per_token=)", _sniff, _read),)
