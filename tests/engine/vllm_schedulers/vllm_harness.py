"""vLLM's scheduler without a model: made as the engine makes it, driven with outputs made up here."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tileq.validating_vllm_bench import SMALL

SHAPE: dict[str, Any] = {**SMALL, "bos_token_id": 1, "eos_token_id": 2}
VOCAB = SHAPE["vocab_size"]


def model_folder() -> str:
    """Return a folder with the config.json of a Llama of two layers."""
    folder = Path(tempfile.mkdtemp(prefix="tileq-vllm-test-"))
    (folder / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    return str(folder)


def allow_a_second_engine() -> None:
    """Let vLLM make a CPU engine in a process that has imported numba.

    It looks at ``vars()`` of whatever any module holds, and llvmlite's library answers to every name, ``__dict__`` too.
    """
    import llvmlite.binding.ffi as ffi

    kind = type(ffi.lib)
    if "vars" not in kind.__name__:
        quiet = type("vars_" + kind.__name__, (kind,), {"__slots__": (), "__dict__": property(lambda self: {})})
        ffi.lib.__class__ = quiet


def model_with_weights() -> str:
    """Return a folder with such a Llama and its weights, drawn so that every token depends on all before it."""
    import torch
    from safetensors.torch import save_file

    folder = model_folder()
    generator = torch.Generator().manual_seed(20)

    def drawn(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * (2.0 / columns**0.5)

    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    kv = SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
    weights = {
        "model.embed_tokens.weight": torch.randn(VOCAB, hidden, generator=generator),
        "lm_head.weight": drawn(VOCAB, hidden),
        "model.norm.weight": torch.ones(hidden),
    }
    for layer in range(SHAPE["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name, rows, columns in (
            ("self_attn.q_proj", hidden, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, hidden),
            ("mlp.gate_proj", inner, hidden),
            ("mlp.up_proj", inner, hidden),
            ("mlp.down_proj", hidden, inner),
        ):
            weights[f"{at}.{name}.weight"] = drawn(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}.{name}.weight"] = torch.ones(hidden)
    save_file(weights, str(Path(folder) / "model.safetensors"), metadata={"format": "pt"})
    return folder


def make_scheduler(
    kind: type,
    *,
    tileq: dict[str, Any] | None = None,
    max_num_seqs: int = 16,
    max_num_batched_tokens: int = 64,
    blocks: int = 1000,
    block_tokens: int = 16,
    prefix_caching: bool = False,
    asynchronous: bool = False,
    max_model_len: int = 4096,
    log_stats: bool = False,
) -> Any:
    """Return a scheduler of class `kind` with `blocks` usable blocks (vLLM keeps one more for itself)."""
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    model = ModelConfig(
        model=model_folder(), dtype="float32", skip_tokenizer_init=True, max_model_len=max_model_len, seed=0
    )
    scheduling = SchedulerConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        max_model_len=max_model_len,
        is_encoder_decoder=False,
        enable_chunked_prefill=True,
        async_scheduling=asynchronous,
        scheduler_cls=kind,
    )
    cache = CacheConfig(block_size=block_tokens, enable_prefix_caching=prefix_caching)
    config = VllmConfig(
        model_config=model,
        scheduler_config=scheduling,
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
        additional_config={"tileq": tileq} if tileq else {},
    )
    spec = FullAttentionSpec(block_size=block_tokens, num_kv_heads=1, head_size=1, dtype=torch.float32)
    kv = KVCacheConfig(num_blocks=blocks + 1, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    config.cache_config.num_gpu_blocks = blocks + 1
    return kind(
        vllm_config=config,
        kv_cache_config=kv,
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_tokens,
        hash_block_size=block_tokens,
        log_stats=log_stats,
    )


def make_request(
    name: str,
    prompt: int | list[int],
    output_tokens: int,
    *,
    extra: dict[str, Any] | None = None,
    priority: int = 0,
    block_tokens: int | None = None,
    ignore_eos: bool = True,
) -> Any:
    """Return a request; a prompt given by its length has tokens of its own."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.request import Request

    hasher = None
    if block_tokens is not None:
        init_none_hash(sha256)
        hasher = get_request_block_hasher(block_tokens, sha256)
    own = sum(map(ord, name))
    tokens = [3 + (own * 31 + 7 * k) % (VOCAB - 3) for k in range(prompt)] if isinstance(prompt, int) else prompt
    params = SamplingParams(
        temperature=0.0, max_tokens=output_tokens, ignore_eos=ignore_eos, detokenize=False, extra_args=extra
    )
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=params,
        pooling_params=None,
        priority=priority,
        block_hasher=hasher,
    )


def output_of(scheduler: Any, scheduled: Any, token: int = 7, stop: frozenset[str] = frozenset()) -> Any:
    """Return what a model runner would: a token for every request whose prefill ends or that decodes."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(scheduled.num_scheduled_tokens)
    sampled = []
    for name in names:
        request = scheduler.requests.get(name)
        ended = request is not None and not request.is_prefill_chunk
        sampled.append([2 if name in stop else token] if ended else [])
    return ModelRunnerOutput(
        req_ids=names,
        req_id_to_index={name: k for k, name in enumerate(names)},
        sampled_token_ids=sampled,
    )
