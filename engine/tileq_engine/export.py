"""Per-request tables of a run for other programs: CSV and Parquet, units in the column names."""

from __future__ import annotations

__all__ = ["request_columns", "write_csv", "write_parquet"]

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_engine.metrics_requests import e2e_ps, tpot_ps, ttft_ps
from tileq_engine.run import PS_PER_S, STATUS_NAMES
from tileq_engine.run_io import atomic_write

if TYPE_CHECKING:
    from tileq_engine.run import Run

_MOMENTS = ("arrival_ps", "admit_ps", "prefill_end_ps", "first_token_ps", "finish_ps")
_NUMBERS = ("priority", "tenant", "prompt_tokens", "output_tokens", "predicted_output_tokens", "tokens_done")
_MORE_NUMBERS = (
    "preemptions", "recomputed_tokens", "swapped_tokens", "gaps_over_limit", "reject_reason", "prefix_hit_tokens",
)  # fmt: skip


def request_columns(run: Run) -> dict[str, tuple[Any, Any]]:
    """Return name -> (values, mask of missing entries): moments exactly in ps, intervals in seconds."""
    table, none = run.requests, np.zeros(run.count, dtype=bool)
    columns: dict[str, tuple[Any, Any]] = {"request_id": (table["request_id"], none)}
    for name, labels in (("class", run.info.class_names), ("tier", run.info.tier_names)):
        index = table["class_index" if name == "class" else "tier"]
        columns[name] = (np.array(labels, dtype=object)[index], none)
    columns["status"] = (np.array(STATUS_NAMES, dtype=object)[table["status"]], none)
    columns |= {name: (table[name], none) for name in _NUMBERS}
    columns |= {name: (table[name], table[name] < 0) for name in _MOMENTS}
    for name, interval in (("ttft_s", ttft_ps(run)), ("tpot_s", tpot_ps(run)), ("e2e_s", e2e_ps(run))):
        values = np.asarray(interval, dtype=float)
        columns[name] = (np.where(values >= 0, values / PS_PER_S, 0.0), ~(values >= 0))
    columns["max_gap_s"] = (table["max_gap_ps"] / PS_PER_S, table["tokens_done"] < 2)
    columns["tbt_limit_s"] = (table["tbt_limit_ps"] / PS_PER_S, table["tbt_limit_ps"] <= 0)
    return columns | {name: (table[name], none) for name in _MORE_NUMBERS}


def _arrow_table(run: Run) -> Any:
    import pyarrow as pa

    columns = {name: pa.array(values, mask=mask) for name, (values, mask) in request_columns(run).items()}
    facts = {"policy": run.info.policy, "end_ps": run.info.end_ps, "stop_reason": run.info.stop_reason}
    facts |= {"rate_per_s": run.info.rate_per_s, "provenance": dict(run.info.provenance), "clock": "whole picoseconds"}
    return pa.table(columns, metadata={"tileq_run": json.dumps(facts)})


def write_csv(run: Run, path: str | Path) -> Path:
    """Write one row a request, header first, missing entries empty; atomic."""
    from pyarrow import csv

    table = _arrow_table(run)
    return atomic_write(path, lambda part: csv.write_csv(table, str(part)))


def write_parquet(run: Run, path: str | Path) -> Path:
    """Write one row a request with nulls for missing entries and the run's facts as file metadata; atomic."""
    from pyarrow import parquet

    table = _arrow_table(run)
    return atomic_write(path, lambda part: parquet.write_table(table, str(part)))
