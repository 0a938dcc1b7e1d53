"""Static batching."""

from __future__ import annotations

__all__ = ["static"]

from tileq_engine.policies.common import checked_common
from tileq_engine.policy import Policy


def static(*, token_budget: int | None = None, max_num_seqs: int | None = None) -> Policy:
    """Static batching (FasterTransformer; Dai et al., arXiv 2504.07347).

    When the system holds no batch, one is formed of waiting requests in order of arrival, as many whole prompts as
    the token budget, the slots and the memory take; it is prefilled in one iteration and decoded until its longest
    member ends, and nobody joins before. Memory for prompt and predicted output is reserved at admission. It
    optimises nothing but simplicity (and the gaps between tokens, which no prefill ever interrupts). It fails early:
    slots of ended members stay empty, so it is unstable well inside the region of the mixed policies. A prompt
    longer than the budget can never run and is rejected.
    """
    return Policy(
        name="static",
        decodes="decodes_capped",
        mixing="mix_static",
        scalars={"alloc": 2, "whole": 1, "to_front": 1},
        **checked_common(token_budget, max_num_seqs),
    )
