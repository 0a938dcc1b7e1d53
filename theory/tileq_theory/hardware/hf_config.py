"""Reading a Hugging Face config.json into a `Model`.

Traps handled here: num_key_value_heads absent (as many as heads); head_dim absent or null (hidden/heads, or the
architecture's own default); tie_word_embeddings absent (the architecture's default, true for Gemma); experts under
num_local_experts or num_experts; multimodal files that nest the language model; a sliding_window that
use_sliding_window switches off; Gemma 3 files that leave heads and vocabulary to the architecture's defaults.
"""

from __future__ import annotations

__all__ = ["model_from_config", "read_config"]

from pathlib import Path
from typing import Any

from tileq_theory.errors import InputError
from tileq_theory.hardware.files import is_there, read_json_object
from tileq_theory.hardware.hf_families import FAMILIES, Family
from tileq_theory.hardware.model import Model
from tileq_theory.provenance import Provenance

_LARGEST = 10**9  # no size of a model comes near; a larger number is a corrupt file
_MOST_LAYERS = 10_000
_NESTED = ("text_config", "llm_config", "language_config")


class _Facts:
    """Checked access to the keys of one config.json; every complaint names the file and the key."""

    def __init__(self, where: str, config: dict[str, Any]) -> None:
        self.where = where
        self.config = config

    def count(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return a whole number; `default` when the key is absent or null; `InputError` when that is None too."""
        value = self.config.get(key)
        if value is None:
            if default is None:
                raise InputError(f"{self.where}: key {key!r} is missing; expected a whole number of {least} or more")
            return default
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not least <= value <= _LARGEST or value != int(value):
            raise InputError(f"{self.where}: {key} is {value!r}; expected a whole number from {least} to {_LARGEST}")
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        """Return a true-or-false value; `default` when the key is absent or null."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{self.where}: {key} is {value!r}; expected true or false")
        return value

    def first(self, *keys: str) -> str:
        """Return the first of `keys` that is present; `InputError` naming all of them when none is."""
        for key in keys:
            if self.config.get(key) is not None:
                return key
        raise InputError(f"{self.where}: key {' or '.join(map(repr, keys))} is missing")


def read_config(path: Path) -> Model:
    """Return the model of a config.json, or of the folder that holds one."""
    file = path
    if is_there(path) and path.is_dir():
        file = path / "config.json"
        if not file.is_file():
            raise InputError(
                f"{path} is a folder without a config.json; expected a config.json or a folder holding one"
            )
    bare = file.with_suffix("") if file.suffix == ".gz" else file
    name = file.parent.name if bare.name == "config.json" else bare.stem
    return model_from_config(read_json_object(file), where=str(file), name=name or "model")


def model_from_config(config: dict[str, Any], *, where: str = "config.json", name: str = "model") -> Model:
    """Return the `Model` of an already parsed config.json; `where` and `name` label errors and the result.

    Examples
    --------
    >>> model_from_config({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
    ...                    "intermediate_size": 16, "vocab_size": 10}).kv_heads
    2
    """
    notes: list[str] = []
    inner = _language_part(config, where)
    family_name, family = _family(config, inner, where, notes)
    facts = _Facts(where, {**family.absent_keys, **inner})
    for key in family.absent_keys:
        if key not in inner:
            notes.append(f"{key} is not in the file: the {family_name} default {family.absent_keys[key]}")
    tied = facts.flag("tie_word_embeddings", _Facts(where, config).flag("tie_word_embeddings", family.tied))
    hub_id = inner.get("_name_or_path") or config.get("_name_or_path") or ""
    quantised = config.get("quantization_config") or inner.get("quantization_config")
    if isinstance(quantised, dict):
        notes.append(f"the checkpoint is quantised ({quantised.get('quant_method', 'unknown')}): choose dtype to match")
    layers = facts.count("num_hidden_layers")
    if layers > _MOST_LAYERS:
        raise InputError(f"{where}: num_hidden_layers is {layers}; expected at most {_MOST_LAYERS}")
    heads = facts.count("num_attention_heads")
    return Model(
        name=name,
        layers=layers,
        hidden=facts.count("hidden_size"),
        heads=heads,
        kv_heads=facts.count("num_key_value_heads", heads),
        head_dim=_head_dim(facts, inner, family, heads),
        vocab=facts.count("vocab_size"),
        tied_embeddings=tied,
        qkv_bias=family.qkv_bias or facts.flag("attention_bias", family.attention_bias),
        o_bias=facts.flag("attention_bias", family.attention_bias) and not family.qkv_bias,
        qk_norm=family.qk_norm,
        norms_per_layer=family.norms_per_layer,
        context_tokens=facts.count("max_position_embeddings", 0) or None,
        hf_id=hub_id if isinstance(hub_id, str) else "",
        provenance=Provenance("datasheet", where, tuple(notes)),
        **_mlp(facts, family, layers, heads),
        **_sliding(facts, family, layers),
    )


def _language_part(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the part that describes the language model (multimodal files nest it)."""
    for key in _NESTED:
        if key in config:
            inner = config[key]
            if not isinstance(inner, dict):
                raise InputError(f"{where}: {key} is {inner!r}; expected an object")
            return inner
    return config


def _family(config: dict[str, Any], inner: dict[str, Any], where: str, notes: list[str]) -> tuple[str, Family]:
    name = inner.get("model_type") or config.get("model_type")
    if name is None:
        if inner.get("architectures") or config.get("architectures"):
            given = inner.get("architectures") or config.get("architectures")
            raise InputError(f"{where}: key 'model_type' is missing (architectures is {given!r}); add it")
        notes.append("model_type is not in the file: taken as a Llama-like architecture")
        return "llama", FAMILIES["llama"]
    key = str(name).lower()
    if key not in FAMILIES:
        raise InputError(
            f"{where}: model_type {name!r} is not supported; supported: {', '.join(sorted(FAMILIES))} "
            f"(for another architecture give its sizes to tileq_theory.hardware.Model)"
        )
    if inner.get("kv_lora_rank") is not None:
        raise InputError(f"{where}: key 'kv_lora_rank' (multi-head latent attention) is not supported")
    return key, FAMILIES[key]


def _head_dim(facts: _Facts, inner: dict[str, Any], family: Family, heads: int) -> int:
    if "head_dim" not in inner and family.head_dim is not None:
        return family.head_dim
    hidden = facts.count("hidden_size")
    if inner.get("head_dim") is None and hidden % heads:
        raise InputError(
            f"{facts.where}: key 'head_dim' is missing and hidden_size {hidden} is no multiple of "
            f"num_attention_heads {heads}"
        )
    return facts.count("head_dim", hidden // heads)


def _mlp(facts: _Facts, family: Family, layers: int, heads: int) -> dict[str, int]:
    """Return intermediate and the facts of a mixture of experts."""
    if family.experts is None:
        width = facts.count("intermediate_size")
        bias = (2 * width + facts.count("hidden_size")) if facts.flag("mlp_bias", False) else 0
        return {"intermediate": width, "other_layer_params": bias}
    experts = facts.count(facts.first(*family.experts))
    per_token = facts.count(facts.first("num_experts_per_tok", "experts_per_token"))
    width = facts.count(family.expert_width)
    shared = facts.count("shared_expert_intermediate_size", 0, least=0) if family.shared_expert else 0
    hidden = facts.count("hidden_size")
    small = hidden if shared else 0  # the gate of the shared expert
    if family.sinks_and_expert_bias:
        small += heads + experts * (2 * width + hidden + 1)
    mixtures = _mixture_layers(facts, layers) if family.dense_layers else layers
    return {
        "intermediate": facts.count("intermediate_size") if mixtures < layers else 0,
        "experts": experts,
        "experts_per_token": per_token,
        "moe_layers": mixtures,
        "moe_intermediate": width,
        "shared_intermediate": shared,
        "other_layer_params": small,
    }


def _mixture_layers(facts: _Facts, layers: int) -> int:
    """Return how many layers are mixtures: every decoder_sparse_step-th, but not those of mlp_only_layers."""
    step = facts.count("decoder_sparse_step", 1)
    dense = facts.config.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise InputError(f"{facts.where}: mlp_only_layers is {dense!r}; expected a list of layer numbers")
    return sum(1 for i in range(layers) if i not in dense and (i + 1) % step == 0)


def _sliding(facts: _Facts, family: Family, layers: int) -> dict[str, int]:
    """Return sliding_window_tokens and sliding_layers."""
    window = facts.count("sliding_window", 0, least=0) or None
    if window is None or family.sliding == "never" or not facts.flag("use_sliding_window", family.sliding != "opt-in"):
        return {}
    types = facts.config.get("layer_types")
    if isinstance(types, list):
        count = sum(1 for t in types if t == "sliding_attention")
    elif family.sliding == "opt-in":
        count = max(layers - facts.count("max_window_layers", layers, least=0), 0)
    elif family.sliding == "pattern":
        period = facts.count("sliding_window_pattern", family.sliding_period)
        count = layers - layers // period
    else:
        count = layers
    return {"sliding_window_tokens": window, "sliding_layers": count} if count else {}
