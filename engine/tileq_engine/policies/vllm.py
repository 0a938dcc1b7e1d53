"""vLLM, both of its schedulers."""

from __future__ import annotations

__all__ = ["vllm_v0", "vllm_v1"]

from tileq_engine.policies.common import checked_common, order_named, require_budget
from tileq_engine.policy import Policy
from tileq_theory.errors import InputError, boolean, near_matches

_GATES = {"chunk": "admit_chunk", "sequence": "admit_sequence"}


def vllm_v0(
    *,
    order: str = "fcfs",
    cap_decodes: bool = True,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """vLLM's first scheduler: prefill has priority, prefill and decode never share an iteration (Kwon et al., 2023).

    If a waiting prompt fits (slots, budget, blocks above the watermark) the iteration is a batch of whole prompts;
    otherwise every resident decodes, at most `token_budget` of them when `cap_decodes` (Dai's model). A decode
    without a free block preempts the resident admitted last, by recompute or by swap as the settings say; swapped
    requests return before any new prompt is admitted. It optimises TTFT. It fails on TBT (every prompt stops all
    decodes) and on throughput with small tiles, where pure decode batches leave the tile unfilled. A prompt longer
    than the budget is rejected.
    """
    capped = boolean("cap_decodes", cap_decodes)
    return Policy(
        name="vllm_v0",
        decodes="decodes_capped" if capped else "decodes_all",
        order=order_named(order),
        mixing="mix_exclusive",
        params={"order": order, "cap_decodes": capped},
        scalars={"alloc": 1, "whole": 1, "to_front": 1, "dynamic": int(order == "aging")},
        **checked_common(token_budget, max_num_seqs),
    )


def vllm_v1(
    *,
    order: str = "fcfs",
    admission: str = "chunk",
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """vLLM's present scheduler: residents first, in order, then waiting requests, up to the budget (vLLM v1).

    Decodes and ongoing chunks are served in order of admission, then waiting requests are admitted; blocks are
    taken chunk by chunk. `admission="chunk"`: a request enters when its first chunk's blocks are free; "sequence":
    when those of its whole prompt and of what it has generated are, though none is set aside (vLLM 0.19 and later, by
    default there: `scheduler_reserve_full_isl`). `order="fcfs"`: a resident without a free block preempts the one
    admitted last, which goes to the front of the queue; `order="priority"`: waiting requests stand by (priority
    value, arrival), and the largest of them is preempted. Preemption is by recompute, and only when a block is
    needed. It optimises utilisation with bounded batches. It fails under tight memory, where admissions without a
    reserve end in preemption storms, and for low priorities, which may starve.
    """
    priority = order == "priority"
    if admission not in _GATES:
        raise InputError(f"admission {admission!r} is unknown; {near_matches('admissions', str(admission), _GATES)}")
    return Policy(
        name="vllm_v1",
        order=order_named(order),
        mixing="mix_in_order",
        admission=_GATES[admission],
        eviction="evict_lowest_priority" if priority else "evict_last",
        params={"order": order, "admission": admission},
        scalars={"alloc": 0, "to_front": int(not priority), "dynamic": int(order == "aging")},
        prepare=require_budget,
        **checked_common(token_budget, max_num_seqs),
    )
