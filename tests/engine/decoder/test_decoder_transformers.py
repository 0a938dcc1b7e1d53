"""Logits equal to transformers' own models on the same weights: whole, chunked, decoding, mixed; scattered blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

NEEDS = ("transformers",)
LIMIT = 1e-4
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
SMALL = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama heads alone": ("Llama", {"num_key_value_heads": 4}),
    "llama one kv head of 8": ("Llama", {"num_attention_heads": 8, "num_key_value_heads": 1}),
    "llama head_dim": ("Llama", {"head_dim": 24}),
    "llama biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama tied": ("Llama", {"tie_word_embeddings": True}),
    "llama linear": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 3.0, "rope_theta": 5000.0}}),
    "llama llama3": (
        "Llama",
        {"rope_parameters": {**LLAMA3, "rope_theta": 500.0, "original_max_position_embeddings": 16}},
    ),
    "llama yarn": ("Llama", {"rope_parameters": {**YARN, "rope_theta": 10000.0}}),
    "llama yarn mscale": (
        "Llama",
        {"rope_parameters": {**YARN, "rope_theta": 1000.0, "mscale": 0.7, "mscale_all_dim": 0.9, "truncate": False}},
    ),
    "llama yarn factor": (
        "Llama",
        {"rope_parameters": {**YARN, "rope_theta": 1000.0, "attention_factor": 1.3, "beta_fast": 16.0}},
    ),
    "mistral": ("Mistral", {"sliding_window": None, "rms_norm_eps": 1e-5}),
    "mistral window": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen2 tied, window": (
        "Qwen2",
        {"tie_word_embeddings": True, "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "qwen3 biases, tied, window": (
        "Qwen3",
        {
            "head_dim": 10,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "max_window_layers": 2,
        },
    ),
}


def peer(family: str, fields: dict[str, Any], folder: Path) -> tuple[Any, Any, Any]:
    """Return transformers' model, our configuration from the file it writes, and the weights they share."""
    import transformers

    from tileq_engine.decoder import DecoderConfig, random_weights
    from tileq_engine.decoder.weights import parts

    shape = {**SMALL, **HEADS, **fields}
    config = getattr(transformers, f"{family}Config")(**shape)
    config.architectures = [f"{family}ForCausalLM"]
    config.save_pretrained(folder)
    ours = DecoderConfig.from_json(folder)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    weights = random_weights(ours, seed=11)
    state = {part.name: part.tensor for part in parts(ours, weights)}
    model.load_state_dict(state, strict=not ours.tie_embeddings)
    model.tie_weights()
    assert ours.parameters == sum(p.numel() for p in model.parameters())
    return model, ours, weights


def reference(model: Any, text: np.ndarray) -> Any:
    import torch

    with torch.no_grad():
        return model(torch.from_numpy(text)[None]).logits[0]


def worst_difference(model: Any, ours: Any, weights: Any, seed: int, attention: str, block_tokens: int = 4) -> float:
    from decoder_schedules import random_texts, run_schedule

    from tileq_engine.decoder import Decoder

    rng = np.random.default_rng(seed)
    texts = random_texts(rng, ours.vocab_size, count=5, longest=40)
    decoder = Decoder(ours, weights, blocks=60, block_tokens=block_tokens, attention=attention)
    expected = [reference(model, text) for text in texts]
    seen = run_schedule(rng, decoder, texts, longest_chunk=17)
    return max(float((logits - expected[i][at]).abs().max()) for (i, at), logits in seen.items())


@pytest.mark.parametrize("attention", ["paged", "sdpa"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_transformers(variant: str, attention: str, tmp_path: Path) -> None:
    family, fields = VARIANTS[variant]
    model, ours, weights = peer(family, fields, tmp_path)
    assert worst_difference(model, ours, weights, 5, attention) < LIMIT


def test_a_difference_would_be_seen(tmp_path: Path) -> None:
    """The same comparison fails by far when one thing is wrong: another base, no window, one norm's epsilon."""
    import dataclasses

    model, ours, weights = peer("Mistral", {"sliding_window": 7}, tmp_path)
    for wrong in (
        {"rope_theta": 9000.0},
        {"sliding_window": None, "sliding_layers": ()},
        {"sliding_window": 8},
        {"norm_eps": 1e-2},
    ):
        other = dataclasses.replace(ours, **wrong)
        assert worst_difference(model, other, weights, 5, "paged") > 10 * LIMIT, wrong


@given(
    family=st.sampled_from(["Llama", "Mistral", "Qwen2", "Qwen3"]),
    group=st.integers(1, 8),
    kv_heads=st.integers(1, 3),
    head_dim=st.sampled_from([2, 6, 8, 12]),
    width=st.integers(1, 9),
    layers=st.integers(1, 3),
    block_tokens=st.integers(1, 9),
    window=st.one_of(st.none(), st.integers(1, 20)),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=15)
def test_logits_equal_transformers_at_any_shape(
    tmp_path_factory: pytest.TempPathFactory,
    family: str,
    group: int,
    kv_heads: int,
    head_dim: int,
    width: int,
    layers: int,
    block_tokens: int,
    window: int | None,
    seed: int,
) -> None:
    heads = group * kv_heads
    fields: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": head_dim * heads,
        "head_dim": head_dim,
        "intermediate_size": 8 * width,
        "num_hidden_layers": layers,
    }
    if family == "Mistral":
        fields["sliding_window"] = window
    if family in ("Qwen2", "Qwen3"):
        fields |= {"use_sliding_window": window is not None, "sliding_window": window, "max_window_layers": 1}
    if family == "Qwen2":
        fields.pop("head_dim")  # it has no such field: hidden / heads
    model, ours, weights = peer(family, fields, tmp_path_factory.mktemp("model"))
    attention = "paged" if seed % 2 else "sdpa"
    assert worst_difference(model, ours, weights, seed, attention, max(block_tokens, 4)) < LIMIT


def test_old_files_mean_the_same_as_new_ones(tmp_path: Path) -> None:
    """rope_theta and rope_scaling with `type`, as files were written until 2025."""
    from tileq_engine.decoder import DecoderConfig

    base = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **SMALL, **HEADS}
    old = {**base, "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {**base, "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}}
    read = []
    for name, values in (("old.json", old), ("new.json", new)):
        (tmp_path / name).write_text(json.dumps(values))
        read.append(DecoderConfig.from_json(tmp_path / name))
    assert read[0] == read[1]
    assert read[0].rope_scaling is not None


@pytest.mark.campaign
@pytest.mark.parametrize("variant", ["llama", "qwen3"])
def test_fused_by_torch_compile_the_logits_are_the_same(variant: str, tmp_path: Path) -> None:
    """Half a minute of compilation each."""
    from decoder_schedules import random_texts, run_schedule

    from tileq_engine.decoder import Decoder

    family, fields = VARIANTS[variant]
    model, ours, weights = peer(family, fields, tmp_path)
    rng = np.random.default_rng(5)
    texts = random_texts(rng, ours.vocab_size, count=5, longest=40)
    seen = run_schedule(rng, Decoder(ours, weights, blocks=60, block_tokens=4, fuse=True), texts, longest_chunk=17)
    expected = [reference(model, text) for text in texts]
    assert max(float((logits - expected[i][at]).abs().max()) for (i, at), logits in seen.items()) < LIMIT
