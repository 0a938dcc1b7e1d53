"""Where vLLM's `schedule` may be replaced by `lean`: this vLLM's code, letter by letter, and a plain configuration."""

from __future__ import annotations

__all__ = ["KNOWN", "fingerprint", "obstacles"]

import hashlib
import inspect
from typing import Any

import vllm.envs as envs
from vllm.v1.core.kv_cache_coordinator import (
    KVCacheCoordinator,
    KVCacheCoordinatorNoPrefixCache,
    UnitaryKVCacheCoordinator,
)
from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import CachedRequestData, NewRequestData, SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager, SingleTypeKVCacheManager
from vllm.v1.request import Request

KNOWN = frozenset({"3b76ce4eb2e2e363"})  # fingerprints of vLLM 0.32.0
_REPLACED: tuple[tuple[type, tuple[str, ...]], ...] = (
    (Scheduler, ("schedule", "_update_after_schedule", "_make_cached_request_data", "_update_request_with_output")),
    (Scheduler, ("_preempt_request", "_get_new_block_ids_to_zero", "_holds_kv_blocks")),
    (AsyncScheduler, ("_update_after_schedule", "_update_request_with_output")),
    (KVCacheManager, ("allocate_slots", "cache_blocks", "create_kv_cache_blocks", "new_step_starts")),
    (
        KVCacheCoordinator,
        ("get_num_blocks_to_allocate", "allocate_new_blocks", "cache_blocks", "remove_skipped_blocks"),
    ),
    (KVCacheCoordinator, ("get_num_cacheable_tokens", "new_step_starts")),
    (SingleTypeKVCacheManager, ("get_num_blocks_to_allocate", "allocate_new_blocks", "cache_blocks")),
    (SingleTypeKVCacheManager, ("remove_skipped_blocks", "get_num_skipped_tokens", "new_step_starts")),
)
_WHOLE = (UnitaryKVCacheCoordinator, KVCacheCoordinatorNoPrefixCache, FullAttentionManager)
_PLAIN = (*_WHOLE, KVCacheBlocks, NewRequestData, CachedRequestData, SchedulerOutput, Request)
_OWN = ("_update_after_schedule", "_make_cached_request_data")  # not to be overridden by a subclass


def fingerprint() -> str:
    """Return a digest of the source of what is replaced here."""
    digest = hashlib.sha256()
    for kind, names in _REPLACED:
        for name in names:
            digest.update(inspect.getsource(getattr(kind, name)).encode())
    for kind in _PLAIN:
        digest.update(inspect.getsource(kind).encode())
    return digest.hexdigest()[:16]


def obstacles(scheduler: Any) -> list[str]:
    """Return what of a scheduler's configuration asks for vLLM's whole `schedule`; nothing where `lean` will do."""
    manager = scheduler.kv_cache_manager
    kinds = [type(m) for m in manager.coordinator.single_type_managers]
    found = {
        "a vLLM whose scheduler has other code": fingerprint() not in KNOWN,
        "a subclass with a vLLM method of its own": any(
            getattr(type(scheduler), name) is not getattr(AsyncScheduler, name) for name in _OWN
        ),
        "speculative decoding": scheduler.vllm_config.speculative_config is not None or scheduler.num_spec_tokens > 0,
        "adapters": scheduler.lora_config is not None,
        "a connector": any((scheduler.connector, scheduler.ec_connector, scheduler.aux_output_connector)),
        "pipeline stages": scheduler.use_pp,
        "KV groups that are not one of full attention": kinds != [FullAttentionManager],
        "a KV coordinator of another kind": type(manager.coordinator) not in _WHOLE[:2],
        "parts of blocks in the prefix cache": manager.enable_caching
        and manager.block_pool.hash_block_size != _block(manager),
        "a scope for a profiler": envs.VLLM_CUSTOM_SCOPES_FOR_PROFILING or envs.VLLM_NVTX_SCOPES_FOR_PROFILING,
        "not one token sampled a step": scheduler.num_sampled_tokens_per_step != 1,
    }
    return [what for what, given in found.items() if given]


def _block(manager: Any) -> int:
    """Return the tokens of a block of the only KV group."""
    return int(manager.coordinator.single_type_managers[0].block_size)
