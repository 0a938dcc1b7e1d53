"""The weights of a decoder as it uses them: query, key and value in one matrix, gate and up in one."""

from __future__ import annotations

__all__ = ["LayerWeights", "Part", "Weights", "allocate", "parts"]

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float

from tileq_engine.decoder.config import DecoderConfig
from tileq_engine.decoder.pool import free_bytes
from tileq_theory.errors import InputError


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights of one layer; matrices are (out, in) as torch's linear takes them; None: the model has no such thing."""

    attention_norm: Float[torch.Tensor, "hidden"]
    qkv: Float[torch.Tensor, "qkv hidden"]
    qkv_bias: Float[torch.Tensor, "qkv"] | None
    q_norm: Float[torch.Tensor, "dim"] | None
    k_norm: Float[torch.Tensor, "dim"] | None
    output: Float[torch.Tensor, "hidden q"]
    output_bias: Float[torch.Tensor, "hidden"] | None
    mlp_norm: Float[torch.Tensor, "hidden"]
    gate_up: Float[torch.Tensor, "gate_up hidden"]
    gate_up_bias: Float[torch.Tensor, "gate_up"] | None
    down: Float[torch.Tensor, "hidden inner"]
    down_bias: Float[torch.Tensor, "hidden"] | None


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights; `head` is `embedding` itself when the two are tied."""

    embedding: Float[torch.Tensor, "vocab hidden"]
    layers: tuple[LayerWeights, ...]
    norm: Float[torch.Tensor, "hidden"]
    head: Float[torch.Tensor, "vocab hidden"]

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the matrices."""
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.embedding.device


@dataclass(frozen=True, slots=True)
class Part:
    """One tensor of a checkpoint: its name there, and the (part of a) weight that holds it."""

    name: str
    tensor: Float[torch.Tensor, "*shape"]


def _too_large(config: DecoderConfig, dtype: torch.dtype, device: torch.device | str, size: int, free: int) -> str:
    kind = str(dtype).removeprefix("torch.")
    return (
        f"{config.parameters} parameters in {kind} need {size / 2**30:.2f} GiB on {device}, where "
        f"{free / 2**30:.2f} GiB are free, so that no KV block would fit; give a smaller "
        "model, another dtype or another device"
    )


def allocate(config: DecoderConfig, dtype: torch.dtype, device: torch.device | str) -> Weights:
    """Return weights of the right shapes, not yet filled."""

    def empty(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    size = config.parameters * torch.empty((), dtype=dtype).element_size()
    if size > (free := free_bytes(device)):  # a host would promise more than it has, and end the process later
        raise InputError(_too_large(config, dtype, device, size, free))
    h, q, kv, inner = config.hidden_size, config.q_size, config.kv_size, config.intermediate_size
    try:
        layers = tuple(
            LayerWeights(
                attention_norm=empty(h),
                qkv=empty(q + 2 * kv, h),
                qkv_bias=empty(q + 2 * kv) if config.attention_bias else None,
                q_norm=empty(config.head_dim) if config.qk_norm else None,
                k_norm=empty(config.head_dim) if config.qk_norm else None,
                output=empty(h, q),
                output_bias=empty(h) if config.output_bias else None,
                mlp_norm=empty(h),
                gate_up=empty(2 * inner, h),
                gate_up_bias=empty(2 * inner) if config.mlp_bias else None,
                down=empty(h, inner),
                down_bias=empty(h) if config.mlp_bias else None,
            )
            for _ in range(config.layers)
        )
        table = empty(config.vocab_size, h)
        head = table if config.tie_embeddings else empty(config.vocab_size, h)
        return Weights(table, layers, empty(h), head)
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if "memory" not in str(error):
            raise
        raise InputError(_too_large(config, dtype, device, size, free)) from None


def parts(config: DecoderConfig, weights: Weights) -> Iterator[Part]:
    """Yield every tensor of the checkpoint with the view of the weights that it fills."""
    yield Part("model.embed_tokens.weight", weights.embedding)
    for i, layer in enumerate(weights.layers):
        for name, tensor in _layer_parts(config, layer):
            yield Part(f"model.layers.{i}.{name}", tensor)
    yield Part("model.norm.weight", weights.norm)
    if not config.tie_embeddings:
        yield Part("lm_head.weight", weights.head)


def _layer_parts(config: DecoderConfig, layer: LayerWeights) -> Iterator[tuple[str, torch.Tensor]]:
    rows = {"q": config.q_size, "k": config.kv_size, "v": config.kv_size}
    halves = {"gate": config.intermediate_size, "up": config.intermediate_size}
    yield "input_layernorm.weight", layer.attention_norm
    yield from _split("self_attn", rows, layer.qkv, layer.qkv_bias)
    if layer.q_norm is not None and layer.k_norm is not None:
        yield "self_attn.q_norm.weight", layer.q_norm
        yield "self_attn.k_norm.weight", layer.k_norm
    yield from _split("self_attn", {"o": config.hidden_size}, layer.output, layer.output_bias)
    yield "post_attention_layernorm.weight", layer.mlp_norm
    yield from _split("mlp", halves, layer.gate_up, layer.gate_up_bias)
    yield from _split("mlp", {"down": config.hidden_size}, layer.down, layer.down_bias)


def _split(
    block: str, rows: dict[str, int], matrix: torch.Tensor, bias: torch.Tensor | None
) -> Iterator[tuple[str, torch.Tensor]]:
    start = 0
    for name, count in rows.items():
        yield f"{block}.{name}_proj.weight", matrix[start : start + count]
        if bias is not None:
            yield f"{block}.{name}_proj.bias", bias[start : start + count]
        start += count
