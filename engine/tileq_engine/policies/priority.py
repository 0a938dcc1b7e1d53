"""Priority classes."""

from __future__ import annotations

__all__ = ["priority"]

from dataclasses import replace

from tileq_engine.policies.base import base_policy
from tileq_engine.policies.common import order_named
from tileq_engine.policy import Policy
from tileq_theory.errors import boolean


def priority(
    *,
    preemptive: bool = True,
    base: str = "vllm_v1",
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """Priority classes, on the batching of `base`: the lowest priority value first, then the earliest arrival.

    Whoever must give blocks back is the resident with the largest (priority value, arrival). With `preemptive`, a
    waiting request that finds no slot or no memory takes it from residents of lower priority, if that suffices;
    without, only a lack of blocks preempts, as in vLLM v1. It optimises the urgent class's latency. It fails for the
    others: a low class may starve, and its preempted decodes are computed again.
    """
    takes = boolean("preemptive", preemptive)
    under = base_policy(base, token_budget=token_budget, max_num_seqs=max_num_seqs)
    return replace(
        under,
        name="priority",
        order=order_named("priority"),
        eviction="evict_lowest_priority",
        params={"preemptive": takes, "base": base},
        scalars={**under.scalars, "to_front": 0, "preemptive": int(takes)},
    )
