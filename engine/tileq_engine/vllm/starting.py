"""What a scheduler does once, when vLLM makes it: read settings, look at the machine, refuse what it cannot do."""

from __future__ import annotations

__all__ = [
    "begin_anew",
    "describe",
    "machine_of",
    "mirror_of",
    "refuse_what_is_not_supported",
    "settings_of",
    "warnings_of",
]

import math
from pathlib import Path
from typing import Any

from tileq_engine.config import EngineConfig
from tileq_engine.vllm.machine import Machine, differences, plan_limits
from tileq_engine.vllm.mirror import Mirror
from tileq_engine.vllm.plan_document import iteration_time_of
from tileq_engine.vllm.recording import RecordedMirror
from tileq_engine.vllm.settings import VllmSettings, read_settings
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime


def refuse_what_is_not_supported(scheduler: Any) -> None:
    """Raise `InputError` for a vLLM configuration whose iterations Tileq's rules cannot describe."""
    config = scheduler.vllm_config
    parallel = config.parallel_config
    refused = {
        "pipeline parallelism (two iterations of one request are in flight)": parallel.pipeline_parallel_size > 1,
        "a KV connector (requests hold blocks while they wait for remote KV)": config.kv_transfer_config is not None,
        "an encoder cache connector": config.ec_transfer_config is not None,
        "encoder-decoder models": scheduler.is_encoder_decoder,
        "pooling models": config.model_config.runner_type == "pooling",
        "diffusion models": config.model_config.is_diffusion,
        "Mamba layers in 'align' mode (chunks end where their states are cached)": (
            scheduler.need_mamba_block_aligned_split
        ),
        "--scheduling-policy priority (Tileq's policy 'priority' takes its place)": scheduler.policy.value != "fcfs",
        "--long-prefill-token-threshold (the policy says how long a chunk is)": (
            scheduler.scheduler_config.long_prefill_token_threshold > 0
        ),
        "chunked prefill switched off": not scheduler.scheduler_config.enable_chunked_prefill,
    }
    for what, given in refused.items():
        if given:
            raise InputError(f"Tileq's schedulers do not run with {what}; use vLLM's own scheduler there")


def settings_of(vllm_config: Any, defaults: dict[str, Any]) -> VllmSettings:
    """Return the settings: of additional_config's key "tileq", else of the file $TILEQ_VLLM, else the class's."""
    additional = getattr(vllm_config, "additional_config", None)
    given = additional.get("tileq") if isinstance(additional, dict) else None
    return read_settings(given, **defaults)


def machine_of(scheduler: Any, device: str) -> Machine:
    """Return what vLLM runs on."""
    config = scheduler.vllm_config
    text = config.model_config.hf_text_config
    shape = {
        name: int(getattr(text, name))
        for name in ("num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size")
        if getattr(text, name, None) is not None
    }
    return Machine(
        model=str(config.model_config.model),
        shape=shape,
        device=str(device),
        tensor_parallel=int(config.parallel_config.tensor_parallel_size),
        kv_tokens=_kv_blocks(scheduler) * int(scheduler.block_size),
    )


def _kv_blocks(scheduler: Any) -> int:
    """Return the blocks that requests can hold; vLLM keeps one for itself, and each group has its own of a request."""
    groups = max(1, len(scheduler.kv_cache_config.kv_cache_groups))
    return (int(scheduler.cache_config.num_gpu_blocks) - 1) // groups


def warnings_of(settings: VllmSettings, machine: Machine) -> list[str]:
    """Return what the log should say at the start; raise `InputError` for a plan made for another machine."""
    if settings.plan is None:
        return []
    found = differences(settings.plan, machine)
    if found and not settings.allow_other_machine:
        raise InputError(
            "; ".join(found) + ': make a plan for this machine, or set "allow_other_machine": true to serve by this one'
        )
    floor = plan_limits(settings.plan)
    return found + [
        f"tier {name!r} promises {tier.tbt_limit_s:g} s between tokens; the plan's shortest iteration takes "
        f"{floor:.4g} s"
        for name, tier in settings.tiers.items()
        if tier.tbt_limit_s < floor
    ]


def mirror_of(scheduler: Any, settings: VllmSettings) -> Mirror:
    """Return the mirror, with vLLM's KV cache, and budget and residents no larger than vLLM's."""
    policy = settings.make_policy()
    most_tokens, most_seqs = int(scheduler.max_num_scheduled_tokens), int(scheduler.max_num_active_reqs)
    budget = policy.token_budget or settings.token_budget or most_tokens
    residents = policy.max_num_seqs or settings.max_num_seqs or most_seqs
    if budget > most_tokens:
        raise InputError(f"token_budget is {budget}; vLLM allows {most_tokens}: raise --max-num-batched-tokens")
    if residents > most_seqs:
        raise InputError(f"max_num_seqs is {residents}; vLLM allows {most_seqs}: raise --max-num-seqs")
    largest = max((int(level[0]) for level in policy.params.get("levels", ())), default=0)
    if largest > most_tokens:
        raise InputError(f"a level of the plan has {largest} tokens; vLLM allows {most_tokens}")
    config = EngineConfig(
        token_budget=budget,
        max_num_seqs=residents,
        kv_tokens=_kv_blocks(scheduler) * int(scheduler.block_size),
        block_tokens=int(scheduler.block_size),
        watermark=float(scheduler.scheduler_config.watermark),
    )
    told: dict[str, Any] = {"time": iteration_time(settings), "tenants": _tenants(settings)}
    if settings.record is not None:
        return RecordedMirror(policy, config, **told, path=_record_path(scheduler, settings.record))
    return Mirror(policy, config, **told)


def begin_anew(scheduler: Any) -> RecordedMirror:
    """Give an idle scheduler a mirror without a past, which keeps a record; return it.

    A policy's own memory (credits, mean iteration) begins as in a simulation, so that one can follow from the start.
    """
    if scheduler.has_unfinished_requests():
        raise InputError("requests are under way; a scheduler can begin anew only when none are")
    before = scheduler.mirror
    made = RecordedMirror(
        before.rules.policy, before.rules.config, time=iteration_time(scheduler.settings), tenants=before.rules.tenants
    )
    made.set_scalars({name: before.state.scalar(name) for name in ("budget", "theta_lo", "theta_hi")})
    scheduler.mirror = scheduler.report.mirror = made
    scheduler._now_ps = scheduler._landed_ps = 0  # the clock may be another one from here on
    return made


def _record_path(scheduler: Any, named: str) -> Path:
    """Return the file of this scheduler's record; of several, every one but the first has its rank behind the name."""
    rank = int(getattr(scheduler.vllm_config.parallel_config, "data_parallel_index", 0) or 0)
    return Path(named if not rank else f"{named}.{rank}")


def _tenants(settings: VllmSettings) -> int:
    return 1024 if "tenant_quota" in settings.params else 1


def iteration_time(settings: VllmSettings) -> IterationTime | None:
    """Return the plan's iteration time, None without a plan."""
    if settings.plan is None:
        return None
    return iteration_time_of(settings.plan)


def describe(scheduler: Any, settings: VllmSettings) -> str:
    """Return one line for the log."""
    config = scheduler.mirror.rules.config
    plan = settings.plan
    rate = "" if plan is None else f", planned for {float(plan['rate_per_s']):.4g} requests/s"
    tiers = ", ".join(f"{name} {tier.tbt_limit_s:g} s" for name, tier in settings.tiers.items())
    blocks = math.floor(config.kv_blocks)
    return (
        f"{scheduler.mirror.rules.policy.describe()}: budget {config.token_budget} tokens, {config.max_num_seqs} "
        f"residents, {blocks} blocks of {config.block_tokens}; tiers {tiers}{rate}"
    )
