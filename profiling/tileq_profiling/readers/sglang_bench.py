"""SGLang bench_serving results: one JSON object a line and a run a line; request_rate may be a bare Infinity.

Per-request lists are there only with --output-details: input_lens, output_lens, errors; no start times. Source:
python/sglang/bench_serving.py.
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.bench_lists import is_bench, read_bench
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace


def _read(source: Source, options: Options) -> Trace:
    return read_bench(source, options, "sglang-bench", "run bench_serving again with --output-details")


def _sniff(source: Source) -> float:
    return 4.0 if is_bench(source.first) and "tokenizer_id" not in source.first else 0.0


READERS = (Reader("sglang-bench", "SGLang bench_serving --output-details (JSON lines)", _sniff, _read),)
