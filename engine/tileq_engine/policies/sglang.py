"""SGLang's scheduler."""

from __future__ import annotations

__all__ = ["sglang"]

from tileq_engine.policies.common import checked_common, order_named
from tileq_engine.policy import Policy
from tileq_theory.errors import InputError, boolean, finite, near_matches, nonnegative_int

_ORDERS = {"longest_prefix": "longest_prefix", "fcfs": "fcfs"}


def sglang(
    *,
    order: str = "longest_prefix",
    mixed_chunk: bool = False,
    new_token_ratio: float = 0.7,
    fcfs_beyond: int = 128,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """SGLang: the waiting request with the longest cached prefix first (Zheng et al., NeurIPS 2024, RadixAttention).

    Prefill goes before decode, in chunks of `token_budget` (chunked_prefill_size), the unfinished prompt first; an
    iteration without prefill decodes everybody. With `mixed_chunk` the decodes join the prefill batch and count
    against its budget. Requests wait in order of the tokens that the prefix cache holds of them
    (`order="longest_prefix"`, its name there is lpm), or as they came: "fcfs", and so too while more than
    `fcfs_beyond` wait. One is admitted when its prompt and predicted output fit beside `new_token_ratio` of what the
    residents are still predicted to write (at most 4096 tokens each). A decode without a block takes those of the
    resident with the fewest output tokens, by recompute. It optimises the hit rate, which a depth-first order of the
    tree maximises. It fails on fairness: a request that shares nothing waits behind all that do, for ever when they
    keep the engine busy. Without a prefix cache it is FCFS.

    Left out: the ratio's decay over decode steps (it is constant here), and the putting back of a request whose
    prefix another waiting one is about to compute.
    """
    if order not in _ORDERS:
        raise InputError(f"order {order!r} is unknown; {near_matches('orders', str(order), _ORDERS)}")
    mixed, most = boolean("mixed_chunk", mixed_chunk), nonnegative_int("fcfs_beyond", fcfs_beyond)
    if not 0 <= finite("new_token_ratio", new_token_ratio) <= 1:
        raise InputError(f"new_token_ratio is {new_token_ratio!r}; expected a share in [0, 1]")
    aware = order == "longest_prefix"
    return Policy(
        name="sglang",
        order=order_named(_ORDERS[order]),
        mixing="mix_chunked" if mixed else "mix_exclusive",
        admission="admit_estimate",
        eviction="evict_fewest_tokens",
        params={"order": order, "mixed_chunk": mixed, "new_token_ratio": float(new_token_ratio), "fcfs_beyond": most},
        scalars={
            "alloc": 1,
            "to_front": 0,
            "dynamic": int(aware),
            "want": most,
            "reserve": round(1000 * new_token_ratio),
        },
        **checked_common(token_budget, max_num_seqs),
    )
