"""`vllm bench serve` and `vllm bench sweep` results.

Per-request lists are there only with --save-detailed: input_lens, output_lens, start_times (seconds of a monotonic
clock; older versions have none), errors. A sweep's summary holds totals alone. Source: vllm/benchmarks/serve.py.
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.bench_lists import is_bench, read_bench
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

_DETAIL = "run `vllm bench serve` again with --save-result --save-detailed"


def _read(source: Source, options: Options) -> Trace:
    return read_bench(source, options, "vllm-bench", _DETAIL)


def _sniff(source: Source) -> float:
    first = source.first
    return 5.0 if is_bench(first) and "tokenizer_id" in first and "run_number" not in first else 0.0


def _refuse_sweep(source: Source, options: Options) -> Trace:
    raise InputError(f"{source.name} is a sweep with totals per run and no requests; {_DETAIL} and pass its result")


READERS = (
    Reader("vllm-bench", "vllm bench serve --save-detailed (JSON; seconds)", _sniff, _read),
    Reader(
        "vllm-sweep",
        "vllm bench sweep (JSON; totals only, recognised to say what to record instead)",
        lambda source: 6.0 if is_bench(source.first) and "run_number" in source.first else 0.0,
        _refuse_sweep,
        reads=False,
    ),
)
