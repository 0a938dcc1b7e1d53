"""Lengths and arrivals of Vidur, Sarathi-Serve and SLAI: num_prefill_tokens, num_decode_tokens[, arrived_at].

Seconds. SLAI's small traces put a space after each comma; columns are addressed by name.
Sources: Agrawal et al., Vidur, MLSys 2024; Agrawal et al., Sarathi-Serve, OSDI 2024.
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.readers.base import csv_reader

READERS = (
    csv_reader(
        "vidur-lengths",
        "Vidur, Sarathi-Serve, SLAI lengths (CSV; no arrivals)",
        prompt="num_prefill_tokens",
        output="num_decode_tokens",
        never=("arrived_at",),
        note="no arrivals in this file; pass a rate",
    ),
    csv_reader(
        "vidur-arrivals",
        "Vidur, Sarathi-Serve arrivals and lengths (CSV; seconds)",
        prompt="num_prefill_tokens",
        output="num_decode_tokens",
        time="arrived_at",
    ),
)
