"""Tables and run folders: units, compositions and conditions, against an independent reading of the same rows."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileq_profiling.profile import Conditions, Profile, save_profile
from tileq_profiling.steps import profile_reader_names, read_profile, read_profile_parts, read_run
from tileq_theory.errors import InputError

BATCH = "Batch Id,batch_num_tokens,batch_num_prefill_tokens,batch_num_decode_tokens,batch_size,batch_execution_time"


def batch_csv(rows):
    return (
        "\n".join([BATCH, *(f"{i}.0,{p + d},{p},{d},{float(m)},{t!r}" for i, (p, d, m, t) in enumerate(rows))]) + "\n"
    )


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4096), st.integers(0, 128), st.integers(1, 64), st.floats(0, 5)),
        min_size=1,
        max_size=20,
    )
)
def test_batch_metrics_against_the_csv_module(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("run") / "x"
    path.write_text(batch_csv(rows))
    want = [
        (
            float(r["batch_num_tokens"]),
            float(r["batch_num_prefill_tokens"]),
            float(r["batch_size"]),
            float(r["batch_execution_time"]),
        )
        for r in csv.DictReader(path.open())
        if float(r["batch_num_tokens"]) > 0 and float(r["batch_execution_time"]) > 0
    ]
    if not want:
        with pytest.raises(InputError, match="no batch with tokens"):
            read_profile(path)
        return
    p = read_profile(path)
    assert list(zip(p.tokens, p.prefill_tokens, p.sequences, p.seconds, strict=True)) == want
    assert p.unknown and set(p.unknown) == {"pairs", "kv_tokens"}


def test_a_run_folder_of_two_replicas(tmp_path):
    for replica in (0, 1):
        folder = tmp_path / f"replica_{replica}"
        folder.mkdir()
        (folder / "batch_metrics.csv").write_text(batch_csv([(512, 2, 3, 0.04 + replica)]))
        (folder / "sequence_metrics.csv").write_text(
            "Request Id,request_num_prefill_tokens,request_num_decode_tokens,request_e2e_time,prefill_e2e_time,"
            "request_scheduling_delay,request_num_restarts,request_inter_arrival_delay\n"
            "0,100,10,2.0,1.0,0.25,1,\n1,200,0,2.0,1.0,0.25,0,0.5\n2,200,20,3.0,1.0,0.25,0,0.5\n"
        )
    reading = read_profile_parts(tmp_path)
    assert [part.labels for part in reading.parts] == [{"replica": "0"}, {"replica": "1"}]
    run = read_run(tmp_path)
    assert run.prompt_tokens.tolist() == [100, 200]
    np.testing.assert_allclose(run.arrival_s, [0.0, 1.0])
    np.testing.assert_allclose(run.tpot_s, [0.1, 0.1])
    assert run.preemptions == 1
    assert run.skipped == (("requests without prompt or output tokens (they failed)", 1),)
    assert run.trace().output_tokens.tolist() == [10, 20]


def test_arrival_times_written_under_the_name_of_gaps_are_seen(write):
    rows = "\n".join(f"{i},10,5,1.0,{i * 0.5}" for i in range(30))
    head = (
        "Request Id,request_num_prefill_tokens,request_num_decode_tokens,request_e2e_time,request_inter_arrival_delay\n"
    )
    run = read_run(write(head + rows))
    assert run.arrival_s[-1] == 14.5
    assert any("read as arrival times" in warning for warning in run.warnings)


@pytest.mark.parametrize(("unit", "column"), [(1.0, "operation_time_per_token"), (1e3, "per_token_time")])
def test_the_unit_of_a_sarathi_table_is_checked(write, unit, column):
    head = BATCH + f",{column}\n"
    row = f"0,1024,1021,3,4,{0.2 * unit},{200 / 1024}\n"
    assert read_profile(write(head + row)).seconds.tolist() == pytest.approx([0.2])
    with pytest.raises(InputError, match="neither in seconds nor in milliseconds"):
        read_profile(write(head + row.replace(f"{200 / 1024}", "7.5")))


def test_a_batch_table_whose_parts_do_not_add_up_is_refused(write):
    with pytest.raises(InputError, match="not the sum of prefill and decode tokens"):
        read_profile(write(BATCH + "\n0,10,5,4,3,0.02\n"))


@pytest.mark.parametrize("bad", ["nan", "inf", "-1.0", "", "x"])
def test_a_time_that_is_none_is_refused_with_its_row(write, bad):
    with pytest.raises(InputError, match="row 3, column batch_execution_time"):
        read_profile(write(BATCH + f"\n0,10,5,5,3,0.02\n1,10,5,5,3,{bad}\n"))


def test_prefills_in_chunks(write):
    text = "prefill_length,chunk_size,prefill_execution_time\n2048,512,400.0\n2048,4096,380.0\n1000,600,90.0\n"
    reading = read_profile_parts(write(text))
    p = reading.choose()
    assert p.tokens.tolist() == [512.0, 2048.0, 500.0]
    np.testing.assert_allclose(p.seconds, [0.1, 0.38, 0.045])
    # pairs over a whole prompt do not depend on how it is cut: P (P + 1)/2
    np.testing.assert_allclose(p.pairs * p.repeats, [2048 * 2049 / 2, 2048 * 2049 / 2, 1000 * 1001 / 2])
    assert any("short chunk" in w for w in reading.warnings)


def test_slai_table_from_times_that_are_known(write):
    """Figures generated from t(c) = 15 + c/8 ms and a decode step of 16 ms come back."""
    rows = []
    for chunk in (64, 128, 256, 384, 1024):
        full, rest = divmod(2048, chunk)
        total = full * (15 + chunk / 8) + (15 + rest / 8 if rest else 0)
        rows.append((chunk, total, (total + 16) / (full + (rest > 0) + 1)))
    text = "chunk,ttft_ms,batch_ms\n" + "\n".join(",".join(map(repr, row)) for row in rows)
    p = read_profile(write(text))
    want = {1: 0.016, 64: 0.023, 128: 0.031, 256: 0.047, 384: 0.063, 1024: 0.143}
    got = dict(zip(p.tokens.tolist(), p.seconds.tolist(), strict=True))
    assert got.keys() == want.keys()
    for size, time in want.items():
        assert got[size] == pytest.approx(time, rel=1e-6)
    with pytest.raises(InputError, match="larger than the prompt"):
        read_profile(write(text), prompt_tokens=512)


def test_splitwise_conditions_are_never_mixed(write):
    head = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,tensor_parallel\n"
    text = head + "llama2-70b,a100-80gb,512,2,128,196.0,54.0,2\nllama2-70b,h100-80gb,512,2,128,96.0,44.0,4\n"
    path = write(text)
    with pytest.raises(InputError, match=r"2 different conditions .* choose one, as in where="):
        read_profile(path)
    p = read_profile(path, where={"hardware": "h100-80gb"})
    assert (p.conditions.device, p.conditions.model, p.conditions.tp) == ("h100-sxm", "llama-2-70b", 4)
    assert p.tokens.tolist() == [1024.0, 2.0]
    np.testing.assert_allclose(p.seconds, [0.096, 0.044])
    np.testing.assert_allclose(p.pairs, [2 * 512 * 513 / 2, 0.0])
    np.testing.assert_allclose(p.kv_tokens, [0.0, 2 * (512 + 64)])


def test_forward_sweep_takes_the_median_not_the_cold_run(write):
    runs = [{"prefill_latency": t, "median_decode_latency": 0.007} for t in (0.091, 0.011, 0.012)]
    record = {"batch_size": 2, "input_len": 64, "output_len": 32, "prefill_latency": 0.038, "runs_data": runs}
    document = {
        "metadata": {"gpu_type": "A100", "model_path": "Q", "tp_size": 1, "failed_configs": [{}]},
        "results": [record],
    }
    reading = read_profile_parts(write(json.dumps(document)))
    p = reading.choose()
    np.testing.assert_allclose(p.seconds, [0.012, 0.007])
    np.testing.assert_allclose(p.kv_tokens, [0.0, 2 * (64 + 16)])
    assert p.repeats.tolist() == [3, 3]
    assert reading.left_out == ("1 settings that failed when they were measured",)


def test_a_profile_of_our_own_comes_back(tmp_path):
    p = Profile.of(
        tokens=[1, 256],
        seconds=[0.02, 0.03],
        sequences=[1, 1],
        prefill_tokens=[0, 256],
        conditions=Conditions(device="cpu"),
    )
    header = save_profile(p, tmp_path / "p.csv")
    for path in (header, tmp_path / "p.csv"):
        assert read_profile(path).seconds.tolist() == [0.02, 0.03]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n", "holds no known form of step times"),
        (
            '{"timestamp": 1, "input_length": 3}\n{"timestamp": 2, "input_length": 3}\n',
            "holds no known form of step times",
        ),
        ("just some text\nwithout any form\n", "holds no known form of step times"),
        (b"\x00\x01\x02", "binary file"),
        ("x" * 10 + "\n\xff", "holds no known form|not UTF-8"),
    ],
)
def test_other_files_are_refused_by_name(write, content, told):
    for read in (read_profile, read_run):
        with pytest.raises(InputError, match=told.replace("of step times", "of (step times|a measured run)")):
            read(write(content))


def test_an_unknown_format_is_refused_with_the_known_ones(write):
    with pytest.raises(InputError, match="vllm-iterations"):
        read_profile(write("x\n"), "vllm-iteration")


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=400), name=st.sampled_from(sorted(profile_reader_names())))
def test_garbage_under_any_name_is_an_input_error(tmp_path_factory, content, name):
    path = tmp_path_factory.mktemp("fuzz") / "x"
    path.write_bytes(content)
    for read in (lambda: read_profile(path), lambda: read_profile(path, name), lambda: read_run(path)):
        with pytest.raises(InputError):
            read()


SEEDS = (
    BATCH + "\n0,1024,1021,3,4,0.2\n1,4,0,4,4,0.05\n",
    json.dumps(
        {
            "iter": 1,
            "iterLatencyMS": 5.0,
            "inflightBatchingStats": {"numCtxTokens": 5, "numGenRequests": 2, "numContextRequests": 1},
        }
    )
    + "\n",
    "chunk,ttft_ms,batch_ms\n64,724.3,22.7\n1024,201.5,74.7\n",
    "(EngineCore_DP0 pid=4) INFO Iteration(1): 1 context requests, 64 context tokens, 2 generation requests, "
    "2 generation tokens, "
    "iteration elapsed time: 21.24 ms\n",
    "[2025-07-18 15:32:52 TP0] Decode batch. #running-req: 3, #token: 30, gen throughput (token/s): 40.0, "
    "#queue-req: 0\n" * 2,
)


@settings(max_examples=300, deadline=None)
@given(
    seed=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=3), st.integers(0, 5)), max_size=4),
)
def test_mangled_files_give_sane_numbers_or_an_input_error(tmp_path_factory, seed, edits):
    """Whatever survives mangling is finite and positive; everything else is one clear error."""
    raw = bytearray(seed.encode())
    for where, new, drop in edits:
        at = int(where * len(raw))
        raw[at : at + drop] = new
    path = tmp_path_factory.mktemp("fuzz") / "x"
    path.write_bytes(bytes(raw))
    try:
        p = read_profile(path)
    except InputError as error:
        assert str(error)
        return
    assert np.all(np.isfinite(p.seconds)) and np.all(p.seconds > 0) and np.all(p.tokens > 0)
    assert math.isfinite(float(p.sequences.sum()))


def test_every_real_table(data):
    """Rows and a figure that can be read off each published file."""
    qwen = read_profile(data / "llm_exec_time_predictor/benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json")
    assert (len(qwen), qwen.conditions.device, qwen.conditions.model) == (188, "a100-sxm-80gb", "Qwen/Qwen3-4B")
    figure_2 = read_profile(data / "sarathi_osdi24/figure-2/prefill.csv")
    assert figure_2.seconds[-1] == pytest.approx(4.4075, abs=1e-4)
    table_2 = read_profile(data / "sarathi_osdi24/table-2/results.csv")
    assert table_2.seconds[1] == pytest.approx(0.21765, abs=1e-5)
    assert len(read_profile(data / "sarathi_osdi24/figure-9/chunking-overhead.csv")) == 16
    slai = read_profile(data / "slai/plot1_results.csv")
    assert dict(zip(slai.tokens.tolist(), slai.seconds.tolist(), strict=True))[1024] == pytest.approx(0.1009, abs=2e-4)
    splitwise = read_profile_parts(data / "splitwise_sim/perf_model.csv")
    assert len(splitwise.parts) == 12
    with pytest.raises(InputError, match="give the model"):
        read_profile(data / "vidur/profiling/compute/a100/meta-llama/Llama-2-7b-hf/mlp.csv")
    with pytest.raises(InputError, match="read_run reads it"):
        read_profile(data / "llmservingsim/bench/examples/RTX4090/Llama-3.1-8B/vllm")
