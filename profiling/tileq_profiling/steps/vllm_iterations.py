"""vLLM's iteration log (--enable-logging-iteration-details): prefill and decode tokens and milliseconds of each step.

Two forms of the line: that of the engine core (PR #31193), and from PR #46647 that of the stats logger, which names
its engine, marks dummy iterations (ranks that ran along without work) and gives the KV usage. With the KV cache's
size, which the same log tells at start-up, the usage gives the KV tokens that decodes read. Pairs of prefill
attention are not in the log.
"""

from __future__ import annotations

__all__ = ["READERS"]

import re

from tileq_profiling.profile import Conditions
from tileq_profiling.steps.base import ProfileOptions, ProfileReader
from tileq_profiling.steps.log_lines import Entry, entries, process_of
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_profiling.steps.steps_table import StepRows
from tileq_profiling.steps.vllm_facts import kv_capacity, vllm_conditions
from tileq_theory.errors import InputError

MARKER = b"Iteration("
_LINE = re.compile(
    rb"Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, (\d+) generation requests, "
    rb"(\d+) generation tokens, iteration elapsed time: (\d+(?:\.\d+)?) ms( \(dummy\))?"
    rb"(?:, GPU KV cache usage: (\d+(?:\.\d+)?)%|, (?!G)(?=\w)|(?=[\s\"\\(]|$))",
    re.MULTILINE,
)
_SNIFF = rb"Iteration\(\d+\): \d+ context requests"


class _Log:
    """Iterations under construction."""

    def __init__(self, capacity: float | None, limit: int) -> None:
        self.rows = StepRows(limit)
        self.capacity = capacity
        self.engines: dict[str, int] = {}
        self.last: dict[int, tuple[bytes | None, ...]] = {}
        self.with_usage = 0
        self.without_usage = 0

    def add(self, entry: Entry) -> None:
        fields = entry.match.groups()
        engine = self.engines.setdefault(process_of(entry.before), len(self.engines))
        if self.last.get(engine) == fields:
            self.rows.dropped["repeated lines (the log was written twice)"] += 1
            return
        self.last[engine] = fields
        _, context_requests, context, requests, generated, ms, dummy, usage = fields
        prefill, tokens, seconds = float(context), float(context) + float(generated), float(ms) / 1e3
        if dummy is not None:
            self.rows.dropped["dummy iterations (a rank without work of its own)"] += 1
        elif tokens == 0:
            self.rows.dropped["iterations without tokens"] += 1
        elif seconds == 0:
            self.rows.dropped["iterations of 0 ms"] += 1
        else:
            kv = float("nan")
            if usage is None:
                self.without_usage += 1
            else:
                self.with_usage += 1
                kv = self._kv(usage, prefill)
            self.rows.append(tokens, prefill, kv, float(context_requests) + float(requests), seconds, engine)

    def _kv(self, usage: bytes, prefill: float) -> float:
        """KV in use, less what this step's prefill wrote: what decodes read, and the cached parts of open prompts."""
        if self.capacity is None:
            return float("nan")
        return max(0.0, float(usage) / 100.0 * self.capacity - prefill)


def _read(place: Place, options: ProfileOptions) -> ProfileReading:
    source = place.text()
    capacity = kv_capacity(source) if options.kv_capacity_tokens is None else options.kv_capacity_tokens
    log = _Log(capacity, options.max_rows)
    for entry in entries(source, MARKER, _LINE):
        if entry is None:
            log.rows.dropped["truncated or overwritten iteration lines"] += 1
        else:
            log.add(entry)
    if not log.rows.held:
        told = "; ".join(log.rows.notes()) or "no iteration line in it"
        raise InputError(
            f"{source.name} holds no usable iteration ({told}); expected at least one with tokens and a time"
        )
    kv_known = capacity is not None and log.with_usage > 0 and not log.without_usage
    conditions = vllm_conditions(source)
    return finish(
        "vllm-iterations",
        _parts(log, conditions),
        joinable=True,
        left_out=log.rows.notes(),
        warnings=_warnings(log, capacity, kv_known),
    )


def _parts(log: _Log, conditions: Conditions) -> list[Part]:
    numbers = log.rows.engines()
    parts = []
    for name, number in log.engines.items():
        which = numbers == number
        if which.any():
            parts.append(Part(_labels(name), log.rows.profile(conditions, which)))
    return parts


def _labels(name: str) -> dict[str, str]:
    words = name.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def _warnings(log: _Log, capacity: float | None, kv_known: bool) -> list[str]:
    found = []
    if kv_known:
        found.append(
            "KV tokens are usage times the cache's size, less the step's prefill: in mixed batches they hold the "
            "cached parts of unfinished prompts too"
        )
    elif log.with_usage and capacity is None:
        found.append("the log gives KV usage but not the cache's size; pass kv_capacity_tokens= to use it")
    else:
        found.append("the log does not tell KV tokens: the time of reading them goes into the other coefficients")
    return found


READERS = (
    ProfileReader(
        "vllm-iterations",
        "vLLM log with --enable-logging-iteration-details (text; milliseconds)",
        lambda place: 10.0 if place.marked(_SNIFF) else 0.0,
        _read,
    ),
)
