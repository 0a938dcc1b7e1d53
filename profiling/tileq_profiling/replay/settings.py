"""The engine that recorded a run, as settings of the simulator."""

from __future__ import annotations

__all__ = ["settings_of", "vllm_policy"]

import re
from typing import Any

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.registry import policy
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError, positive_int

_NOTE = re.compile(r"^(max_num_seqs|max_num_batched_tokens|max_model_len) (\d+)$")
_RESERVES_SINCE = (0, 19)  # scheduler_reserve_full_isl (vllm-project/vllm pull request 37307), on by default
_SAMPLES = 1 << 20


def settings_of(
    run: MeasuredRun,
    *,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
    kv_tokens: int | None = None,
) -> EngineConfig:
    """Return the engine's settings as given, else as the run's files state them.

    Raises
    ------
    InputError
        The token budget, the sequences at most or the size of the KV cache is neither given nor stated.
    """
    stated = {m[1]: int(m[2]) for note in run.conditions.notes if (m := _NOTE.match(note))}
    capacity = None if run.kv_capacity_tokens is None else int(run.kv_capacity_tokens)
    found = {
        "token_budget": stated.get("max_num_batched_tokens") if token_budget is None else token_budget,
        "max_num_seqs": stated.get("max_num_seqs") if max_num_seqs is None else max_num_seqs,
        "kv_tokens": capacity if kv_tokens is None else kv_tokens,
    }
    missing = [name for name, value in found.items() if value is None]
    if missing:
        them = "it" if len(missing) == 1 else "them"
        raise InputError(f"{run.source} does not state its engine's {', '.join(missing)}; give {them}")
    sizes: dict[str, Any] = {name: positive_int(name, value or 0) for name, value in found.items()}
    return EngineConfig(**sizes, max_model_tokens=stated.get("max_model_len"), sample_limit=_SAMPLES)


def vllm_policy(run: MeasuredRun) -> Policy:
    """Return vLLM's scheduler of the run's version: since 0.19 a request waits until all that it holds so far fits."""
    version = run.conditions.libraries.get("vllm", "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    return policy("vllm_v1", admission="sequence" if numbers >= _RESERVES_SINCE else "chunk")
