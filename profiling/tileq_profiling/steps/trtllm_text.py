"""TensorRT-LLM's text iteration log: each line carries the device time of the iteration before it, per rank."""

from __future__ import annotations

__all__ = ["SNIFF_TEXT", "text_steps"]

import re
from collections import Counter

from tileq_profiling.readers.source import Source
from tileq_profiling.steps.log_lines import entries
from tileq_profiling.steps.steps_table import StepRows

SNIFF_TEXT = rb"prev_device_step_time ?= ?[\d.]+ ?ms"
_LINE = re.compile(
    rb"iter = (\d+), (?:global_rank = (\d+), )?[^\n]*?prev_device_step_time = (?:(\d+(?:\.\d+)?) ?ms|N/A|None)"
    rb"[^\n]*?states = \{([^}\n]*)\}"
)
_STATE = re.compile(rb"'(\w+)': (\d+)")


def text_steps(source: Source, left: Counter[str], limit: int) -> dict[str, StepRows]:
    """Return each rank's iterations; what is left out is counted in `left`."""
    before: dict[str, tuple[int, dict[bytes, float]]] = {}
    rows: dict[str, StepRows] = {}
    for entry in entries(source, b"prev_device_step_time", _LINE):
        if entry is None:
            left["truncated or overwritten iteration lines"] += 1
            continue
        number, rank_text, ms, states = entry.match.groups()
        rank = (rank_text or b"").decode()
        own = rows.setdefault(rank, StepRows(limit))
        state = {name: float(value) for name, value in _STATE.findall(states)}
        earlier = before.get(rank)
        before[rank] = (int(number), state)
        if ms is None or earlier is None or earlier[0] + 1 != int(number):
            left["iterations whose time is not told (the first, or a gap in the log)"] += 1
            continue
        row = _row(earlier[1], float(ms))
        if row is None:
            left["iterations without tokens (idle time)"] += 1
        else:
            own.append(*row)
    return rows


def _row(state: dict[bytes, float], ms: float) -> tuple[float, float, float, float, float] | None:
    prefill = state.get(b"num_ctx_tokens", 0.0)
    decode = state.get(b"num_generation_tokens", 0.0)
    if prefill + decode == 0 or ms == 0:
        return None
    return prefill + decode, prefill, float("nan"), state.get(b"num_ctx_requests", 0.0) + decode, ms / 1e3
