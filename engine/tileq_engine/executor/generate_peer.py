"""The same model, on the same weights, served by `transformers` in static batches: what a user has without an engine.

Requests are taken in order, `batch` at a time, prompts padded on the left to the longest, and every batch generates as
many tokens as its longest output: what a static batch does. Only the tokens that were asked for count.
"""

from __future__ import annotations

__all__ = ["PeerResult", "transformers_generate", "transformers_model"]

import importlib.util
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tileq_engine.executor.clocks import Probe
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError

_ARGUMENTS = {
    "LlamaForCausalLM": "LlamaConfig",
    "MistralForCausalLM": "MistralConfig",
    "Qwen2ForCausalLM": "Qwen2Config",
    "Qwen3ForCausalLM": "Qwen3Config",
}


@dataclass(frozen=True, slots=True)
class PeerResult:
    """Useful output tokens, seconds (at the probe's reference speed where there is one), and how it was run."""

    output_tokens: int
    seconds: float
    batch: int
    version: str

    @property
    def tokens_per_s(self) -> float:
        """Useful output tokens a second."""
        return self.output_tokens / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**asdict(self), "tokens_per_s": self.tokens_per_s}


def transformers_model(backend: Any) -> Any:
    """Return transformers' own model of the backend's configuration, on the backend's weights (shared, not copied)."""
    if importlib.util.find_spec("transformers") is None:
        raise InputError("transformers is not installed; pip install transformers to compare with it")
    import torch
    import transformers

    from tileq_engine.decoder.weights import parts

    decoder = backend.decoder
    c = decoder.config
    if c.rope_scaling is not None or c.architecture not in _ARGUMENTS:
        raise InputError(f"no peer is built for {c.architecture} with rope scaling {c.rope_scaling}")
    given = {
        "vocab_size": c.vocab_size,
        "hidden_size": c.hidden_size,
        "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_dim,
        "max_position_embeddings": c.max_positions,
        "rms_norm_eps": c.norm_eps,
        "tie_word_embeddings": c.tie_embeddings,
        "attention_bias": c.attention_bias,
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_theta},
        "rope_theta": c.rope_theta,
    }
    try:
        config, kind = getattr(transformers, _ARGUMENTS[c.architecture])(**given), getattr(transformers, c.architecture)
    except ImportError as missing:  # its modules are fetched when they are first named
        raise InputError(f"transformers {transformers.__version__} cannot be used here: {missing}") from None
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    with torch.device("meta"):
        model = kind(config)
    state = {part.name: part.tensor for part in parts(c, decoder.weights)}
    model.load_state_dict(state, strict=not c.tie_embeddings, assign=True)
    model.tie_weights()
    # the rotary table is no weight: it was made on the meta device, make it again where the weights are
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(decoder.device)
    return model.to(decoder.device).eval()


def transformers_generate(
    backend: Any, requests: Requests, *, batch: int, probe: Probe | None = None, model: Any = None, seed: int = 0
) -> PeerResult:
    """Generate for all requests in static batches and return the throughput."""
    import torch
    import transformers

    peer = transformers_model(backend) if model is None else model
    device, vocabulary = backend.decoder.device, backend.vocab_size
    now = time.perf_counter_ns if backend.cuda else time.thread_time_ns
    total = 0.0
    _generate(torch, peer, np.ones((1, 4), dtype=np.int64), [4], 2, device)  # kernels are chosen at their first use
    for begin in range(0, len(requests), batch):
        prompts = requests.prompt_tokens[begin : begin + batch]
        longest = int(requests.output_tokens[begin : begin + batch].max())
        random = np.random.default_rng([seed, begin])
        ids = random.integers(1, vocabulary, (len(prompts), int(prompts.max())))
        slow = 1.0
        if probe is not None:
            for _ in range(5):
                probe.once()
            slow = probe.slowness
        start = now()
        _generate(torch, peer, ids, prompts.tolist(), longest, device)
        took = (now() - start) / 1e9
        if probe is not None:
            for _ in range(5):
                probe.once()
            slow = (slow + probe.slowness) / 2
        total += took / slow
    return PeerResult(int(requests.output_tokens.sum()), total, batch, str(transformers.__version__))


def _generate(torch: Any, model: Any, ids: np.ndarray, prompts: list[int], outputs: int, device: Any) -> None:
    mask = np.arange(ids.shape[1])[None, :] >= (ids.shape[1] - np.array(prompts))[:, None]
    with torch.inference_mode():
        model.generate(
            torch.from_numpy(ids).to(device),
            attention_mask=torch.from_numpy(mask.astype(np.int64)).to(device),
            max_new_tokens=outputs,
            min_new_tokens=outputs,
            do_sample=False,
            pad_token_id=0,
        )
    if device.type == "cuda":
        torch.cuda.synchronize(device)
