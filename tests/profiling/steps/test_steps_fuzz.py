"""Mangled files of every kind: numbers that make sense, or one clear error; never another exception."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_profiling.steps import operator_reader_names, read_operators, read_run, run_reader_names
from tileq_theory.errors import InputError

BENCH = {
    "tokenizer_id": "t", "completed": 2, "duration": 1.5, "total_input_tokens": 9,
    "total_output_tokens": 5, "mean_tpot_ms": 20.0,
    "input_lens": [4, 5], "output_lens": [2, 3], "ttfts": [0.5, 0.4], "itls": [[0.02], [0.02, 0.03]],
    "errors": ["", ""],
    "start_times": [7.0, 8.0],
}  # fmt: skip
AIPERF = {
    "metadata": {"request_start_ns": 1_700_000_000_000_000_000, "benchmark_phase": "profiling"},
    "metrics": {
        "input_sequence_length": {"value": 9, "unit": "tokens"},
        "output_sequence_length": {"value": 5, "unit": "tokens"},
        "time_to_first_token": {"value": 250.5, "unit": "ms"},
        "request_latency": {"value": 300.5, "unit": "ms"},
    },
    "error": None,
}
RUNS = (
    json.dumps(BENCH),
    json.dumps(AIPERF) + "\n" + json.dumps(AIPERF) + "\n",
    json.dumps([{"prompt_len": 4, "output_len": 2, "start_time": 1.0, "end_time": 3.0,
                 "token_timestamps": [2.0, 3.0]}]),
    json.dumps({"benchmarks": [{"metrics": {}, "requests": {"successful": [
        {"prompt_tokens": 4, "output_tokens": 2, "request_start_time": 1.0, "request_latency": 2.0,
         "time_to_first_token_ms": 9.0}
    ]}}]}),
    json.dumps({"input_toks": 4, "output_toks": 2, "arrival_time": 1e9, "queued_ts": 5.0, "scheduled_ts": 5.5,
                "first_token_ts": 6.0, "last_token_ts": 7.0}) + "\n",
    "prompt_tokens,generation_tokens,ttft,generation_time,launch_time\n4,2,0.5,1.0,7.0\n5,3,0.5,1.0,8.0\n",
    "Request Id,request_num_prefill_tokens,request_num_decode_tokens,request_e2e_time,prefill_e2e_time\n"
    "0,4,2,2.0,1.0\n",
    "timestamp,prompt_throughput,generation_throughput,num_running,num_swapped,num_pending,gpu_kvcache_usage\n"
    "1.0,2.0,3.0,4,0,1,5.5\n",
    "INFO 04-22 12:53:55 [loggers.py:118] Engine 000: Avg prompt throughput: 5.0 tokens/s, "
    "Avg generation throughput: 18.1 tokens/s, Running: 10 reqs, Waiting: 90 reqs, GPU KV cache "
    "usage: 19.3%, Prefix cache hit rate: 0.0%\n",
)  # fmt: skip
OPERATORS = (
    "layer,tokens,time_us\nqkv_proj,1,10.5\nqkv_proj,2,11.5\n",
    "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us\n0,0,1,16,9.3\n16,0,0,0,12.5\n",
    "num_tokens,n_head,num_tensor_parallel_workers,time_stats.mlp_up_proj.median\n1,32,1,0.5\n2,32,2,0.6\n",
    "framework,version,device,op_name,gemm_dtype,m,n,k,latency\nVLLM,0.1,A100,gemm,bfloat16,1,64,64,0.02\n",
)
WORDS = st.one_of(st.binary(max_size=3), st.sampled_from([b"nan", b"-1", b"1e999", b'"', b"null"]))
EDITS = st.lists(st.tuples(st.floats(0, 1), WORDS, st.integers(0, 5)), max_size=4)


def mangled(folder, seed, edits):
    raw = bytearray(seed.encode())
    for where, new, drop in edits:
        at = int(where * len(raw))
        raw[at : at + drop] = new
    path = folder / "x"
    path.write_bytes(bytes(raw))
    return path


@settings(max_examples=400, deadline=None)
@given(seed=st.sampled_from(RUNS), edits=EDITS)
def test_mangled_runs(tmp_path_factory, seed, edits):
    path = mangled(tmp_path_factory.mktemp("fuzz"), seed, edits)
    try:
        run = read_run(path, chars_per_token=2.0)
    except InputError as error:
        assert str(error)
        return
    assert run.count or run.series or run.totals
    assert np.all(run.prompt_tokens >= 1) if run.count else True
    for name in ("ttft_s", "tpot_s", "e2e_s", "queue_s", "arrival_s"):
        values = getattr(run, name)
        if values is not None:
            known = values[~np.isnan(values)]
            assert np.all(np.isfinite(known)) and np.all(known >= 0)
    if run.arrival_s is not None:
        assert np.all(np.diff(run.arrival_s) >= 0)
    for series in run.series:
        assert np.all(np.diff(series.t_s) >= 0)
        assert not np.any(series.kv_usage < 0)


@settings(max_examples=200, deadline=None)
@given(seed=st.sampled_from(OPERATORS), edits=EDITS)
def test_mangled_operators(tmp_path_factory, seed, edits):
    path = mangled(tmp_path_factory.mktemp("fuzz"), seed, edits)
    try:
        table = read_operators(path)
    except InputError as error:
        assert str(error)
        return
    for operator in table.operators:
        assert np.all(np.isfinite(operator.seconds)) and np.all(operator.seconds >= 0)
        assert np.all(np.isfinite(operator.sizes))


@settings(max_examples=150, deadline=None)
@given(
    content=st.one_of(st.binary(max_size=200), st.sampled_from([s.encode() for s in (*RUNS, *OPERATORS)])),
    run=st.sampled_from(sorted(run_reader_names())),
    operator=st.sampled_from(sorted(operator_reader_names())),
)
def test_any_content_under_any_name(tmp_path_factory, content, run, operator):
    """A format that was named and is not the file's: an error, or the numbers that the file holds."""
    path = tmp_path_factory.mktemp("fuzz") / "x"
    path.write_bytes(content)
    for read in (lambda: read_run(path, run, chars_per_token=2.0), lambda: read_operators(path, operator)):
        try:
            read()
        except InputError as error:
            assert str(error)
