"""KV capacity: the formula, two engines' own counts, and models that do not fit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.hardware import Gpu, kv_capacity_tokens, load_gpu, load_model
from tileq_theory.hardware.kv_capacity import reserve_bytes

H100, LLAMA, BIG = load_gpu("h100-sxm"), load_model("llama-3.1-8b"), load_model("llama-3.1-70b")


def test_formula() -> None:
    free = 0.9 * 81559 * 2**20 - 2 * LLAMA.params_total - 1e9
    assert kv_capacity_tokens(H100, LLAMA, activation_reserve_bytes=1e9) == math.floor(free / 131072)
    two = 0.8 * 81559 * 2**20 - 2 * BIG.params_total / 4 - 2e9
    assert kv_capacity_tokens(H100, BIG, tp=4, utilisation=0.8, activation_reserve_bytes=2e9) == math.floor(two / 81920)


def test_reserve_formula() -> None:
    # 16-bit h = 4096 four times, q, k, v, three MLP widths; logits of 256 sequences, 10 bytes each
    by_hand = 1.05 * 2**30 + 2 * 2048 * (4 * 4096 + 4096 + 2 * 1024 + 3 * 14336) + 10 * 256 * 128256
    assert reserve_bytes(LLAMA) == pytest.approx(by_hand, rel=1e-12)
    auto = kv_capacity_tokens(H100, LLAMA)
    assert auto == kv_capacity_tokens(H100, LLAMA, activation_reserve_bytes=by_hand)
    assert kv_capacity_tokens(H100, LLAMA, token_budget=16384) < auto < kv_capacity_tokens(H100, LLAMA, max_num_seqs=8)


def test_vllm_on_rtx_4090(data: Path) -> None:
    """vLLM 0.19 counted its cache blocks for Llama-3.1-8B on an RTX 4090; the formula lies within 2 %."""
    meta = json.loads((data / "llmservingsim/bench/examples/RTX4090/Llama-3.1-8B/vllm/meta.json").read_text())
    run = meta["engine_kwargs"]
    tokens = kv_capacity_tokens(
        load_gpu("rtx-4090"),
        LLAMA,
        utilisation=meta["kv_cache"]["gpu_memory_utilization"],
        token_budget=run["max_num_batched_tokens"],
        max_num_seqs=run["max_num_seqs"],
    )
    assert tokens == pytest.approx(meta["kv_cache"]["num_kv_tokens"], rel=0.02)


def test_sarathi_on_rtx_6000_ada() -> None:
    """SLAI's run of Mistral-7B on an RTX 6000 Ada had 14 733 blocks of 16 tokens; the formula lies within 2 %."""
    assert kv_capacity_tokens(load_gpu("rtx-6000-ada"), load_model("mistral-7b")) == pytest.approx(
        14_733 * 16, rel=0.02
    )


def test_kv_dtype_and_dtype_make_room() -> None:
    sixteen = kv_capacity_tokens(H100, LLAMA)
    assert kv_capacity_tokens(H100, LLAMA, kv_dtype="fp8") == pytest.approx(2 * sixteen, abs=2)
    assert kv_capacity_tokens(H100, LLAMA, dtype="w4a16") > kv_capacity_tokens(H100, LLAMA, dtype="fp8") > sixteen


@given(st.sampled_from([1, 2, 4, 8]), st.floats(0.5, 0.95), st.floats(1.01, 2.0))
def test_never_falls_with_memory_utilisation_or_ranks(tp: int, utilisation: float, factor: float) -> None:
    base = kv_capacity_tokens(H100, LLAMA, tp=tp, utilisation=utilisation)
    more = replace(H100, memory_bytes=H100.memory_bytes * factor)
    assert kv_capacity_tokens(more, LLAMA, tp=tp, utilisation=utilisation) >= base
    assert kv_capacity_tokens(H100, LLAMA, tp=tp, utilisation=min(1.0, utilisation * factor)) >= base
    assert kv_capacity_tokens(H100, LLAMA, tp=2 * tp, utilisation=utilisation) >= base


def test_a_model_that_does_not_fit_says_what_is_missing_and_what_would() -> None:
    with pytest.raises(InputError) as caught:
        kv_capacity_tokens(H100, BIG)
    message = str(caught.value)
    missing = 2 * BIG.params_total + reserve_bytes(BIG) + 327680 - 0.9 * H100.memory_bytes
    assert f"{missing / 2**30:.1f} GiB a GPU are missing" in message
    assert "131.4 GiB of bf16 weights" in message and "use tp 2 or dtype fp8" in message and "\n" not in message


def test_the_remedies_named_do_work() -> None:
    gpu = load_gpu("rtx-a6000")
    with pytest.raises(InputError, match=r"use tp 4 or dtype w4a16"):
        kv_capacity_tokens(gpu, BIG)
    assert kv_capacity_tokens(gpu, BIG, tp=4) > 0
    assert kv_capacity_tokens(gpu, BIG, dtype="w4a16") > 0
    for less in ({"tp": 2}, {"dtype": "int8"}):
        with pytest.raises(InputError):
            kv_capacity_tokens(gpu, BIG, **less)  # type: ignore[arg-type]
    small = Gpu("small", "Test", {"bf16": 1e14}, 1e9, 1e12)
    with pytest.raises(InputError, match="use a GPU with more memory"):
        kv_capacity_tokens(small, BIG)


@pytest.mark.parametrize("utilisation", [0.0, -0.5, 1.01, math.nan])
def test_bad_utilisation(utilisation: float) -> None:
    with pytest.raises(InputError, match="utilisation"):
        kv_capacity_tokens(H100, LLAMA, utilisation=utilisation)


def test_bad_reserve_budget_and_tp() -> None:
    with pytest.raises(InputError, match="activation_reserve_bytes"):
        kv_capacity_tokens(H100, LLAMA, activation_reserve_bytes=-1.0)
    with pytest.raises(InputError, match="token_budget"):
        kv_capacity_tokens(H100, LLAMA, token_budget=0)
    with pytest.raises(InputError, match="tp is 3"):
        kv_capacity_tokens(H100, LLAMA, tp=3)
