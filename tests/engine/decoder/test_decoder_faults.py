"""Faults: files that do not fit, too many blocks, numbers that are not finite. One line each, naming the thing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_theory.errors import InputError

NEEDS = ("transformers", "safetensors")
LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def read(folder: Path, **changes: Any) -> Any:
    from tileq_engine.decoder import DecoderConfig

    values = {k: v for k, v in {**LLAMA, **changes}.items() if v != "absent"}
    (folder / "config.json").write_text(json.dumps(values))
    return DecoderConfig.from_json(folder)


def refused(folder: Path, *words: str, **changes: Any) -> None:
    with pytest.raises(InputError) as caught:
        read(folder, **changes)
    text = str(caught.value)
    assert "\n" not in text
    for word in ("config.json", *words):
        assert word in text, text


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
            ["GPT2LMHeadModel", "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM"],
        ),
        ({"architectures": "absent", "model_type": "mamba"}, ["mamba", "supported"]),
        ({"architectures": ["Qwen2ForCausalLM"]}, ["Qwen2ForCausalLM", "llama"]),
        ({"hidden_size": "absent"}, ["hidden_size is missing"]),
        ({"vocab_size": "many"}, ["vocab_size", "'many'", "whole number"]),
        ({"num_hidden_layers": True}, ["num_hidden_layers", "True"]),
        ({"num_hidden_layers": 0}, ["layers", "0"]),
        ({"num_key_value_heads": 3}, ["4 heads", "3 kv_heads"]),
        ({"hidden_size": 34}, ["34", "not a multiple"]),
        ({"hidden_act": "gelu"}, ["gelu", "silu"]),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, ["'dynamic'", "linear, llama3, yarn"]),
        ({"rope_scaling": {"type": "longrope"}}, ["'longrope'"]),
        ({"rope_scaling": {"rope_type": "linear"}}, ["factor is missing"]),
        ({"rope_scaling": {"rope_type": "linear", "factor": -2}}, ["factor", "-2"]),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8}}, ["low_freq_factor is missing"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor", "0.5"]),
        ({"quantization_config": {"quant_method": "gptq"}}, ["quantised"]),
        ({"num_local_experts": 8}, ["mixture of experts"]),
        ({"eos_token_id": "x"}, ["eos_token_id"]),
        ({"head_dim": 7}, ["head_dim", "even"]),
    ],
)
def test_a_config_that_cannot_run_is_refused(changes: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    refused(tmp_path, *words, **changes)


def test_a_config_that_is_no_config(tmp_path: Path) -> None:
    from tileq_engine.decoder import DecoderConfig

    with pytest.raises(InputError, match="folder without a config"):
        DecoderConfig.from_json(tmp_path)
    for text in ("{", "[1, 2]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(InputError, match="JSON"):
            DecoderConfig.from_json(tmp_path)


def test_defaults_are_those_of_the_classes(tmp_path: Path) -> None:
    assert read(tmp_path, eos_token_id=[1, 5]).eos_token_ids == (1, 5)
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    assert read(tmp_path, **mistral).sliding_window == 4096
    assert read(tmp_path, **mistral, sliding_window=None).sliding_window is None
    qwen3 = read(tmp_path, architectures="absent", model_type="qwen3")
    assert (qwen3.head_dim, qwen3.qk_norm, qwen3.attention_bias) == (128, True, False)


def test_catalogue_rows_become_decoders_of_the_same_size() -> None:
    """Every dense row of the two norms runs, with as many parameters as the row; the others are refused by name."""
    from tileq_engine.decoder import DecoderConfig
    from tileq_theory.hardware.model_catalog import load_model, model_names

    made, refusals = 0, []
    for name in model_names():
        model = load_model(name)
        try:
            config = DecoderConfig.from_model(model)
        except InputError as error:
            refusals.append(str(error))
            assert name in refusals[-1]
            continue
        made += 1
        assert config.parameters == model.params_total
        assert config.kv_bytes_per_token(2) == model.kv_bytes_per_token()
    assert made >= 5
    assert any("mixture of experts" in text for text in refusals)


def saved(folder: Path) -> tuple[Any, Any]:
    """Write a model folder in several files, by transformers itself; return its configuration and weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from tileq_engine.decoder import DecoderConfig, random_weights
    from tileq_engine.decoder.weights import parts

    model = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in LLAMA.items() if k != "architectures"}))
    model.config.save_pretrained(folder)
    config = DecoderConfig.from_json(folder)
    weights = random_weights(config, 4)
    model.load_state_dict({p.name: p.tensor for p in parts(config, weights)})
    model.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    return config, weights


def test_shards_come_back_as_they_were_written(tmp_path: Path) -> None:
    import torch

    from tileq_engine.decoder import load_weights
    from tileq_engine.decoder.weights import parts

    config, weights = saved(tmp_path)
    again = load_weights(tmp_path)
    half = load_weights(tmp_path, config, torch.bfloat16)
    for one, two, small in zip(*(parts(config, w) for w in (weights, again, half)), strict=True):
        assert torch.equal(one.tensor, two.tensor), one.name
        assert torch.equal(one.tensor.to(torch.bfloat16), small.tensor), one.name


def test_one_file_and_a_tied_table(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    from tileq_engine.decoder import load_weights, random_weights
    from tileq_engine.decoder.weights import parts

    config = read(tmp_path, tie_word_embeddings=True)
    weights = random_weights(config, 1)
    assert weights.head is weights.embedding
    save_file({p.name: p.tensor.contiguous() for p in parts(config, weights)}, tmp_path / "model.safetensors")
    again = load_weights(tmp_path)
    assert torch.equal(again.head, weights.embedding)


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    """Each fault alone, on a folder that is otherwise right."""
    import torch
    from safetensors.torch import load_file, save_file

    from tileq_engine.decoder import load_weights

    config, _ = saved(tmp_path)
    shards = sorted(tmp_path.glob("*.safetensors"))
    kept = {shard: shard.read_bytes() for shard in shards}

    def fails(*words: str, **other: Any) -> None:
        with pytest.raises(InputError) as caught:
            load_weights(tmp_path, other.get("config", config))
        text = str(caught.value)
        assert all(word in text for word in words), text
        assert "\n" not in text

    shards[1].unlink()
    fails(shards[1].name, "missing", "index.json")
    shards[1].write_bytes(kept[shards[1]][:100])
    fails(shards[1].name, "not a readable safetensors file")
    shards[1].write_bytes(kept[shards[1]])
    held = load_file(shards[1])
    name = next(iter(held))
    save_file({k: v for k, v in held.items() if k != name}, shards[1])
    fails(shards[1].name, name)
    save_file({**held, name: torch.zeros(3, 5)}, shards[1])
    fails(shards[1].name, name, "(3, 5)")
    save_file({**held, name: held[name].to(torch.int8)}, shards[1])
    fails(name, "int8", "bfloat16")
    save_file(held, shards[1])
    fails("embed_tokens", "(65, 32)", config=dataclasses.replace(config, vocab_size=65))
    fails("q_proj.bias", config=dataclasses.replace(config, attention_bias=True))
    fails("model.layers.1.", "no place", config=dataclasses.replace(config, layers=1))
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    fails("index.json", "weight_map")
    (tmp_path / "model.safetensors.index.json").unlink()
    fails("neither model.safetensors nor")


def test_a_pool_that_does_not_fit_says_how_many_blocks_would() -> None:
    from tileq_engine.decoder import Decoder, DecoderConfig, blocks_that_fit, random_weights

    config = DecoderConfig.small(layers=1)
    weights = random_weights(config)
    fit = blocks_that_fit(config, "cpu", weights.dtype)
    assert fit > 0
    with pytest.raises(InputError, match=r"\d+ blocks would fit") as caught:
        Decoder(config, weights, blocks=10**12)
    said = int(str(caught.value).split("where ")[1].split()[0])
    assert 0.5 * fit < said < 2 * fit / 0.9  # the free memory of a live machine moves


def small(**changes: Any) -> Any:
    from tileq_engine.decoder import Decoder, DecoderConfig, random_weights

    config = DecoderConfig.small(layers=4, hidden=32, heads=2, kv_heads=1, vocab=40)
    return Decoder(config, random_weights(config, 2), blocks=8, **changes)


def broken(decoder: Any, place: str) -> Any:
    """Return the decoder with one weight (or one cached key) of layer 2 spoilt; packed matrices are copies."""
    from tileq_engine.decoder import Decoder

    nan, layer = float("nan"), decoder.weights.layers[2]
    if place == "layer 2 (attention)":
        layer.output[3, 3] = nan
    elif place == "layer 2 (MLP)":
        layer.down[3, 3] = float("inf")
    elif place == "the embedding":
        decoder.weights.embedding[5] = nan
    elif place == "the output matrix":
        decoder.weights.head[7] = nan
    else:
        decoder.kv.keys[2][3, 1] = nan
    names = {"attention": decoder.attention_name, "arithmetic": decoder.arithmetic}
    again = Decoder(decoder.config, decoder.weights, blocks=8, **names)
    again.kv.data.copy_(decoder.kv.data)
    return again


@pytest.mark.parametrize(
    "place",
    [
        "the embedding",
        "layer 2 (its cache of earlier tokens)",
        "layer 2 (attention)",
        "layer 2 (MLP)",
        "the output matrix",
    ],
)
@pytest.mark.parametrize(("attention", "arithmetic"), [("paged", "packed"), ("paged", "compiled"), ("sdpa", "torch")])
def test_a_logit_that_is_not_finite_is_traced_to_request_and_layer(place: str, attention: str, arithmetic: str) -> None:
    import torch

    from tileq_engine.decoder import Member, NonFiniteLogits, SamplingParams, check_finite, flat_batch, sample

    decoder = small(attention=attention, arithmetic=arithmetic)
    decoder.forward(flat_batch([Member([1, 2, 3], 0, [3])]))
    decoder = broken(decoder, place)
    batch = flat_batch([Member([8, 9], 0, [1], logits=False), Member([6], 0, [0]), Member([5, 4], 3, [3])])
    tokens = sample(decoder.forward(batch), [SamplingParams()] * 2, [1, 5]).tolist()
    before = decoder.kv.data.clone()
    everybody = place not in ("the embedding", "layer 2 (its cache of earlier tokens)")
    assert tokens[1] == -1
    assert (tokens[0] == -1) is everybody
    with pytest.raises(NonFiniteLogits) as caught:
        check_finite(decoder, batch, tokens, ["ann", "bob"])
    assert not torch.is_inference_mode_enabled()  # the error is held, and with it the trace's frames
    assert caught.value.request == ("ann" if everybody else "bob")
    assert caught.value.first_bad == place
    assert place in str(caught.value)
    assert "\n" not in str(caught.value)
    assert torch.equal(decoder.kv.data, before) or np.isnan(before.numpy()).any()


def test_finite_tokens_pass() -> None:
    from tileq_engine.decoder import Member, check_finite, flat_batch

    decoder = small()
    check_finite(decoder, flat_batch([Member([1], 0, [0])]), [3], ["ann"])


@pytest.mark.parametrize(
    ("member", "words"),
    [
        (([], 0, [1]), "brings no token"),
        (([1], -1, [1]), "expected 0 or more"),
        (([1, 2], 15, [1]), "needs room for 17"),
    ],
)
def test_members_that_make_no_sense(member: tuple[Any, ...], words: str) -> None:
    from tileq_engine.decoder import Member, flat_batch

    with pytest.raises(InputError, match=words):
        flat_batch([Member([1], 0, [0]), Member(*member)])


def test_swapping_blocks_that_are_not_there() -> None:
    decoder = small()
    with pytest.raises(InputError, match="block 8 is not in the pool"):
        decoder.copy_out([1, 8])
    with pytest.raises(InputError, match="2 blocks were copied out"):
        decoder.copy_in(decoder.copy_out([1, 2]), [3])


def test_attention_of_another_name() -> None:
    with pytest.raises(InputError, match="paged"):
        small(attention="page")


def test_weights_that_do_not_fit_are_refused_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host grants any size and ends the process when it is used: the size is asked for first."""
    from tileq_engine.decoder import DecoderConfig, random_weights
    from tileq_engine.executor import make_backend

    with pytest.raises(InputError, match=r"need 27484.90 GiB on cpu, where \d+\.\d\d GiB are free"):
        random_weights(DecoderConfig.small(layers=10**7))
    monkeypatch.setattr("tileq_engine.decoder.pool.free_bytes", lambda device: 20_000)
    with pytest.raises(InputError, match="no KV block of 16 tokens fits on cpu beside the weights"):
        make_backend("small")
