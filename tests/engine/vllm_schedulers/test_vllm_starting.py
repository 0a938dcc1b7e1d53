"""What is refused, said or counted when a scheduler starts: each line of the page's table. No vLLM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tileq_engine.vllm.machine import Machine
from tileq_engine.vllm.settings import read_settings
from tileq_engine.vllm.starting import refuse_what_is_not_supported, warnings_of
from tileq_theory.errors import InputError

PLAN: dict[str, Any] = {
    "engine": "vllm",
    "token_budget": 64,
    "max_num_seqs": 16,
    "rate_per_s": 20.0,
    "model": {"name": "llama-3.1-8b", "layers": 32},
    "gpu": {"name": "h100-sxm"},
    "tp": 2,
    "kv_tokens": 100_000,
    "iteration_time": {"launch_s": 0.01, "token_s": 1e-5, "tile_s": 0.002},
}
HERE = Machine("llama", {"num_hidden_layers": 32}, "NVIDIA H100 80GB HBM3", 2, 95_000)


def vllm(**changes: Any) -> Any:
    """Return as much of a vLLM scheduler as is looked at, with fields of it or of its parts changed."""
    parts: dict[str, Any] = {
        "parallel_config": SimpleNamespace(pipeline_parallel_size=1),
        "model_config": SimpleNamespace(runner_type="generate", is_diffusion=False),
        "scheduler_config": SimpleNamespace(long_prefill_token_threshold=0, enable_chunked_prefill=True),
        "kv_transfer_config": None,
        "ec_transfer_config": None,
    }
    own: dict[str, Any] = {
        "is_encoder_decoder": False,
        "need_mamba_block_aligned_split": False,
        "policy": SimpleNamespace(value="fcfs"),
    }
    for name, value in changes.items():
        part, _, field = name.partition("__")
        if field:
            setattr(parts[part], field, value)
        elif part in parts:
            parts[part] = value
        else:
            own[part] = value
    return SimpleNamespace(vllm_config=SimpleNamespace(**parts), scheduler_config=parts["scheduler_config"], **own)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parallel_config__pipeline_parallel_size": 2}, "pipeline parallelism"),
        ({"kv_transfer_config": object()}, "a KV connector"),
        ({"ec_transfer_config": object()}, "an encoder cache connector"),
        ({"is_encoder_decoder": True}, "encoder-decoder models"),
        ({"model_config__runner_type": "pooling"}, "pooling models"),
        ({"model_config__is_diffusion": True}, "diffusion models"),
        ({"need_mamba_block_aligned_split": True}, "Mamba layers in 'align' mode"),
        ({"policy": SimpleNamespace(value="priority")}, "--scheduling-policy priority"),
        ({"scheduler_config__long_prefill_token_threshold": 64}, "--long-prefill-token-threshold"),
        ({"scheduler_config__enable_chunked_prefill": False}, "chunked prefill switched off"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_what_the_rules_cannot_describe_is_refused(change: dict[str, Any], says: str) -> None:
    refuse_what_is_not_supported(vllm())
    with pytest.raises(InputError, match="use vLLM's own scheduler there") as caught:
        refuse_what_is_not_supported(vllm(**change))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": {"name": "llama-3.1-70b", "layers": 80}}, "the plan is for llama-3.1-70b with 80 layers"),
        ({"gpu": {"name": "a100-sxm"}}, "the plan is for a a100-sxm, this is NVIDIA H100"),
        ({"tp": 4}, "the plan has 4 GPUs a copy, vLLM runs with 2"),
        ({"kv_tokens": 200_000}, "the plan counts on 200000 KV tokens, vLLM has 95000"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_a_plan_for_another_machine_is_refused_or_said(change: dict[str, Any], says: str) -> None:
    assert warnings_of(read_settings({"plan": PLAN}), HERE) == []
    with pytest.raises(InputError, match=r"allow_other_machine") as caught:
        warnings_of(read_settings({"plan": {**PLAN, **change}}), HERE)
    assert says in str(caught.value)
    told = warnings_of(read_settings({"plan": {**PLAN, **change}, "allow_other_machine": True}), HERE)
    assert len(told) == 1 and says in told[0]


def test_a_tier_that_cannot_be_kept_is_said_at_the_start() -> None:
    """The shortest iteration is the constant, a tile and a token: 12.01 ms."""
    tiers = {"gold": {"tbt_limit_s": 0.012}, "silver": {"tbt_limit_s": 0.0121}}
    told = warnings_of(read_settings({"plan": PLAN, "tiers": tiers}), HERE)
    assert told == ["tier 'gold' promises 0.012 s between tokens; the plan's shortest iteration takes 0.01201 s"]


@pytest.mark.parametrize("given", [0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(given: Any) -> None:
    from tileq_engine.vllm.asked import asked_of

    with pytest.raises(InputError, match="tileq_tbt_limit_s"):
        asked_of({"tileq_tbt_limit_s": given}, read_settings())
