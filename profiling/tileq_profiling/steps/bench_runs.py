"""Latencies of `vllm bench serve`, its sweeps and SGLang's bench_serving: totals, and requests where they were saved.

Lists (--save-detailed, --output-details) are in seconds, totals in milliseconds. TTFT and gaps of a request make its
end-to-end latency; without start_times there are no arrivals. Sources: vllm/benchmarks/serve.py,
python/sglang/bench_serving.py.
"""

from __future__ import annotations

__all__ = ["READERS"]

import re
from typing import Any

import numpy as np

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.bench_lists import is_bench
from tileq_profiling.readers.build import only_one
from tileq_profiling.readers.json_rows import objects
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import RunOptions, RunReader
from tileq_profiling.steps.columns import number, numbers
from tileq_profiling.steps.make_run import Requests, make_run
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

_MS = re.compile(r"(mean|median|std|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_NAMES = {"e2el": "e2e", "e2e_latency": "e2e"}
_PLAIN = {
    "duration": "duration_s",
    "completed": "completed",
    "failed": "failed",
    "total_input_tokens": "prompt_tokens",
    "total_output_tokens": "output_tokens",
    "request_throughput": "request_throughput_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "tokens_per_s",
    "max_concurrent_requests": "max_concurrent_requests",
    "request_rate": "request_rate_per_s",
    "max_concurrency": "max_concurrency",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "burstiness": "burstiness",
}


def _totals(source: Source, run: dict[str, Any]) -> dict[str, float]:
    found = {}
    for key, value in run.items():
        match = _MS.fullmatch(key)
        if match is not None and value is not None:
            kind, what = match.groups()
            found[f"{kind}_{_NAMES.get(what, what)}_s"] = number(value, f"{source.name}, field {key}") / 1e3
        elif key in _PLAIN and value is not None and value not in ("inf", float("inf"), "trace"):
            found[_PLAIN[key]] = number(_as_number(value), f"{source.name}, field {key}")
    return found


def _as_number(value: Any) -> Any:
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _read(place: Place, options: RunOptions) -> MeasuredRun:
    source = place.text()
    run = only_one(source, "runs", [run for _, run in objects(source)], options.run)
    if not is_bench(run):
        raise InputError(f"{source.name}: this run lacks completed, duration or token totals; is the file complete?")
    if run.get("completed") == 0:
        raise InputError(f"{source.name}: no request of this run completed ({run.get('failed', 'all')} failed)")
    totals = _totals(source, run)
    requests, skipped, warnings = None, [], []
    if run.get("input_lens") and run.get("output_lens"):
        requests, failed = _requests(source, run)
        if failed:
            skipped.append(("requests with an error", failed))
        if requests.arrival is None:
            warnings.append("no start_times in this result: latencies without arrivals")
    else:
        warnings.append(
            "totals only: record per-request lists with --save-detailed (vLLM) or --output-details (SGLang)"
        )
    warnings += _check(totals)
    return make_run(
        source.name,
        "vllm-bench" if "tokenizer_id" in run else "sglang-bench",
        requests,
        totals=totals,
        conditions=Conditions(model=str(run.get("model_id") or ""), source=source.name),
        skipped=skipped,
        warnings=warnings,
    )


def _requests(source: Source, run: dict[str, Any]) -> tuple[Requests, int]:
    prompt = numbers(run["input_lens"], f"{source.name}, field input_lens")
    output = numbers(run["output_lens"], f"{source.name}, field output_lens")
    errors = run.get("errors") or [""] * prompt.size
    optional = {key: run.get(key) for key in ("start_times", "ttfts", "itls") if run.get(key)}
    counts = {"input_lens": prompt.size, "output_lens": output.size, "errors": len(errors)}
    counts |= {key: len(value) for key, value in optional.items() if isinstance(value, list)}
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{key} {count}" for key, count in counts.items())
        raise InputError(f"{source.name}: lists of different length ({told}); expected one entry a request")
    good = np.array([not error for error in errors], bool)
    if not good.any():
        raise InputError(
            f"{source.name}: the benchmark recorded an error for every request; expected one that was served"
        )
    ttft = numbers(optional["ttfts"], f"{source.name}, field ttfts")[good] if "ttfts" in optional else None
    gaps = _gaps(source, optional["itls"], good) if "itls" in optional else None
    start = (
        numbers(optional["start_times"], f"{source.name}, field start_times")[good]
        if "start_times" in optional
        else None
    )
    e2e = None
    if ttft is not None and gaps is not None:
        e2e = ttft + np.array([gap.sum() for gap in gaps])
    return Requests(prompt[good], output[good], start, ttft, None, e2e, None, gaps), int(np.sum(~good))


def _gaps(source: Source, lists: Any, good: np.ndarray) -> list[np.ndarray]:
    if not isinstance(lists, list):
        raise InputError(f"{source.name}, field itls: {str(lists)[:40]!r}; expected a list of lists")
    return [numbers(lists[row], f"{source.name}, field itls, request {row + 1}") for row in np.flatnonzero(good)]


def _check(totals: dict[str, float]) -> list[str]:
    """Hold the mean latency of a token against the rate of all tokens: they cannot differ by a factor of a thousand."""
    tpot, rate = totals.get("mean_tpot_s"), totals.get("output_tokens_per_s")
    concurrent = totals.get("max_concurrent_requests") or totals.get("max_concurrency")
    if not tpot or not rate or not concurrent:
        return []
    most = concurrent / tpot
    if rate > 20 * most:
        return [
            f"{rate:.4g} output tokens/s from at most {concurrent:g} requests that need {tpot:.3g} s a token: one is "
            "in another unit; were seconds written as milliseconds?"
        ]
    return []


def _count(place: Place) -> int:
    return sum(1 for _ in objects(place.text()))


def _is_run(place: Place) -> bool:
    return place.source is not None and place.source.is_json and is_bench(place.source.first)


READERS = (
    RunReader(
        "vllm-bench",
        "vllm bench serve or sweep (JSON; totals, and requests with --save-detailed; run= chooses)",
        lambda place: 5.0 if _is_run(place) and "tokenizer_id" in place.text().first else 0.0,
        _read,
        _count,
    ),
    RunReader(
        "sglang-bench",
        "SGLang bench_serving (JSON lines; totals, and requests with --output-details; run= chooses)",
        lambda place: 4.0 if _is_run(place) and "tokenizer_id" not in place.text().first else 0.0,
        _read,
        _count,
    ),
)
