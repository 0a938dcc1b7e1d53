"""Files that hold text instead of lengths, for which a tokenizer must be given: ShareGPT and GenAI-Perf.

ShareGPT: a request is the first human turn of a conversation and the answer after it, as serving benchmarks take
it. GenAI-Perf (before AIPerf): {experiments: [{requests: [{timestamp ns, request_inputs, response_timestamps,
response_outputs}]}]}, payloads in OpenAI or Triton form; `run` chooses the experiment. Both layouts are described
from their producers' code and tests, not from a file at hand.
"""

from __future__ import annotations

__all__ = ["READERS"]

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import build_trace, only_one
from tileq_profiling.readers.json_rows import Collector, as_list, as_object, objects
from tileq_profiling.readers.payloads import request_text, response_text
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError, finite

_HUMAN = {"human", "user"}
_ANSWER = {"gpt", "assistant", "chatgpt", "bard", "bing", "model"}


def _counter(source: Source, options: Options) -> Callable[[str], int]:
    if options.count_tokens is None:
        raise InputError(
            f"{source.name} holds text, not lengths; pass count_tokens=, for example lambda text: "
            "len(tokenizer.encode(text))"
        )
    return options.count_tokens


def _count(rows: Collector, place: int, count_tokens: Callable[[str], int], text: str) -> int:
    return rows.whole(place, {"count_tokens": finite("count_tokens(text)", count_tokens(text))}, "count_tokens")


def _read_sharegpt(source: Source, options: Options) -> Trace:
    count_tokens = _counter(source, options)
    rows = Collector(source, "conversation")
    for place, record in objects(source):
        turns = record.get("conversations", record.get("conversation"))
        pair = _first_exchange(rows, place, as_list(source, turns, f"conversation {place}, field conversations"))
        if pair is None:
            rows.skipped["no human turn followed by an answer"] += 1
            continue
        prompt, output = (_count(rows, place, count_tokens, text) for text in pair)
        rows.add(place, prompt, output)
    table = rows.rows()
    table.warnings.append("ShareGPT has no arrivals; pass a rate. Lengths are of the tokenizer given")
    return build_trace(source, "sharegpt", table, options.zeros or "skip")


def _first_exchange(rows: Collector, place: int, turns: list[Any]) -> tuple[str, str] | None:
    said: list[tuple[str, str]] = []
    for turn in turns:
        if not isinstance(turn, dict):
            raise rows.refuse(place, "conversations", turn, "expected turns with from and value")
        speaker, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
        if not isinstance(speaker, str) or not isinstance(text, str):
            raise rows.refuse(place, "conversations", turn, "expected turns with from and value")
        said.append((speaker, text))
    for (first, asked), (second, answered) in pairwise(said):
        if first in _HUMAN and second in _ANSWER:
            return asked, answered
    return None


def _sniff_sharegpt(source: Source) -> float:
    first = source.first
    return 3.0 if isinstance(first.get("conversations", first.get("conversation")), list) else 0.0


def _read_genai_perf(source: Source, options: Options) -> Trace:
    count_tokens = _counter(source, options)
    experiments = as_list(source, source.first.get("experiments"), "field experiments")
    chosen = as_object(source, only_one(source, "experiments", experiments, options.run), "experiment")
    rows = Collector(source, "request")
    for place, value in enumerate(as_list(source, chosen.get("requests"), "field requests"), start=1):
        record = as_object(source, value, f"request {place}")
        if record.get("success") is False:
            rows.skipped["GenAI-Perf recorded a failure"] += 1
            continue
        texts = request_text(record.get("request_inputs")), response_text(record.get("response_outputs"))
        for key, text in zip(("request_inputs", "response_outputs"), texts, strict=True):
            if text is None:
                raise rows.refuse(place, key, record.get(key), "expected an OpenAI or Triton payload")
        prompt, output = (_count(rows, place, count_tokens, text or "") for text in texts)
        rows.add(place, prompt, output, rows.time(place, record, "timestamp"))
    return build_trace(source, "genai-perf", rows.rows(per_s=1e9), options.zeros or "skip")


def _sniff_genai_perf(source: Source) -> float:
    experiments = source.first.get("experiments")
    first = experiments[0] if isinstance(experiments, list) and experiments else None
    return 4.0 if isinstance(first, dict) and "requests" in first else 0.0


READERS = (
    Reader("sharegpt", "ShareGPT conversations (JSON text; needs count_tokens=)", _sniff_sharegpt, _read_sharegpt),
    Reader(
        "genai-perf",
        "GenAI-Perf profile_export.json (JSON text; nanoseconds; needs count_tokens=)",
        _sniff_genai_perf,
        _read_genai_perf,
    ),
)
