"""The engine behind latencies that somebody else measured: what is given, what the file states, what is assumed."""

from __future__ import annotations

__all__ = ["EngineGiven", "engine_of"]

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileq_engine.config import EngineConfig
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError, positive_int

if TYPE_CHECKING:
    from tileq_theory.hardware import Gpu, Model

_NOTE = re.compile(r"^(max_num_seqs|max_num_batched_tokens|max_model_len) (\d+)$")
# vLLM's own defaults for its server (vllm/engine/arg_utils.py): GPUs with 70 GB and more other than the A100; the rest
_LARGE_BYTES = 70 * 2**30
_LARGE, _OTHER = (8192, 1024), (2048, 256)


@dataclass(frozen=True, slots=True)
class EngineGiven:
    """What a caller knows of the engine; None: as the file states, else assumed."""

    token_budget: int | None = None
    max_num_seqs: int | None = None
    kv_tokens: int | None = None
    gpu: Gpu | None = None
    model: Model | None = None
    tp: int = 1
    dtype: str = "bf16"


def engine_of(run: MeasuredRun, given: EngineGiven) -> tuple[EngineConfig, list[str]]:
    """Return the engine's settings, and a sentence for each that was assumed."""
    stated = {m[1]: int(m[2]) for note in run.conditions.notes if (m := _NOTE.match(note))}
    stated |= {k: int(run.totals[k]) for k in ("max_num_seqs", "max_num_batched_tokens") if run.totals.get(k)}
    assumed: list[str] = []
    large = given.gpu is not None and given.gpu.memory_bytes >= _LARGE_BYTES and "a100" not in given.gpu.name
    budget, seats = _LARGE if large else _OTHER
    sizes = {
        "token_budget": (given.token_budget, stated.get("max_num_batched_tokens"), budget),
        "max_num_seqs": (given.max_num_seqs, stated.get("max_num_seqs"), seats),
    }
    found: dict[str, Any] = {}
    for name, (own, told, usual) in sizes.items():
        found[name] = positive_int(name, next(value for value in (own, told, usual) if value is not None))
        if own is None and told is None:
            assumed.append(f"{name} {usual} is assumed (vLLM's default); give the engine's own")
    kv = _kv_tokens(run, given, found, assumed)
    return EngineConfig(**found, kv_tokens=kv, max_model_tokens=stated.get("max_model_len"), sample_limit=2), assumed


def _kv_tokens(run: MeasuredRun, given: EngineGiven, sizes: dict[str, Any], assumed: list[str]) -> int | None:
    from tileq_theory.hardware import kv_capacity_tokens

    if given.kv_tokens is not None:
        return positive_int("kv_tokens", given.kv_tokens)
    if run.kv_capacity_tokens:
        return int(run.kv_capacity_tokens)
    if given.gpu is None or given.model is None:
        assumed.append("the KV cache is taken to hold everything: its size is not known; give it, or GPU and model")
        return None
    try:
        fits = kv_capacity_tokens(given.gpu, given.model, given.dtype, tp=given.tp, **sizes)
    except InputError as error:
        assumed.append(f"the KV cache is taken to hold everything: {error}")
        return None
    assumed.append(f"kv_tokens {fits} is assumed: what fits the {given.gpu.name} beside {given.model.name}")
    return fits
