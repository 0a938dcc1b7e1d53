r"""Exclusive batching: every iteration is all prefill or all decode (vLLM v0; the levels of `p_n d_n = 0`).

With prefill iterations of n_p tokens and decode iterations of n_d sequences let x_p, x_d be their numbers per
request. The rows of the capacity program ask

    x_p >= X_p = P/n_p                          tokens of prefill batches
    x_d >= X_d = max(D/n_d, G/M)                sequences of decode batches, KV they read
    x_p + x_d >= X = max(g/M, u/N)              memory-time and slot-time, shared by both kinds

and time is tau_p x_p + tau_d x_d + k G + e A + s u per request. It is least at x_p = X_p, x_d = X_d with what X still
lacks filled by the cheaper kind of iteration:

    lambda* = R / (tau_p X_p + tau_d X_d + min(tau_p, tau_d) max(0, X - X_p - X_d) + k G + e A + s u)

RAD is the case n_p = b_lcm, n_d = b_col with ample memory and slots.
"""

from __future__ import annotations

__all__ = ["EXCLUSIVE", "FORMS"]

from collections.abc import Mapping
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.closed_forms.quantities import (
    ATTENTION_PAIRS,
    DECODE_TOKENS,
    KV_CAPACITY,
    KV_READ,
    KV_TOKEN_S,
    MEMORY_ITERATIONS,
    NODES,
    PAIR_S,
    PREFILL_TOKENS,
    SEQUENCE_S,
    SEQUENCES,
    SLOT_ITERATIONS,
)

_N_P = Quantity("prefill_batch_tokens", "n_p", "tokens of a prefill iteration", "tokens", "count")
_N_D = Quantity("decode_batch_sequences", "n_d", "sequences of a decode iteration", "", "count")
_TAU_P = Quantity("prefill_iteration_s", r"\tau_p", "time of a prefill iteration without its attention", "s")
_TAU_D = Quantity("decode_iteration_s", r"\tau_d", "time of a decode iteration without its attention", "s")


def _exclusive(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    prefill = v["prefill_tokens"] / v["prefill_batch_tokens"]
    reads = v["kv_read_tokens"] / v["kv_capacity_tokens"]
    decode = sp.Max(v["decode_tokens"] / v["decode_batch_sequences"], reads)
    shared = sp.Max(
        v["memory_iterations"] / v["kv_capacity_tokens"], v["slot_iterations"] / v["max_sequences"], prefill + decode
    )
    tau_p, tau_d = v["prefill_iteration_s"], v["decode_iteration_s"]
    filler = -sp.Max(-tau_p, -tau_d) * (shared - prefill - decode)
    attention = v["kv_token_s"] * v["kv_read_tokens"] + v["pair_s"] * v["attention_pairs"]
    busy = tau_p * prefill + tau_d * decode + filler + attention + v["sequence_s"] * v["slot_iterations"]
    return v["nodes"] / busy


EXCLUSIVE = ClosedForm(
    "exclusive",
    "capacity when every iteration is all prefill or all decode, one batch size each",
    "theory.md section 3 with p_n d_n = 0 (derived in the module docstring)",
    "1/s",
    (
        NODES,
        PREFILL_TOKENS,
        DECODE_TOKENS,
        KV_READ,
        ATTENTION_PAIRS,
        MEMORY_ITERATIONS,
        SLOT_ITERATIONS,
        _N_P,
        _N_D,
        SEQUENCES,
        KV_CAPACITY,
        _TAU_P,
        _TAU_D,
        KV_TOKEN_S,
        PAIR_S,
        SEQUENCE_S,
    ),
    _exclusive,
    (
        Condition(
            lambda v: v["max_sequences"] - v["decode_batch_sequences"],
            "decode_batch_sequences <= max_sequences",
            strict=False,
        ),
    ),
)
FORMS = (EXCLUSIVE,)
