"""What the architectures of config.json leave unsaid: one row a model_type.

The rows restate defaults of the transformers library's configuration classes and modelling code. Only architectures
with gated MLPs and ordinary (grouped-query) attention in every layer are here; others would give silently wrong sizes.
"""

from __future__ import annotations

__all__ = ["FAMILIES", "Family"]

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal


@dataclass(frozen=True, slots=True)
class Family:
    """Defaults of one architecture.

    Parameters
    ----------
    tied
        tie_word_embeddings when absent.
    qkv_bias
        True when queries, keys and values always carry a bias and the output projection never does.
    attention_bias
        attention_bias when absent (a bias on all four projections).
    qk_norm, norms_per_layer
        Norms of queries and keys; norms of a layer.
    head_dim
        head_dim when the key is absent; None: hidden_size / num_attention_heads.
    experts
        Keys under which the number of routed experts may stand; None for a dense architecture.
    expert_width
        Key of the width of one expert.
    shared_expert, dense_layers, sinks_and_expert_bias
        A shared expert; some layers may be dense; attention sinks and biases of experts and router.
    sliding
        "never", "all" layers, a "pattern" of layers, or "opt-in" by use_sliding_window.
    sliding_period
        Of a pattern: every how many layers one attends to everything.
    absent_keys
        Values of keys that files of this architecture leave out.
    """

    tied: bool = False
    qkv_bias: bool = False
    attention_bias: bool = False
    qk_norm: bool = False
    norms_per_layer: int = 2
    head_dim: int | None = None
    experts: tuple[str, ...] | None = None
    expert_width: str = "moe_intermediate_size"
    shared_expert: bool = False
    dense_layers: bool = False
    sinks_and_expert_bias: bool = False
    sliding: Literal["never", "all", "pattern", "opt-in"] = "never"
    sliding_period: int = 2
    absent_keys: Mapping[str, int] = field(default_factory=dict)


_LLAMA = Family()
_MISTRAL = Family(sliding="all")
_MIXTRAL = Family(sliding="all", experts=("num_local_experts", "num_experts"), expert_width="intermediate_size")
_QWEN2 = Family(qkv_bias=True, sliding="opt-in")
_QWEN2_MOE = replace(_QWEN2, experts=("num_experts", "num_local_experts"), shared_expert=True, dense_layers=True)
_QWEN3 = Family(qk_norm=True, head_dim=128, sliding="opt-in")
_QWEN3_MOE = replace(_QWEN3, head_dim=None, experts=("num_experts", "num_local_experts"), dense_layers=True)
_GEMMA = Family(tied=True, head_dim=256)
_GEMMA2 = replace(_GEMMA, norms_per_layer=4, sliding="pattern", absent_keys=MappingProxyType({"sliding_window": 4096}))
_GEMMA3 = replace(
    _GEMMA2,
    qk_norm=True,
    sliding_period=6,
    absent_keys=MappingProxyType({"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208}),
)
_GPT_OSS = Family(
    attention_bias=True,
    head_dim=64,
    experts=("num_local_experts", "num_experts"),
    expert_width="intermediate_size",
    sinks_and_expert_bias=True,
    sliding="pattern",
)

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": _LLAMA,
        "granite": _LLAMA,
        "mistral": _MISTRAL,
        "mistral3": _MISTRAL,
        "phi3": _MISTRAL,
        "mixtral": _MIXTRAL,
        "qwen2": _QWEN2,
        "qwen2_vl": _QWEN2,
        "qwen2_vl_text": _QWEN2,
        "qwen2_5_vl": _QWEN2,
        "qwen2_5_vl_text": _QWEN2,
        "qwen2_moe": _QWEN2_MOE,
        "qwen3": _QWEN3,
        "qwen3_vl_text": _QWEN3,
        "qwen3_moe": _QWEN3_MOE,
        "qwen3_vl_moe_text": _QWEN3_MOE,
        "gemma": _GEMMA,
        "gemma2": _GEMMA2,
        "gemma3": _GEMMA3,
        "gemma3_text": _GEMMA3,
        "gpt_oss": _GPT_OSS,
    }
)
