"""config.json files as they lie on disk: what they leave out, where they put it, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileq_theory.errors import InputError
from tileq_theory.hardware import Model, load_model
from tileq_theory.hardware.hf_config import model_from_config

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
}
GEMMA_2_2B: dict[str, Any] = {
    "model_type": "gemma2",
    "num_hidden_layers": 26,
    "hidden_size": 2304,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "intermediate_size": 9216,
    "vocab_size": 256000,
    "sliding_window": 4096,
}
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN3_30B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "sliding_window": None,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
}
QWEN25_7B: dict[str, Any] = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "max_window_layers": 28,
    "tie_word_embeddings": False,
}
GPT_OSS_20B: dict[str, Any] = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "quantization_config": {"quant_method": "mxfp4"},
}


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k not in keys}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_8B, "llama-3.1-8b"),
        (GEMMA_2_2B, "gemma-2-2b"),
        (MIXTRAL, "mixtral-8x7b"),
        (QWEN3_30B, "qwen3-30b-a3b"),
        (QWEN25_7B, "qwen2.5-7b"),
    ],
)
def test_files_give_the_catalogue_row(config: dict[str, Any], name: str) -> None:
    read, row = model_from_config(config), load_model(name)
    for fact in set(Model.__slots__) - {"name", "hf_id", "context_tokens", "provenance"}:
        assert getattr(read, fact) == getattr(row, fact), fact


def test_gpt_oss_counts() -> None:
    """OpenAI publishes 20.9 B parameters, 3.6 B of them active."""
    model = model_from_config(GPT_OSS_20B)
    assert model.params_total == pytest.approx(20.91e9, rel=2e-3)
    assert model.params_active == pytest.approx(3.61e9, rel=0.17)  # they leave out one of the two embedding tables
    assert (model.sliding_layers, model.sliding_window_tokens) == (12, 128)
    assert any("mxfp4" in note for note in model.provenance.notes)


def test_heads_and_head_dim_left_out() -> None:
    mha = model_from_config(without(LLAMA_8B, "num_key_value_heads"))
    assert mha.kv_heads == 32
    assert model_from_config({**LLAMA_8B, "num_key_value_heads": None}).kv_heads == 32
    for config in (without(LLAMA_8B, "head_dim"), {**LLAMA_8B, "head_dim": None}):
        assert model_from_config(config).head_dim == 128
    assert model_from_config({**LLAMA_8B, "head_dim": 64}).head_dim == 64
    # the architecture's own default where hidden / heads is not it (Qwen3-32B: 5120 / 64 = 80, but 128)
    qwen = {
        **without(QWEN25_7B, "sliding_window"),
        "model_type": "qwen3",
        "hidden_size": 5120,
        "num_attention_heads": 64,
    }
    assert model_from_config(qwen).head_dim == 128
    assert model_from_config(without(GEMMA_2_2B, "head_dim")).head_dim == 256


def test_tied_embeddings_by_architecture() -> None:
    assert model_from_config(GEMMA_2_2B).tied_embeddings
    assert not model_from_config({**GEMMA_2_2B, "tie_word_embeddings": False}).tied_embeddings
    assert not model_from_config(without(LLAMA_8B, "tie_word_embeddings")).tied_embeddings
    assert model_from_config({**LLAMA_8B, "tie_word_embeddings": True}).tied_embeddings


def test_multimodal_files_nest_the_language_model() -> None:
    nested = {"model_type": "llava", "vision_config": {"hidden_size": 1}, "text_config": LLAMA_8B}
    assert model_from_config(nested) == model_from_config(LLAMA_8B)
    # Gemma 3 4B leaves heads and vocabulary to the architecture, and ties its embeddings without saying so
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    model = model_from_config({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    assert (model.heads, model.kv_heads, model.head_dim, model.vocab) == (8, 4, 256, 262208)
    assert model.tied_embeddings and (model.sliding_layers, model.norms_per_layer) == (29, 4)
    assert any("vocab_size is not in the file" in note for note in model.provenance.notes)
    assert model.params_total == load_model("gemma-3-4b-it").params_total + 64 * 2560  # 64 more rows than the catalogue
    tied = model_from_config(
        {"model_type": "x", "tie_word_embeddings": True, "text_config": without(LLAMA_8B, "tie_word_embeddings")}
    )
    assert tied.tied_embeddings


def test_sliding_windows_that_are_switched_off() -> None:
    assert model_from_config(QWEN25_7B).sliding_layers == 0
    on = model_from_config({**QWEN25_7B, "use_sliding_window": True, "max_window_layers": 20})
    assert (on.sliding_layers, on.sliding_window_tokens) == (8, 131072)
    mistral = {**MIXTRAL, "model_type": "mistral", "sliding_window": 4096}
    assert model_from_config(mistral).sliding_layers == 32
    assert model_from_config({**mistral, "sliding_window": None}).sliding_layers == 0
    assert model_from_config({**GEMMA_2_2B, "sliding_window": None}).sliding_layers == 0


def test_mixtures_under_either_key_and_with_dense_layers() -> None:
    other = {**without(MIXTRAL, "num_local_experts"), "num_experts": 8}
    assert model_from_config(other).params_total == model_from_config(MIXTRAL).params_total
    half = model_from_config({**QWEN3_30B, "decoder_sparse_step": 2})
    assert (half.moe_layers, half.intermediate) == (24, 6144)
    some = model_from_config({**QWEN3_30B, "mlp_only_layers": [0, 1, 2]})
    assert (some.moe_layers, some.intermediate) == (45, 6144)


def test_shared_expert_of_qwen2_moe() -> None:
    """Qwen1.5-MoE-A2.7B: 14.3 B parameters, 2.7 B active (its card)."""
    config = {
        "model_type": "qwen2_moe",
        "num_hidden_layers": 24,
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "intermediate_size": 5632,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "vocab_size": 151936,
        "decoder_sparse_step": 1,
    }
    model = model_from_config(config)
    assert model.params_total == pytest.approx(14.316e9, rel=1e-4)
    assert model.params_active == pytest.approx(2.69e9, rel=0.01)


def test_biases() -> None:
    plain, biased = (
        model_from_config(LLAMA_8B),
        model_from_config({**LLAMA_8B, "attention_bias": True, "mlp_bias": True}),
    )
    per_layer = (4096 + 2 * 1024) + 4096 + (2 * 14336 + 4096)
    assert biased.params_total - plain.params_total == 32 * per_layer


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_missing_keys_are_named(key: str) -> None:
    with pytest.raises(InputError, match=rf"{key}.*missing"):
        model_from_config(without(LLAMA_8B, key))


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({**LLAMA_8B, "model_type": "deepseek_v3"}, "'deepseek_v3' is not supported; supported: .*llama"),
        (without(LLAMA_8B, "model_type"), "'model_type' is missing"),
        ({**LLAMA_8B, "vocab_size": "128256"}, "vocab_size is '128256'"),
        ({**LLAMA_8B, "vocab_size": True}, "vocab_size is True"),
        ({**LLAMA_8B, "num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({**LLAMA_8B, "num_hidden_layers": 1.5}, "num_hidden_layers is 1.5"),
        ({**LLAMA_8B, "num_hidden_layers": 10**8}, "num_hidden_layers is 100000000"),
        ({**LLAMA_8B, "hidden_size": float("inf")}, "hidden_size is inf"),
        ({**LLAMA_8B, "hidden_size": 10**400}, "hidden_size is 1000"),
        ({**LLAMA_8B, "tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'"),
        ({**LLAMA_8B, "num_attention_heads": 30}, "head_dim"),
        ({**LLAMA_8B, "num_key_value_heads": 7}, "not a multiple of 7 kv_heads"),
        (without(MIXTRAL, "num_local_experts"), "'num_local_experts' or 'num_experts' is missing"),
        (without(QWEN3_30B, "moe_intermediate_size"), "moe_intermediate_size"),
        (without(QWEN3_30B, "num_experts_per_tok"), "'num_experts_per_tok'"),
        ({**QWEN3_30B, "mlp_only_layers": 3}, "mlp_only_layers is 3"),
        ({"text_config": 3}, "text_config is 3"),
        ({**LLAMA_8B, "kv_lora_rank": 512}, "kv_lora_rank"),
        ({}, "num_hidden_layers"),
    ],
)
def test_unusable_files_get_one_clear_line(config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as caught:
        model_from_config(config, where="some/config.json")
    assert "\n" not in str(caught.value)


def test_bare_facts_are_taken_as_llama_and_say_so() -> None:
    bare = model_from_config(without(LLAMA_8B, "model_type", "architectures"))
    assert bare.params_total == load_model("llama-3.1-8b").params_total
    assert any("Llama-like" in note for note in bare.provenance.notes)


# ---------------------------------------------------------------- files and folders


def test_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama"
    folder.mkdir()
    with pytest.raises(InputError, match=r"without a config\.json"):
        load_model(folder)
    with pytest.raises(InputError, match=r"without a config\.json"):
        load_model(str(folder))
    (folder / "config.json").write_text(json.dumps(LLAMA_8B))
    for path in (folder, str(folder), folder / "config.json", str(folder / "config.json")):
        model = load_model(path)
        assert (model.name, model.params_total, model.context_tokens) == ("My-Llama", 8_030_261_248, 131072)
    other = tmp_path / "other.json"
    other.write_text(json.dumps(LLAMA_8B))
    assert load_model(other).name == "other"
    with pytest.raises(InputError, match="no such file"):
        load_model(tmp_path / "none" / "config.json")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"vocab_size": 1, "vocab_size": 2}', "'vocab_size' appears twice"),
        ('{"a": {"b": 1, "b": 2}}', "'b' appears twice"),
        ("[]", "expected an object"),
        ("not json", "not valid JSON"),
        ('{"vocab_size": Infinity}', "Infinity"),
        ("[" * 100_000, "not valid JSON"),
        ('{"vocab_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"vocab_size": 1e999}', "missing"),
    ],
)
def test_malformed_files(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False) | st.sampled_from(["", "8"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "vocab_size"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*QWEN3_30B, "text_config", "attention_bias", "layer_types"]), json_values))
def test_fuzzed_values_give_a_model_or_one_line(changes: dict[str, Any]) -> None:
    try:
        model = model_from_config({**QWEN3_30B, **changes})
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert model.params_total >= model.params_active > 0
