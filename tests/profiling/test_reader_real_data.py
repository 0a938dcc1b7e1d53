"""Published traces, as they are: counts and moments that their descriptions give."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from tileq_profiling.readers import read_trace
from tileq_theory.errors import InputError

BENCH = "llmservingsim/bench/examples/RTX4090/Llama-3.1-8B/vllm/requests.jsonl"


@pytest.mark.parametrize(
    ("file", "name", "count", "rate", "cv"),
    [
        ("azure_llm_2023/AzureLLMInferenceTrace_code.csv", "azure-2023", 8819, 2.57, 13.2),
        ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", "azure-2023", 19366, 5.53, 1.09),
    ],
)
def test_azure(data, file, name, count, rate, cv):
    trace = read_trace(data / file)
    assert (trace.format, trace.count) == (name, count)
    assert trace.rate_per_s == pytest.approx(rate, abs=0.005)  # as printed
    assert trace.interarrival_cv == pytest.approx(cv, rel=0.005)
    assert not trace.skipped and not trace.warnings


def test_slai_lengths(data):
    trace = read_trace(data / "slai/sharegpt_8k_filtered_stats_llama2_tokenizer.csv")
    assert (trace.format, trace.count, trace.arrival_s) == ("vidur-lengths", 30731, None)
    assert round(trace.prompt_tokens.mean()) == 2340 and np.median(trace.prompt_tokens) == 1730
    assert round(np.percentile(trace.prompt_tokens, 99)) == 7434
    assert round(trace.output_tokens.mean()) == 439 and np.median(trace.output_tokens) == 415
    assert round(np.percentile(trace.output_tokens, 99)) == 998


def test_nanoflow(data):
    trace = read_trace(data / "nanoflow/sharegpt.csv")
    assert (trace.format, trace.count, trace.arrival_s) == ("nanoflow", 58787, None)


def test_mooncake(data):
    trace = read_trace(data / "mooncake/conversation_trace.jsonl")
    assert (trace.format, trace.count) == ("mooncake", 12031)
    assert any("about 3 s" in warning for warning in trace.warnings)
    # Its published hit rate of an infinite cache, 36.6 %, from the prefix blocks alone.
    seen: set[int] = set()
    hits = total = 0
    for i in range(trace.count):
        ids = trace.blocks.of(i).tolist()
        total += len(ids)
        hits += sum(block in seen for block in ids)
        seen.update(ids)
    assert hits / total == pytest.approx(0.366, abs=0.0005)


def test_llmservingsim_workload_and_the_run_made_from_it(data):
    asked = read_trace(data / "llmservingsim/workloads/sharegpt-llama-3.1-8b-300-sps10.stripped.jsonl")
    ran = read_trace(data / BENCH)
    assert (asked.format, asked.count, ran.format, ran.count) == ("llmservingsim", 300, "llmservingsim-run", 300)
    assert Counter(zip(asked.prompt_tokens, asked.output_tokens, strict=True)) == Counter(
        zip(ran.prompt_tokens, ran.output_tokens, strict=True)
    )
    # The client sent on schedule, so the epoch clock tells the workload's arrivals to a few hundredths of a second.
    np.testing.assert_allclose(ran.arrival_s, asked.arrival_s, atol=0.1)


def test_two_clocks_are_not_mixed(data):
    records = [json.loads(line) for line in (data / BENCH).read_text().splitlines()]
    queued = np.sort([record["queued_ts"] for record in records])
    trace = read_trace(data / BENCH)
    assert trace.duration_s < 60 < queued[0]  # the monotonic clock starts hours earlier
    assert trace.duration_s == pytest.approx(queued[-1] - queued[0], abs=0.5)


@pytest.mark.parametrize("scale", [100, 300, 500, 1000, 2000])
def test_burstgpt_replay(data, scale):
    path = data / f"burstgpt_vllm_replay/detail_log_scale{scale}_prompt500.json"
    with pytest.raises(InputError, match="chars_per_token"):
        read_trace(path)
    trace = read_trace(path, chars_per_token=6.5)
    assert trace.count == 500
    # Five speeds of one trace: the same gaps, scaled, which holds for the derived arrivals and not for record_time.
    assert trace.interarrival_cv == pytest.approx(4.895, abs=0.005)
    assert trace.rate_per_s * 1000 / scale == pytest.approx(12.8, abs=0.02)


def test_splitwise(data):
    trace = read_trace(data / "splitwise_sim/test_trace.csv")
    assert trace.prompt_tokens.tolist() == [4096, 2048, 2048]
    assert trace.output_tokens.tolist() == [32, 8, 16]
    assert trace.arrival_s.tolist() == [0.0, 2.0, 3.0]


def test_aiperf_example(data):
    trace = read_trace(data / "formats/aiperf/profile_export_docs_example.jsonl")
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([550], [9])
    assert trace.skipped == (("cancelled", 1),)


@pytest.mark.parametrize(
    ("pattern", "word"),
    [
        ("formats/vllm_bench_serve/bench_serve_v*.json", "--save-detailed"),
        ("formats/vllm_bench_serve/bench_serve_all_*.json", "8 failed"),
        ("formats/vllm_bench_serve/vllm_sweep_*.json", "sweep"),
        ("formats/guidellm/*.json", "empty"),
    ],
)
def test_results_without_requests_say_what_to_do(data, pattern, word):
    files = sorted(data.glob(pattern))
    assert files
    for file in files:
        with pytest.raises(InputError, match=word):
            read_trace(file)


def test_no_other_file_is_taken_for_a_trace(data):
    read = set()
    for file in sorted(data.rglob("*")):
        if file.is_file() and file.stat().st_size < 4_000_000:
            try:
                read.add(str(read_trace(file, chars_per_token=6.5).format))
            except InputError as problem:
                assert "\n" not in str(problem)
    assert read == {
        "azure-2023",
        "vidur-lengths",
        "nanoflow",
        "mooncake",
        "llmservingsim",
        "llmservingsim-run",
        "burstgpt-replay",
        "splitwise-sim",
        "aiperf",
    }
