r"""One token budget: the capacity program with a single level n has an exact solution.

Per node let x be iterations per second; a request rate l = lambda/R asks of them

    n x >= l (P + D)      tokens of the batches            M x >= l G      KV read by the decodes
    N x >= l D            sequences                        M x >= l g      memory-time
    N x >= l u            slot-time

and time is tau x + l (k G + e A + s u) <= 1. Time rises with x, so x is the smallest the rows allow, x = l x^ with

    x^ = max((P + D)/n, D/N, G/M, g/M, u/N),     lambda* = R / (tau x^ + k G + e A + s u)

The row z <= p * (longest context) is met by p = l P and z = l A, as A = E[P (P + 1)/2] <= E[P] * longest. Under a TBT
limit T > tau the row tau x + l (k G + e A + s D) <= T x adds (k G + e A + s D)/(T - tau) to the max.

This is what an engine with one fixed token budget reaches (chunked mixing: Sarathi, vLLM); the best budget is the
n with the largest lambda*.
"""

from __future__ import annotations

__all__ = ["FORMS", "SINGLE_LEVEL", "SINGLE_LEVEL_ITERATIONS", "SINGLE_LEVEL_TBT", "single_level_rows"]

from collections.abc import Mapping
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.closed_forms.quantities import (
    ATTENTION_PAIRS,
    BATCH_TOKENS,
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
from tileq_theory.errors import InputError, nonnegative, positive

_SOURCE = "theory.md section 3 with one level (derived in the module docstring)"
_TAU = Quantity("tau_s", r"\tau", "time of an iteration of n tokens without its attention", "s", "nonnegative")
_TBT = Quantity("tbt_s", "T", "limit of the time between tokens: no batch is longer", "s")
_DEMAND = (PREFILL_TOKENS, DECODE_TOKENS, KV_READ, ATTENTION_PAIRS, MEMORY_ITERATIONS, SLOT_ITERATIONS)
_LIMITS = (BATCH_TOKENS, SEQUENCES, KV_CAPACITY)
_COSTS = (_TAU, KV_TOKEN_S, PAIR_S, SEQUENCE_S)


def _rows(v: Mapping[str, Any]) -> dict[str, Any]:
    """Return the iterations per request that each row asks for."""
    return {
        "tokens": (v["prefill_tokens"] + v["decode_tokens"]) / v["batch_tokens"],
        "sequences": v["decode_tokens"] / v["max_sequences"],
        "kv_read": v["kv_read_tokens"] / v["kv_capacity_tokens"],
        "memory_time": v["memory_iterations"] / v["kv_capacity_tokens"],
        "slot_time": v["slot_iterations"] / v["max_sequences"],
    }


def _attention(v: Mapping[str, Any], sequences: str) -> Any:
    reads = v["kv_token_s"] * v["kv_read_tokens"] + v["pair_s"] * v["attention_pairs"]
    return reads + v["sequence_s"] * v[sequences]


def _tbt_row(v: Mapping[str, Any]) -> Any:
    return _attention(v, "decode_tokens") / (v["tbt_s"] - v["tau_s"])


def _iterations(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    return sp.Max(*_rows(v).values())


def _capacity(v: Mapping[str, Any]) -> Any:
    return v["nodes"] / (v["tau_s"] * _iterations(v) + _attention(v, "slot_iterations"))


def _capacity_tbt(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    iterations = sp.Max(*_rows(v).values(), _tbt_row(v))
    return v["nodes"] / (v["tau_s"] * iterations + _attention(v, "slot_iterations"))


SINGLE_LEVEL = ClosedForm(
    "single_level",
    "capacity with one token budget, no TBT limit",
    _SOURCE,
    "1/s",
    (NODES, *_DEMAND, *_LIMITS, *_COSTS),
    _capacity,
)
SINGLE_LEVEL_TBT = ClosedForm(
    "single_level_tbt",
    "capacity with one token budget under a TBT limit",
    _SOURCE,
    "1/s",
    (NODES, *_DEMAND, *_LIMITS, *_COSTS, _TBT),
    _capacity_tbt,
    (
        Condition(
            lambda v: v["tbt_s"] - v["tau_s"], "tbt_s > tau_s (the limit exceeds the iteration without attention)"
        ),
    ),
)
SINGLE_LEVEL_ITERATIONS = ClosedForm(
    "single_level_iterations",
    "iterations a node runs per request with one token budget",
    _SOURCE,
    "iterations",
    (*_DEMAND[:3], *_DEMAND[4:], *_LIMITS),
    _iterations,
)
FORMS = (SINGLE_LEVEL, SINGLE_LEVEL_TBT, SINGLE_LEVEL_ITERATIONS)


def single_level_rows(**values: float) -> dict[str, float]:
    """Return the iterations per request that each row asks for, largest first: the first row binds.

    Takes the keywords of `SINGLE_LEVEL_TBT` without `nodes`; without `tbt_s` those of `SINGLE_LEVEL`. Dividing each
    by the first tells how far a row is from binding.

    Examples
    --------
    >>> rows = single_level_rows(
    ...     prefill_tokens=100, decode_tokens=100, kv_read_tokens=15050, attention_pairs=5050,
    ...     memory_iterations=15150, slot_iterations=101, batch_tokens=512, max_sequences=256,
    ...     kv_capacity_tokens=100000, tau_s=0.05, kv_token_s=0, pair_s=0, sequence_s=0)
    >>> list(rows)[0], rows["sequences"]
    ('slot_time', 0.390625)
    """
    needed = [q for q in SINGLE_LEVEL_TBT.quantities[1:] if q.name != "tbt_s" or "tbt_s" in values]
    unknown = sorted(set(values) - {q.name for q in needed})
    missing = [q.name for q in needed if q.name not in values]
    if unknown or missing:
        raise InputError(f"single_level_rows: unknown {unknown}, missing {missing}; give each symbol once")
    checked = {
        q.name: (positive if q.domain in ("positive", "count") else nonnegative)(q.name, values[q.name]) for q in needed
    }
    rows: dict[str, float] = _rows(checked)
    if "tbt_s" in checked:
        if checked["tbt_s"] <= checked["tau_s"]:
            raise InputError(
                f"tbt_s is {values['tbt_s']!r}; expected more than tau_s = {values['tau_s']!r}, "
                "the time of an iteration without attention"
            )
        rows["tbt"] = _tbt_row(checked)
    return dict(sorted(rows.items(), key=lambda item: -item[1]))
