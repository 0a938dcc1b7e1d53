"""What others measured: iteration times, runs with their latencies, operator times; formats chosen by content.

>>> from tileq_profiling.steps import profile_reader_names
>>> "vllm-iterations" in profile_reader_names()
True
"""

from tileq_profiling.steps.compose import whole_model
from tileq_profiling.steps.operators import KINDS, Operator, OperatorTable
from tileq_profiling.steps.read import read_operators, read_profile, read_profile_parts, read_run
from tileq_profiling.steps.read_runs import holds_runs_only, read_runs
from tileq_profiling.steps.reading import Part, ProfileReading
from tileq_profiling.steps.registry import operator_reader_names, profile_reader_names, run_reader_names
from tileq_profiling.steps.run import MeasuredRun, RunSeries, Tokens

__all__ = [
    "KINDS",
    "MeasuredRun",
    "Operator",
    "OperatorTable",
    "Part",
    "ProfileReading",
    "RunSeries",
    "Tokens",
    "holds_runs_only",
    "operator_reader_names",
    "profile_reader_names",
    "read_operators",
    "read_profile",
    "read_profile_parts",
    "read_run",
    "read_runs",
    "run_reader_names",
    "whole_model",
]
