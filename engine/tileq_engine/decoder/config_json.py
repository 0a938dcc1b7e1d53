"""Read a Hugging Face config.json; whatever would be silently wrong is refused with one line."""

from __future__ import annotations

__all__ = ["read_config"]

from pathlib import Path
from typing import Any

from tileq_engine.decoder.config import ARCHITECTURES, DecoderConfig, RopeScaling
from tileq_theory.errors import InputError
from tileq_theory.hardware.files import read_json_object

_TYPES = {"llama": 0, "mistral": 1, "qwen2": 2, "qwen3": 3}
_MAX_POSITIONS = {"LlamaForCausalLM": 2048, "MistralForCausalLM": 131_072}  # the classes' own defaults
_UNSEEN = object()


class _Fields:
    """The fields of one file, with errors that name it."""

    def __init__(self, values: dict[str, Any], path: Path) -> None:
        self.values = values
        self.path = path

    def error(self, text: str) -> InputError:
        return InputError(f"{self.path}: {text}")

    def get(self, name: str, kind: type, default: Any = _UNSEEN) -> Any:
        value = self.values.get(name)
        if value is None:
            if default is _UNSEEN:
                raise self.error(f"{name} is missing; expected {_words(kind)}")
            return default
        if not _is(value, kind):
            raise self.error(f"{name} is {value!r}; expected {_words(kind)}")
        return kind(value)


def _is(value: Any, kind: type) -> bool:
    """Return whether a JSON value is of that kind; 4096.0 is a whole number, true is none."""
    if kind in (bool, str) or isinstance(value, bool):
        return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    return isinstance(value, int | float) and (kind is float or value == int(value))


def _words(kind: type) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}[kind]


def read_config(path: Path) -> DecoderConfig:
    """Return the decoder that the config.json at `path` (or in the folder `path`) describes.

    Raises
    ------
    InputError
        The file is absent, not JSON, of an architecture, activation, rotary embedding or quantisation that the decoder
        does not have, or lacks a size.
    """
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise InputError(f"{path} is a folder without a config.json; expected a model folder")
    values = read_json_object(file)
    fields = _Fields(values, file)
    try:
        return _config(fields, _architecture(fields))
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(str(file)) else f"{file}: {text}") from None


def _architecture(f: _Fields) -> str:
    named = f.values.get("architectures") or []
    if not isinstance(named, list):
        raise f.error(f"architectures is {named!r}; expected a list of names")
    kind = f.values.get("model_type")
    name = named[0] if named else ARCHITECTURES[_TYPES[kind]] if kind in _TYPES else kind
    if name not in ARCHITECTURES:
        raise f.error(f"architecture {name!r} is not supported; supported: {', '.join(ARCHITECTURES)}")
    if kind is not None and kind in _TYPES and ARCHITECTURES[_TYPES[kind]] != name:
        raise f.error(f"architecture {name} and model_type {kind!r} contradict each other")
    return str(name)


def _config(f: _Fields, architecture: str) -> DecoderConfig:
    _refuse(f)
    hidden, layers, heads = (f.get(n, int) for n in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    llama, qwen2, qwen3 = (architecture.startswith(n) for n in ("Llama", "Qwen2", "Qwen3"))
    bias = f.get("attention_bias", bool, False) if llama or qwen3 else qwen2
    window, sliding = _window(f, architecture, layers)
    theta, scaling, most = _rope(f, architecture)
    return DecoderConfig(
        vocab_size=f.get("vocab_size", int),
        hidden_size=hidden,
        layers=layers,
        heads=heads,
        kv_heads=f.get("num_key_value_heads", int, heads if llama else _UNSEEN),
        head_dim=_head_dim(f, hidden, heads, qwen3),
        intermediate_size=f.get("intermediate_size", int),
        max_positions=most,
        norm_eps=f.get("rms_norm_eps", float, 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_embeddings=f.get("tie_word_embeddings", bool, False),
        attention_bias=bias,
        output_bias=bias and not qwen2,
        mlp_bias=llama and f.get("mlp_bias", bool, False),
        qk_norm=qwen3,
        sliding_window=window,
        sliding_layers=sliding,
        architecture=architecture,
        eos_token_ids=_eos(f),
    )


def _refuse(f: _Fields) -> None:
    if f.values.get("quantization_config"):
        raise f.error("the weights are quantised (quantization_config); supported: float32, float16 and bfloat16")
    activation = f.values.get("hidden_act") or "silu"
    if activation not in ("silu", "swish"):
        raise f.error(f"hidden_act is {activation!r}; supported: silu")
    if f.values.get("num_local_experts") or f.values.get("num_experts"):
        raise f.error("a mixture of experts is not supported; supported: dense models")
    partial = f.values.get("partial_rotary_factor")
    if partial not in (None, 1, 1.0):
        raise f.error(f"partial_rotary_factor is {partial!r}; supported: 1")


def _head_dim(f: _Fields, hidden: int, heads: int, qwen3: bool) -> int:
    given = f.get("head_dim", int, None)
    if given is not None:
        return int(given)
    if qwen3:
        return 128
    if heads < 1 or hidden % heads:
        raise f.error(f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and head_dim is missing")
    return int(hidden // heads)


def _eos(f: _Fields) -> tuple[int, ...]:
    value = f.values.get("eos_token_id")
    many = value if isinstance(value, list) else [] if value is None else [value]
    if any(not isinstance(v, int) or isinstance(v, bool) for v in many):
        raise f.error(f"eos_token_id is {value!r}; expected a token id or a list of them")
    return tuple(many)


def _window(f: _Fields, architecture: str, layers: int) -> tuple[int | None, tuple[int, ...]]:
    """Mistral: every layer. Qwen: if use_sliding_window, the layers from max_window_layers on or as layer_types say."""
    everywhere = tuple(range(layers))
    if architecture.startswith("Llama"):
        return None, ()
    if architecture.startswith("Mistral"):
        window = f.get("sliding_window", int, None) if "sliding_window" in f.values else 4096
        return (None, ()) if window is None else (window, everywhere)
    if not f.get("use_sliding_window", bool, False):
        return None, ()
    window = f.get("sliding_window", int, 4096)
    kinds = f.values.get("layer_types")
    if kinds is None:
        return window, everywhere[f.get("max_window_layers", int, 28) :]
    if not isinstance(kinds, list) or len(kinds) != layers or not set(kinds) <= {"full_attention", "sliding_attention"}:
        raise f.error(f"layer_types must name full_attention or sliding_attention for each of the {layers} layers")
    return window, tuple(i for i in everywhere if kinds[i] == "sliding_attention")


def _rope(f: _Fields, architecture: str) -> tuple[float, RopeScaling | None, int]:
    """Return base, stretching and longest context; both the fields of old and of new files are known."""
    most = f.get("max_position_embeddings", int, _MAX_POSITIONS.get(architecture, 32_768))
    given = f.values.get("rope_scaling") or f.values.get("rope_parameters") or {}
    if not isinstance(given, dict):
        raise f.error(f"rope_scaling is {given!r}; expected an object with rope_type and factor")
    rope = _Fields(given, f.path)
    if any(isinstance(value, dict) for value in given.values()):
        raise f.error("rotary embeddings that differ between layers are not supported")
    theta = rope.get("rope_theta", float, f.get("rope_theta", float, 10_000.0))
    if given.get("partial_rotary_factor") not in (None, 1, 1.0):
        raise f.error(f"partial_rotary_factor is {given['partial_rotary_factor']!r}; supported: 1")
    kind = given.get("rope_type", given.get("type", "default"))
    if kind == "default":
        return theta, None, most
    if kind not in ("linear", "llama3", "yarn"):
        raise f.error(f"rope_type {kind!r} is not supported; supported: default, linear, llama3, yarn")
    if kind == "linear":
        return theta, RopeScaling("linear", rope.get("factor", float)), most
    original = f.get("original_max_position_embeddings", int, None)
    if original is None:
        original = rope.get("original_max_position_embeddings", int, most)
    if kind == "llama3":
        names = ("factor", "low_freq_factor", "high_freq_factor")
        factor, low, high = (rope.get(n, float) for n in names)
        return theta, RopeScaling("llama3", factor, original, low_freq_factor=low, high_freq_factor=high), most
    return theta, _yarn(rope, original), most


def _yarn(rope: _Fields, original: int) -> RopeScaling:
    return RopeScaling(
        "yarn",
        rope.get("factor", float),
        original,
        beta_fast=rope.get("beta_fast", float, 0.0) or 32.0,
        beta_slow=rope.get("beta_slow", float, 0.0) or 1.0,
        attention_factor=rope.get("attention_factor", float, None),
        mscale=rope.get("mscale", float, None),
        mscale_all_dim=rope.get("mscale_all_dim", float, None),
        truncate=rope.get("truncate", bool, True),
    )
