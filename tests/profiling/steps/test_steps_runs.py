"""Measured runs: latencies in seconds whatever the tool's units, on one clock, with failures counted."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from tileq_profiling.steps import read_operators, read_profile, read_run, run_reader_names
from tileq_theory.errors import InputError

# prompt, output, arrival s, TTFT s, gap s
ROWS = [(100, 5, 0.0, 0.5, 0.02), (50, 3, 0.25, 0.4, 0.025), (70, 1, 1.0, 0.3, 0.0)]


def bench(**more):
    return {
        "backend": "vllm",
        "completed": 3,
        "failed": 0,
        "duration": 1.5,
        "total_input_tokens": 220,
        "total_output_tokens": 9,
        "mean_ttft_ms": 400.0,
        "p99.9_ttft_ms": 499.0,
        "request_rate": "inf",
        "max_concurrency": None,
        "input_lens": [r[0] for r in ROWS],
        "output_lens": [r[1] for r in ROWS],
        "ttfts": [r[3] for r in ROWS],
        "itls": [[r[4]] * (r[1] - 1) for r in ROWS],
        "errors": ["", "", ""],
        **more,
    }


def guidellm(rows):
    requests = [
        {
            "prompt_tokens": p,
            "output_tokens": o,
            "request_start_time": 1e9 + a,
            "request_latency": t + g * (o - 1),
            "time_to_first_token_ms": 1e3 * t,
            "inter_token_latency_ms": 1e3 * g if o > 1 else None,
        }
        for p, o, a, t, g in rows
    ]
    return {"benchmarks": [{"metrics": {}, "requests": {"successful": requests, "errored": [{}], "incomplete": []}}]}


def aiperf(row):
    p, o, a, t, g = row
    metrics = {
        "input_sequence_length": {"value": p, "unit": "tokens"},
        "output_sequence_length": {"value": o, "unit": "tokens"},
        "time_to_first_token": {"value": 1e3 * t, "unit": "ms"},
        "request_latency": {"value": (t + g * (o - 1)) * 1e6, "unit": "us"},
    }
    if o > 1:
        metrics["inter_token_latency"] = {"value": g, "unit": "s"}
    return {
        "metadata": {"request_start_ns": int((1e9 + a) * 1e9), "benchmark_phase": "profiling"},
        "metrics": metrics,
        "error": None,
    }


def serving_csv(rows):
    head = "prompt_tokens,generation_tokens,ttft,generation_time,user_id,question_id,launch_time,finish_time\n"
    return head + "".join(f"{p},{o},{t},{g * (o - 1)},0,0,{1e9 + a},{2e9}\n" for p, o, a, t, g in rows)


def distserve(rows):
    return [
        {"prompt_len": p, "output_len": o, "start_time": 10 + a, "end_time": 10 + a + t + g * (o - 1),
         "token_timestamps": [10 + a + t + g * i for i in range(o)]}
        for p, o, a, t, g in rows
    ]  # fmt: skip


def lifecycle(rows):
    return [
        {"start_time": 10 + a, "end_time": 10 + a + t + g * (o - 1), "error": None, "request": "",
         "info": {"input_tokens": p, "output_tokens": o, "output_token_times": [10 + a + t + g * i for i in range(o)]}}
        for p, o, a, t, g in rows
    ]  # fmt: skip


def llmservingsim(rows):
    return [
        {"input_toks": p, "output_toks": o, "arrival_time": 1e9 + a, "queued_ts": 500 + a,
         "scheduled_ts": 500 + a + t / 2,
         "first_token_ts": 500 + a + t, "last_token_ts": 500 + a + t + g * (o - 1)}
        for p, o, a, t, g in rows
    ]  # fmt: skip


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


FORMS = {
    "vllm-bench": (json.dumps(bench(tokenizer_id="t", start_times=[7 + r[2] for r in ROWS])), True),
    "sglang-bench": (json.dumps(bench(request_rate=float("inf"))) + "\n", False),
    "guidellm": (json.dumps(guidellm(ROWS)), True),
    "aiperf": (lines(map(aiperf, ROWS)), True),
    "lmbenchmark": (serving_csv(ROWS), True),
    "distserve": (json.dumps(distserve(ROWS)), True),
    "inference-perf": (json.dumps(lifecycle(ROWS)), True),
    "llmservingsim-run": (lines(llmservingsim(ROWS)), True),
}


@pytest.mark.parametrize("name", FORMS)
def test_one_table_through_every_form(write, name):
    text, arrivals = FORMS[name]
    run = read_run(write(text))
    assert run.format == name and name in run_reader_names()
    assert run.prompt_tokens.tolist() == [100, 50, 70]
    assert run.output_tokens.tolist() == [5, 3, 1]
    assert (run.arrival_s is not None) == arrivals
    if arrivals:
        np.testing.assert_allclose(run.arrival_s, [0.0, 0.25, 1.0], atol=1e-6)
    np.testing.assert_allclose(run.ttft_s, [0.5, 0.4, 0.3], atol=1e-6)
    np.testing.assert_allclose(run.tpot_s, [0.02, 0.025, np.nan], atol=1e-6)
    np.testing.assert_allclose(run.e2e_s, [0.58, 0.45, 0.3], atol=1e-6)
    assert run.quantile("ttft_s", 0.5) == pytest.approx(0.4, abs=1e-6)
    if arrivals:
        assert run.duration_s == pytest.approx(1.3, abs=1e-6)
        assert run.throughput_per_s == pytest.approx(3 / 1.3, abs=1e-5)


def test_bench_totals_failures_and_unequal_lists(write):
    run = read_run(write(json.dumps(bench(tokenizer_id="t", errors=["", "timeout", ""]))))
    assert run.count == 2 and run.skipped == (("requests with an error", 1),)
    assert run.totals["mean_ttft_s"] == pytest.approx(0.4)
    assert run.totals["p99.9_ttft_s"] == pytest.approx(0.499)
    with pytest.raises(InputError, match="lists of different length"):
        read_run(write(json.dumps(bench(tokenizer_id="t", ttfts=[0.5]))))
    with pytest.raises(InputError, match="no request of this run completed"):
        read_run(write(json.dumps(bench(tokenizer_id="t", completed=0, failed=3))))
    with pytest.raises(InputError, match="field ttfts, entry 2: nan"):
        read_run(write(json.dumps(bench(tokenizer_id="t", ttfts=[0.5, float("nan"), 0.3]))))


def test_a_sweep_is_read_run_by_run(write):
    runs = [bench(tokenizer_id="t", run_number=i, max_num_seqs=4 * (i + 1)) for i in range(2)]
    path = write(json.dumps(runs))
    with pytest.raises(InputError, match=r"2 runs; pass run=1\.\.2"):
        read_run(path)
    assert read_run(path, run=2).totals["max_num_seqs"] == 8


def test_milliseconds_in_the_place_of_seconds_are_questioned(write):
    wrong = bench(tokenizer_id="t", ttfts=[500.0, 400.0, 300.0], itls=[[25.0] * (r[1] - 1) for r in ROWS])
    assert any("milliseconds taken for seconds" in w for w in read_run(write(json.dumps(wrong))).warnings)
    small = bench(tokenizer_id="t", itls=[[2e-5] * (r[1] - 1) for r in ROWS])
    assert any("divided by 1000" in w for w in read_run(write(json.dumps(small))).warnings)
    rates = bench(tokenizer_id="t", mean_tpot_ms=50_000.0, output_throughput=900.0, max_concurrent_requests=6)
    assert any("another unit" in w for w in read_run(write(json.dumps(rates))).warnings)


@pytest.mark.parametrize(
    ("factor", "says"),
    [(1e-3, "were seconds divided by 1000 once too often?"), (1e3, "milliseconds taken for seconds?")],
)
def test_totals_alone_in_another_unit_are_questioned(write, factor, says):
    """A run without per-request lists is all that the times' size can be read off."""
    run = {k: v for k, v in bench(tokenizer_id="t").items() if not isinstance(v, list)}
    times = {"mean_ttft_ms": 400.0, "mean_tpot_ms": 25.0, "median_tpot_ms": 24.0, "mean_itl_ms": 25.0}
    right = read_run(write(json.dumps({**run, **times})))
    assert right.count == 0 and not any(w.endswith("?") for w in right.warnings)
    wrong = read_run(write(json.dumps({**run, **{k: v * factor for k, v in times.items()}})))
    assert any(w.endswith(says) for w in wrong.warnings), wrong.warnings


def test_two_clocks_are_joined_by_the_quickest_request(write):
    records = llmservingsim(ROWS)
    records[1]["queued_ts"] += 0.125  # reached the queue late: that wait is real
    run = read_run(write(lines(records)))
    np.testing.assert_allclose(run.ttft_s, [0.5, 0.4, 0.3], atol=1e-6)
    np.testing.assert_allclose(run.queue_s, [0.25, 0.2, 0.15], atol=1e-6)
    records[0]["first_token_ts"] = 400.0
    with pytest.raises(InputError, match="out of order"):
        read_run(write(lines(records)))


def test_aiperf_without_a_unit_is_refused(write):
    record = aiperf(ROWS[0])
    record["metrics"]["time_to_first_token"]["unit"] = "ticks"
    with pytest.raises(InputError, match="unit 'ticks'"):
        read_run(write(lines([record, record])))


@pytest.mark.parametrize(
    ("document", "name", "key", "value"),
    [
        ({"request_latency": {"unit": "ms", "avg": 300.0, "p99": 400.0}}, "aiperf-summary", "mean_e2e_s", 0.3),
        ({"results_ttft_s_quantiles_p50": 0.4, "results_ttft_s_mean": 0.5}, "llmperf-summary", "median_ttft_s", 0.4),
        ({"load_summary": {}, "successes": {"latency": {"request_latency": {"mean": 2.0}}}}, "inference-perf-summary",
         "mean_e2e_s", 2.0),
    ],
)  # fmt: skip
def test_summaries_give_totals(write, document, name, key, value):
    run = read_run(write(json.dumps(document)))
    assert run.format == name and run.totals[key] == pytest.approx(value)
    with pytest.raises(InputError, match="holds no requests"):
        run.trace()


def test_mlperf_summary(write):
    text = "=====\nMLPerf Results Summary\n=====\nMean First Token latency (ns) : 500000000\nSamples per second: 12.5\n"
    run = read_run(write(text))
    assert (run.totals["mean_ttft_s"], run.totals["request_throughput_per_s"]) == (0.5, 12.5)


def test_the_measured_run_of_the_4090(data):
    run = read_run(data / "llmservingsim/bench/examples/RTX4090/Llama-3.1-8B/vllm")
    assert (run.count, run.kv_capacity_tokens, run.conditions.libraries["vllm"]) == (300, 41408.0, "0.19.0")
    # the published summary: mean TTFT 65456.6 ms from the queue on, TPOT mean 32.4 ms and median 30.8 ms
    assert run.quantile("tpot_s", 0.5) == pytest.approx(0.0308, abs=1e-4)
    assert float(np.mean(run.tpot_s)) == pytest.approx(0.0324, abs=1e-4)
    assert float(np.mean(run.ttft_s)) == pytest.approx(65.4566, abs=0.2)
    (series,) = run.series
    assert len(series) == 184
    assert 0.8 < series.time_average("kv_usage") < 1.0


def test_real_bench_files(data):
    folder = data / "formats/vllm_bench_serve"
    one = read_run(folder / "bench_serve_v0.25.1.json")
    assert one.totals["median_ttft_s"] == pytest.approx(0.05568, abs=1e-5)
    with pytest.raises(InputError, match="no request of this run completed"):
        read_run(folder / "bench_serve_all_requests_failed_v0.25.1.json")
    aiperf_run = read_run(data / "formats/aiperf/profile_export_docs_example.jsonl")
    assert aiperf_run.skipped == (("cancelled requests", 1),)
    assert aiperf_run.gaps.of(0)[0] == pytest.approx(0.004898437)
    replay = read_run(data / "burstgpt_vllm_replay/vllm_log_scale100_prompt500.csv")
    assert replay.series[0].kv_usage.max() == pytest.approx(0.1925, abs=1e-4)


def test_operator_tables_in_seconds(data):
    table = read_operators(data / "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16")
    (attention,) = table.find(kind="mixed attention")
    assert attention.seconds[0] == pytest.approx(9.31067e-6)
    assert table.conditions.device == "rtx-4090"
    (head,) = table.find("lm_head")
    assert (head.per, head.kind) == ("model", "sequences")
    vidur = read_operators(data / "vidur/profiling/compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv")
    (up,) = vidur.find("mlp_up_proj", tp=1.0)
    assert up.seconds[list(up.column("tokens")).index(4096)] == pytest.approx(3.3655e-3)
    gemm = read_operators(data / "aiconfigurator/data/a100_sxm/gemm/vllm/0.14.0/gemm_perf.parquet")
    (only,) = gemm.find("gemm")
    square = (only.column("columns") == 4096) & (only.column("inner") == 4096) & (only.column("rows") == 1024)
    assert only.seconds[square] == pytest.approx([204e-6], rel=0.01)


def test_operators_become_iterations_of_a_model(data):
    """Llama-3.1-8B on the 4090: a decode of one token streams 16 GB of weights at 1 TB/s, so about 16 ms."""
    folder = data / "llmservingsim/profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16"
    with pytest.raises(InputError, match="give the model"):
        read_profile(folder)
    p = read_profile(folder, model="llama-3.1-8b", kv_capacity_tokens=41408)
    assert (p.scope, p.conditions.device, p.conditions.model) == ("layer operators", "rtx-4090", "llama-3.1-8b")
    lone = p.seconds[(p.tokens == 1) & (p.kv_tokens == 16)]
    assert 0.015 < float(lone[0]) < 0.019
    with pytest.raises(InputError, match=r"files mlp\.csv; pass the folder of one device"):
        read_operators(data / "vidur/profiling")
    with pytest.raises(InputError, match="pass the folder of one device"):
        read_operators(data / "aiconfigurator/data")
    direct = vidur_profile_of(data / "vidur/profiling/compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv")
    got = read_profile(data / "vidur/profiling/compute/a100", model="llama-2-7b", tp=2)
    np.testing.assert_allclose(np.sort(got.seconds), np.sort(direct), rtol=1e-12)


def vidur_profile_of(path):
    """Seconds of 32 layers of the rows with tp 2, by the csv module alone."""
    rows = [row for row in csv.DictReader(path.open()) if row["num_tensor_parallel_workers"] == "2"]
    once = (
        "input_layernorm",
        "attn_pre_proj",
        "attn_rope",
        "attn_post_proj",
        "post_attention_layernorm",
        "mlp_up_proj",
        "mlp_act",
        "mlp_down_proj",
    )
    layers = [
        sum(float(row[f"time_stats.{op}.median"]) for op in once) + 2 * float(row["time_stats.add.median"])
        for row in rows
    ]
    return [32e-3 * layer for layer in layers]
