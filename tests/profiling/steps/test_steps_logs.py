"""SGLang and TensorRT-LLM logs: step times recovered where the log tells them, and nowhere else."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
import step_logs as logs
from hypothesis import given
from hypothesis import strategies as st

from tileq_profiling.steps import read_profile, read_profile_parts, read_run
from tileq_theory.errors import InputError


def test_sglang_decode_steps_only_where_the_batch_did_not_change(write):
    text = [
        logs.sglang_prefill(0, 2192, 0),
        logs.sglang_decode(1, 200, 1000, 4000.0),  # a prefill came before it
        logs.sglang_decode(3, 200, 9000, 4000.0),  # 200 tokens a step at 4000/s: 50 ms
        logs.sglang_decode(5, 190, 9000, 4100.0),  # ten left
        logs.sglang_decode(7, 190, 9500, 3800.0),  # 50 ms
        logs.sglang_prefill(8, 100, 5),
        logs.sglang_decode(9, 190, 9500, 3800.0),
    ]
    reading = read_profile_parts(write("\n".join(text)))
    profile = reading.choose()
    np.testing.assert_allclose(profile.seconds, [0.05, 0.05])
    np.testing.assert_allclose(profile.kv_tokens, [5000.0, 9250.0])
    assert np.all(profile.phase == "decode")
    assert "3 decode lines whose interval held a prefill or another batch" in reading.left_out


def test_sglang_prefill_steps_from_input_throughput_of_the_next_line(write):
    """Only the third of three equal prefills in a row with a queue tells a time: scheduling runs ahead by one."""
    text = [
        logs.sglang_prefill(0, 8192, 3, 5.0),
        logs.sglang_prefill(0, 8192, 2, 341197.0),  # scheduled while the first still ran
        logs.sglang_prefill(1, 4096, 1, 16384.0),  # 8192 tokens at 16384/s: half a second
        logs.sglang_prefill(2, 4096, 0, 8192.0),  # the two before it differ: whose time is it?
        logs.sglang_prefill(9, 2048, 2, 512.0),  # nothing was queued before it: it idled
    ]
    reading = read_profile_parts(write("\n".join(text)))
    assert reading.choose().tokens.tolist() == [8192.0]
    np.testing.assert_allclose(reading.choose().seconds, [0.5])
    assert "4 prefill lines whose time is not told" in reading.left_out


@pytest.mark.parametrize("form", ["old", "new", "speculative"])
def test_sglang_field_sets_of_versions(write, form):
    lines = [logs.sglang_decode(1, 10, 500, 400.0), logs.sglang_decode(2, 10, 520, 400.0)]
    if form == "old":
        lines = [line.replace("cuda graph: True, ", "").replace("[2025-07-18 15:00:0", "[gpu=0] [x") for line in lines]
    elif form == "new":
        lines = [
            line.replace("batch.", "batch,").replace("#token", "#full token").replace("token usage", "full token usage")
            for line in lines
        ]
    else:
        lines = [line.replace("cuda graph", "accept len: 2.50, accept rate: 0.57, cuda graph") for line in lines]
    profile = read_profile(write("\n".join(lines)))
    np.testing.assert_allclose(profile.seconds, [0.025 * (2.5 if form == "speculative" else 1.0)])
    np.testing.assert_allclose(profile.kv_tokens, [510.0])


def test_sglang_ranks_stay_apart(write):
    lines = []
    for second in (1, 2):
        lines += [
            logs.sglang_decode(second, 10, 500, 400.0, " DP0 TP0"),
            logs.sglang_decode(second, 20, 500, 500.0, " DP1 TP0"),
        ]
    parts = read_profile_parts(write("\n".join(lines))).parts
    assert {part.labels["rank"]: part.profile.seconds.tolist() for part in parts} == {
        "DP0 TP0": [0.025],
        "DP1 TP0": [0.04],
    }


@given(cut=st.integers(100, 190))
def test_sglang_truncated_lines_never_give_a_step(cut):
    """A line cut before its throughput's last digit may lose digits, never gain a step that is off by a factor."""
    whole = [logs.sglang_decode(i, 10, 500, 400.0) for i in range(3)]
    text = "\n".join([whole[0], whole[1], whole[2][:cut]])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_text(text)
        seconds = read_profile(path).seconds
    assert np.all(np.isin(seconds, [0.025])), seconds


def test_sglang_run(write):
    head = "[2025-07-18 15:00:00 TP0] max_total_num_tokens=452000, chunked_prefill_size=8192\n"
    text = head + "\n".join([logs.sglang_prefill(0, 2192, 4), logs.sglang_decode(2, 200, 9000, 4000.0), ""])
    run = read_run(write(text))
    (series,) = run.series
    assert (series.engine, series.t_s.tolist(), series.waiting.tolist()) == ("TP0", [0.0, 2.0], [4.0, 3.0])
    assert run.kv_capacity_tokens == 452000
    assert np.isnan(series.output_tokens_per_s[0])


def trt(i, ms, ctx=1, ctx_tokens=256, gen=3, **more):
    return {
        "iter": i,
        "iterLatencyMS": ms,
        "numActiveRequests": 12,
        "numQueuedRequests": 4,
        "timestamp": f"07-25-2025 16:54:{30 + i:02d}.140189",
        "inflightBatchingStats": {
            "numContextRequests": ctx, "numCtxTokens": ctx_tokens, "numGenRequests": gen,
            "numScheduledRequests": ctx + gen,
            "numPausedRequests": 0, **more,
        },
        "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 25, "freeNumBlocks": 75, "tokensPerBlock": 32},
    }  # fmt: skip


@pytest.mark.parametrize("form", ["lines", "prefixed", "list", "one line", "pretty"])
def test_trtllm_json(write, form):
    records = [trt(0, 12.5), trt(1, 7.5, 0, 0, 3), trt(2, 0.25, 0, 0, 0)]
    text = {
        "lines": "\n".join(map(json.dumps, records)),
        "prefixed": "\n".join("[TensorRT-LLM][INFO] " + json.dumps(r) for r in records),
        "list": "[\n" + ",\n".join(map(json.dumps, records)) + "\n]",
        "one line": json.dumps(records),
        "pretty": json.dumps(records, indent=2),
    }[form]
    reading = read_profile_parts(write(text))
    profile = reading.choose()
    assert profile.tokens.tolist() == [259.0, 3.0]
    assert profile.prefill_tokens.tolist() == [256.0, 0.0]
    np.testing.assert_allclose(profile.seconds, [0.0125, 0.0075])
    assert reading.left_out == ("1 iterations without tokens",)
    run = read_run(write(text))
    assert run.kv_capacity_tokens == 3200
    np.testing.assert_allclose(run.series[0].kv_usage, [0.25] * 3)
    assert run.series[0].t_s.tolist() == [0.0, 1.0, 2.0]


def test_trtllm_kv_tokens_where_told(write):
    records = [trt(0, 12.5, numGenKvTokens=900), trt(1, 7.5, numGenKvTokens=903)]
    assert read_profile(write("\n".join(map(json.dumps, records)))).kv_tokens.tolist() == [900.0, 903.0]


def test_trtllm_truncated_line_is_counted_and_nan_refused(write):
    good = json.dumps(trt(0, 12.5))
    reading = read_profile_parts(write(good + "\n" + json.dumps(trt(1, 7.5))[:80] + "\n" + json.dumps(trt(2, 7.5))))
    assert len(reading.choose()) == 2
    assert reading.left_out == ("1 truncated or overwritten iteration lines",)
    with pytest.raises(InputError, match="line 2, field iterLatencyMS: nan"):
        read_profile(write(good + "\n" + json.dumps(trt(1, float("nan")))))


def test_trtllm_of_2023_has_a_path_and_no_times(write):
    record = (
        '[TensorRT-LLM][INFO] {"Active Request Count":249,"Context Requests":8,"Free KV cache blocks":0,'
        '"Generation Requests":231,'
        '"Iteration Counter":90,"Max KV cache blocks":2448,"Max Request Count":256,"Scheduled Requests":239,'
        '"Timestamp":"12-13-2023 14:55:14","Tokens per KV cache block":128,'
        '"Total Context Tokens":6904,"Used KV cache blocks":1224}'
    )
    path = write(record + "\n" + record.replace("14:55:14", "14:55:15"))
    with pytest.raises(InputError, match="2023, which gives no time"):
        read_profile(path)
    run = read_run(path)
    assert run.series[0].waiting.tolist() == [10.0, 10.0]
    assert run.series[0].kv_usage.tolist() == [0.5, 0.5]


def test_trtllm_text_log_takes_the_time_from_the_next_line(write):
    def line(i, ms, ctx, gen, rank=0):
        return (
            f"[TRT-LLM] [I] [_torch][RANK {rank}] iter = {i}, global_rank = {rank}, rank = {rank}, "
            "currank_total_requests = 0/1, "
            f"host_step_time = 9.4ms, prev_device_step_time = {ms}, timestamp = 08-23-2026 01:02:03, "
            "num_scheduled_requests: 3, "
            f"states = {{'num_ctx_requests': 1, 'num_ctx_tokens': {ctx}, 'num_generation_tokens': {gen}}}"
        )

    text = [
        line(0, "N/A", 512, 0),
        line(1, "20.5ms", 0, 8),
        line(2, "7.25ms", 0, 0),
        line(3, "900.0ms", 0, 8),  # the idle time of iteration 2
        line(5, "7.5ms", 0, 8),  # iteration 4 is missing
    ]
    reading = read_profile_parts(write("\n".join(text)))
    profile = reading.choose()
    assert profile.tokens.tolist() == [512.0, 8.0]
    np.testing.assert_allclose(profile.seconds, [0.0205, 0.00725])
    assert "1 iterations without tokens (idle time)" in reading.left_out
