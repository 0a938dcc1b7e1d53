"""What a policy's settings become on a real model, and which of them cannot be."""

from __future__ import annotations

__all__ = ["check_requests", "physical"]

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.executor.backend import Backend
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError


def physical(backend: Backend, config: EngineConfig) -> EngineConfig:
    """Return the settings on `backend`: its blocks, its memory; raise `InputError` for what it cannot do."""
    if config.convention != "engine":
        raise InputError(
            f"convention is {config.convention!r}; a real model emits its first token with the last prefill chunk, "
            "which is the convention 'engine'"
        )
    if config.kv_tokens is not None and config.block_tokens != backend.block_tokens:
        raise InputError(
            f"block_tokens is {config.block_tokens}, the model's cache has blocks of {backend.block_tokens}; "
            "give the same for both"
        )
    if config.prefix_cache and config.preemption == "swap":
        raise InputError(
            "prefix_cache and preemption 'swap' are both set; a real model moves whole block tables to the host, "
            "shared blocks too: take preemption 'recompute', which finds what it recomputes in the cache"
        )
    room = backend.blocks * backend.block_tokens
    if config.kv_tokens is not None and config.kv_tokens > room:
        raise InputError(f"kv_tokens is {config.kv_tokens}, the model's cache holds {room}; give at most that")
    # moving KV takes the time that it takes: it is in the measured iteration
    kept = room if config.kv_tokens is None else config.kv_tokens
    return config.with_(block_tokens=backend.block_tokens, kv_tokens=kept, swap_token_s=0.0, trace_limit=0)


def check_requests(backend: Backend, requests: Requests) -> None:
    """Raise `InputError` for requests that the model cannot run."""
    if bool(requests.prefilled_tokens.any()):
        at = int(np.argmax(requests.prefilled_tokens > 0))
        raise InputError(f"request {at} arrives with its KV; a real model has it only from its own prefill")
    longest = requests.prompt_tokens + requests.output_tokens
    if backend.max_positions is not None and len(requests) and int(longest.max()) > backend.max_positions:
        at = int(np.argmax(longest))
        raise InputError(
            f"request {at} reaches {int(longest[at])} tokens; the model has positions for {backend.max_positions}"
        )
