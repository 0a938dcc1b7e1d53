"""CSV files that serving runs leave behind: Sarathi-Serve and SLAI run folders, multi-round QA of production-stack.

Sarathi's sequence_metrics.csv has lengths; it holds no arrival times. multi-round-qa (also LMBenchmark) stamps
launch_time with the epoch clock, in seconds. Requests without output tokens failed and are left out. Sources:
sarathi/metrics/constants.py of Sarathi-Serve; benchmarks/multi-round-qa of vllm-project/production-stack.
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.readers.base import csv_reader

READERS = (
    csv_reader(
        "sarathi-run",
        "Sarathi-Serve, SLAI, Vidur run, per-request metrics (CSV; lengths, no arrivals)",
        prompt="request_num_prefill_tokens",
        output="request_num_decode_tokens",
        zeros="skip",
        note="the file records how long requests took, not when they arrived; pass a rate",
    ),
    csv_reader(
        "lmbenchmark",
        "production-stack multi-round-qa, LMBenchmark (CSV; seconds, epoch)",
        prompt="prompt_tokens",
        output="generation_tokens",
        time="launch_time",
        labels=("user_id",),
        zeros="skip",
    ),
)
