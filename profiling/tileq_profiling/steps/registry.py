"""All readers of measurements, one line each.

To add a format: a module with a tuple of readers (`base.ProfileReader`, `RunReader`, `OperatorReader`) and a line
below. The highest score of `sniff` wins.
"""

from __future__ import annotations

__all__ = [
    "OPERATOR_READERS",
    "PROFILE_READERS",
    "RUN_READERS",
    "operator_reader_names",
    "profile_reader_names",
    "run_reader_names",
]

from tileq_profiling.steps import (
    aiconfigurator,
    bench_runs,
    burstgpt_run,
    forward_sweep,
    generator_runs,
    llmservingsim_operators,
    llmservingsim_run,
    own_profile,
    sarathi,
    sarathi_tables,
    sequence_runs,
    sglang_log,
    slai_table,
    splitwise_table,
    totals_runs,
    trtllm,
    vidur_operators,
    vllm_iterations,
    vllm_stats,
)
from tileq_profiling.steps.base import OperatorReader, ProfileReader, RunReader

PROFILE_READERS: tuple[ProfileReader, ...] = (
    *own_profile.READERS,
    *vllm_iterations.READERS,
    *vllm_stats.PROFILE_READERS,
    *sglang_log.PROFILE_READERS,
    *trtllm.PROFILE_READERS,
    *sarathi.PROFILE_READERS,
    *sarathi_tables.READERS,
    *slai_table.READERS,
    *splitwise_table.READERS,
    *forward_sweep.READERS,
    *burstgpt_run.PROFILE_READERS,
)
RUN_READERS: tuple[RunReader, ...] = (
    *vllm_stats.RUN_READERS,
    *sglang_log.RUN_READERS,
    *trtllm.RUN_READERS,
    *bench_runs.READERS,
    *generator_runs.READERS,
    *sequence_runs.READERS,
    *totals_runs.READERS,
    *sarathi.RUN_READERS,
    *burstgpt_run.RUN_READERS,
    *llmservingsim_run.READERS,
)
OPERATOR_READERS: tuple[OperatorReader, ...] = (
    *vidur_operators.READERS,
    *llmservingsim_operators.READERS,
    *aiconfigurator.READERS,
)


def profile_reader_names() -> dict[str, str]:
    """Return every format of step times that `read_profile` knows, with one line about each."""
    return {reader.name: reader.summary for reader in PROFILE_READERS}


def run_reader_names() -> dict[str, str]:
    """Return every format of measured runs that `read_run` knows, with one line about each."""
    return {reader.name: reader.summary for reader in RUN_READERS}


def operator_reader_names() -> dict[str, str]:
    """Return every format of operator times that `read_operators` knows, with one line about each."""
    return {reader.name: reader.summary for reader in OPERATOR_READERS}
