"""The engine that recorded a run, as settings of the simulator."""

from __future__ import annotations

__all__ = ["admit_known_sequence", "settings_of", "vllm_policy"]

import re
from typing import Any

from tileq_engine.batch import blocks_for
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.records import Records
from tileq_engine.registry import policy
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError

_NOTE = re.compile(r"^(max_num_seqs|max_num_batched_tokens|max_model_len) (\d+)$")
_RESERVES_SINCE = (0, 19)  # scheduler_reserve_full_isl (vllm-project/vllm pull request 37307), on by default
_SAMPLES = 1 << 20


def settings_of(run: MeasuredRun) -> EngineConfig:
    """Return the engine's settings as the run's files state them.

    Raises
    ------
    InputError
        The files do not state the token budget, the sequences at most or the size of the KV cache; give a config.
    """
    stated = {m[1]: int(m[2]) for note in run.conditions.notes if (m := _NOTE.match(note))}
    missing = [name for name in ("max_num_batched_tokens", "max_num_seqs") if name not in stated]
    missing += [] if run.kv_capacity_tokens else ["kv_capacity_tokens"]
    if missing:
        raise InputError(
            f"{run.source} does not state {', '.join(missing)} of its engine; pass config=EngineConfig(token_budget=, "
            "max_num_seqs=, kv_tokens=)"
        )
    return EngineConfig(
        token_budget=stated["max_num_batched_tokens"],
        max_num_seqs=stated["max_num_seqs"],
        kv_tokens=int(run.kv_capacity_tokens or 0),
        max_model_tokens=stated.get("max_model_len"),
        sample_limit=_SAMPLES,
    )


def vllm_policy(run: MeasuredRun) -> Policy:
    """Return vLLM's scheduler of the run's version: since 0.19 a request waits until all that it holds so far fits."""
    version = run.conditions.libraries.get("vllm", "")
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    chosen = policy("vllm_v1")
    return chosen.with_rule(admission=admit_known_sequence) if numbers >= _RESERVES_SINCE else chosen


def admit_known_sequence(R: Records, B: Records, S: Records, P: Any, i: int) -> Any:
    """Admit when the blocks of the whole known sequence are free (prompt, and what a preempted request generated).

    Blocks are still taken chunk by chunk, so that two long prompts may be let in on the same free blocks.
    """
    s = S[0]
    r = R[i]
    # a count of 0 means none of its KV is there: everything known is prefilled (again)
    tokens = r.cached + 1 if r.cached > 0 else r.prompt + r.gen - r.replay
    return 1 if blocks_for(tokens, s.block) <= s.free else 0
