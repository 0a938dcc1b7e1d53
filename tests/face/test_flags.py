"""Engine flags: real names, values the engines accept, a reason each."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq.flags import ENGINES, EngineSettings, engine_flags
from tileq_theory.errors import InputError

SETTINGS = EngineSettings(
    model="org/model",
    token_budget=1024,
    token_budget_reason="the smallest within 1 % of the best",
    max_num_seqs=256,
    max_num_seqs_reason="residents",
    memory_utilisation=0.9,
    static_share=0.85,
    tensor_parallel=2,
    dtype="bf16",
    kv_dtype="bf16",
)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_has_a_reason_and_the_command_says_them_all(engine: str) -> None:
    written = engine_flags(engine, SETTINGS)
    assert set(written.reasons) == set(written.flags)
    assert all(written.reasons.values())
    words = shlex.split(written.command())
    for name, value in written.flags.items():
        place = words.index(name)
        assert value is True or words[place + 1] == str(value)


def test_the_names_and_values_of_each_engine() -> None:
    assert engine_flags("vllm", SETTINGS).flags == {
        "--max-num-batched-tokens": 1024,
        "--max-num-seqs": 256,
        "--enable-chunked-prefill": True,
        "--gpu-memory-utilization": 0.9,
        "--tensor-parallel-size": 2,
        "--dtype": "bfloat16",
    }
    assert engine_flags("sglang", SETTINGS).flags == {
        "--chunked-prefill-size": 1024,
        "--enable-mixed-chunk": True,
        "--max-running-requests": 256,
        "--mem-fraction-static": 0.85,
        "--tp-size": 2,
        "--dtype": "bfloat16",
    }
    sarathi = engine_flags("sarathi", SETTINGS)
    assert sarathi.flags["--sarathi_scheduler_config_chunk_size"] == 1024
    assert sarathi.flags["--sarathi_scheduler_config_max_num_seqs"] == 256
    assert sarathi.flags["--parallel_config_pipeline_parallel_size"] == 1


@given(budget=st.integers(1, 4096), slots=st.integers(1, 4096))
def test_vllm_starts_only_with_a_budget_of_at_least_its_slots(budget: int, slots: int) -> None:
    flags = engine_flags("vllm", replace(SETTINGS, token_budget=budget, max_num_seqs=slots)).flags
    assert int(flags["--max-num-batched-tokens"]) == max(budget, slots)


@given(st.floats(0.01, 1.0))
def test_memory_is_never_rounded_up(share: float) -> None:
    told = engine_flags("vllm", replace(SETTINGS, memory_utilisation=share)).flags["--gpu-memory-utilization"]
    assert share - 1e-3 <= float(told) <= share + 1e-9


def test_eight_bit_caches_and_weights_are_asked_for() -> None:
    eight = replace(SETTINGS, dtype="fp8", kv_dtype="fp8")
    vllm, sglang = engine_flags("vllm", eight).flags, engine_flags("sglang", eight).flags
    assert (vllm["--quantization"], vllm["--kv-cache-dtype"]) == ("fp8", "fp8")
    assert (sglang["--quantization"], sglang["--kv-cache-dtype"]) == ("fp8", "fp8_e4m3")
    assert "--dtype" not in vllm
    assert engine_flags("vllm", replace(SETTINGS, dtype="w4a16")).flags["--dtype"] == "auto"


def test_a_path_with_spaces_is_quoted() -> None:
    assert "'my model'" in engine_flags("vllm", replace(SETTINGS, model="my model")).command()


def test_an_unknown_engine_is_named_with_its_neighbours() -> None:
    with pytest.raises(InputError, match=r"engine 'vlm' is not known; did you mean vllm\?"):
        engine_flags("vlm", SETTINGS)
