"""splitwise-sim request traces: arrival_timestamp in seconds, prompt_size, token_size, one request a row.

Source: Patel et al., Splitwise, ISCA 2024 (github.com/Mutinifni/splitwise-sim).
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.readers.base import csv_reader

READERS = (
    csv_reader(
        "splitwise-sim",
        "splitwise-sim trace (CSV; seconds)",
        prompt="prompt_size",
        output="token_size",
        time="arrival_timestamp",
        labels=("request_type", "application_id"),
        ones=("batch_size",),
    ),
)
