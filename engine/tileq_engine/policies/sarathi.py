"""Sarathi-Serve."""

from __future__ import annotations

__all__ = ["sarathi"]

from tileq_engine.policies.common import checked_common, order_named
from tileq_engine.policy import Policy


def sarathi(*, order: str = "fcfs", token_budget: int | None = None, max_num_seqs: int | None = None) -> Policy:
    """Sarathi-Serve: stall-free chunked prefills (Agrawal et al., OSDI 2024).

    Every resident decodes in every iteration, whatever the budget; what the budget leaves goes to ongoing prefills
    in order of admission, then to waiting requests in `order` ("fcfs", "spf", ...). It optimises throughput under a
    bound on TBT: no prompt ever stops a decode, and batches are full while prompts wait. It fails where the budget
    is small against the residents: long prompts then crawl (with 100 slots and a budget of 128 it locks into 29
    prefill tokens an iteration; Dai et al., arXiv 2504.07347, section 6), and TTFT grows before throughput does.
    """
    return Policy(
        name="sarathi",
        decodes="decodes_all",
        order=order_named(order),
        mixing="mix_chunked",
        params={"order": order},
        scalars={"alloc": 1, "to_front": 1, "dynamic": int(order == "aging")},
        **checked_common(token_budget, max_num_seqs),
    )
