"""BurstGPT: requests to ChatGPT and GPT-4, columns addressed by name because version 3 inserts two.

Seconds from the start of the trace. Rows with 0 response tokens are requests that failed: they are left out and
counted. `Session ID` of version 3 is empty on API rows. Source: Wang et al., BurstGPT, KDD 2025.
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.readers.base import csv_reader

READERS = (
    csv_reader(
        "burstgpt",
        "BurstGPT 1 and 2 (CSV; seconds; failures left out)",
        prompt="Request tokens",
        output="Response tokens",
        time="Timestamp",
        never=("Session ID", "Elapsed time"),
        labels=("Model", "Log Type"),
        zeros="skip",
    ),
    csv_reader(
        "burstgpt-3",
        "BurstGPT 3 with sessions (CSV; seconds; failures left out)",
        prompt="Request tokens",
        output="Response tokens",
        time="Timestamp",
        also=("Session ID",),
        labels=("Model", "Log Type", "Session ID"),
        zeros="skip",
    ),
)
