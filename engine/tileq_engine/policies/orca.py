"""Orca."""

from __future__ import annotations

__all__ = ["orca"]

from tileq_engine.policies.common import checked_common
from tileq_engine.policy import Policy
from tileq_theory.errors import boolean


def orca(*, chunks: bool = False, token_budget: int | None = None, max_num_seqs: int | None = None) -> Policy:
    """Orca: iteration-level batching, prefills first (Yu et al., OSDI 2022).

    Every iteration takes ongoing and new prefills in order of arrival, then, with what the budget leaves, decodes in
    order of admission. Prompts run whole; with `chunks=True` they are cut to what the budget leaves (the model of
    Dai et al., arXiv 2504.07347). It optimises TTFT and, being work-conserving, throughput under Dai's model. It
    fails on TBT: a burst of prompts stops the decodes, and with limited slots it may lock itself into prefills
    (Dai et al., section 6). Whole prompts longer than the budget can never run and are rejected. Memory is paged as
    in vLLM: admission takes the prompt's blocks and a decode without a block preempts the last admitted, where Orca
    itself set the longest output aside.
    """
    chunked = boolean("chunks", chunks)
    return Policy(
        name="orca",
        decodes="decodes_after",
        mixing="mix_chunked",
        params={"chunks": chunked},
        scalars={"alloc": 1, "whole": 0 if chunked else 1, "to_front": 1},
        **checked_common(token_budget, max_num_seqs),
    )
