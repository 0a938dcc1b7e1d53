r"""The iteration-time family of section 2 and the gate-and-route cost that is one setting of it.

t(n, A, K, m) = c + max(w, a*ceil(n/b) + beta*n) + e*A + k*K + s*m
c0 + a0*max(0, n - b0)   is the setting   c = c0 - a0*b0,  w = a0*b0,  beta = a0,  a = 0
"""

from __future__ import annotations

__all__ = ["FORMS", "GATE_AND_ROUTE_CAPACITY", "GATE_AND_ROUTE_TIME", "ITERATION_TIME"]

from collections.abc import Mapping
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.closed_forms.quantities import (
    BATCH_TOKENS,
    KV_TOKEN_S,
    PAIR_S,
    SEQUENCE_S,
    TILE_TOKENS,
    TOKEN_S,
    WEIGHT_FLOOR_S,
)

_LAUNCH = Quantity("launch_s", "c", "launch time; negative in gate-and-route's form", "s", "real")
_TILE = Quantity("tile_s", "a", "time of one tile", "s", "nonnegative")
_PAIRS = Quantity("pairs", "A", "query-key pairs of the batch", "pairs", "nonnegative")
_KV = Quantity("kv_tokens", "K", "KV tokens read by the batch", "tokens", "nonnegative")
_MEMBERS = Quantity("sequences", "m", "sequences of the batch", "", "nonnegative")
_C0 = Quantity("c0_s", "c_0", "time of a batch of at most b0 tokens", "s")
_A0 = Quantity("a0_s", "a_0", "time of each token beyond b0", "s/token", "nonnegative")
_B0 = Quantity("b0_tokens", "b_0", "tokens that cost nothing beyond c0", "tokens", "nonnegative")

_TAU = Quantity("mixed_iteration_s", r"\tau", "time of a mixed iteration", "s")
_CHUNK = Quantity("chunk_tokens", "C", "prefill tokens of a mixed iteration", "tokens")
_SLOTS = Quantity("max_sequences", "B", "sequences of an iteration, the prefill included", "", "count")
_GAMMA = Quantity("solo_tokens_per_s", r"\gamma", "tokens per second of a decode on a solo GPU", "tokens/s")
_P = Quantity("prefill_tokens", "p", "prefill tokens of a request, averaged over the direction", "tokens")
_D = Quantity("decode_tokens", "t", "decode tokens of a request, averaged over the direction", "tokens")


def _family(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    linear = v["tile_s"] * sp.ceiling(v["batch_tokens"] / v["tile_tokens"]) + v["token_s"] * v["batch_tokens"]
    attention = v["pair_s"] * v["pairs"] + v["kv_token_s"] * v["kv_tokens"]
    return v["launch_s"] + sp.Max(v["weight_floor_s"], linear) + attention + v["sequence_s"] * v["sequences"]


def _one_token(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    return v["launch_s"] + sp.Max(v["weight_floor_s"], v["tile_s"] + v["token_s"])


def _gate_and_route(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    return v["c0_s"] + v["a0_s"] * sp.Max(0, v["batch_tokens"] - v["b0_tokens"])


def _fleet_capacity(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    share = v["prefill_tokens"] * v["mixed_iteration_s"] / v["chunk_tokens"]  # mixed GPUs per request a second
    slots, solo = v["max_sequences"], v["solo_tokens_per_s"]
    beside = share * ((slots - 1) / v["mixed_iteration_s"] - slots * solo)
    return 1 / sp.Max(share, (v["decode_tokens"] - beside) / (slots * solo))


ITERATION_TIME = ClosedForm(
    name="iteration_time",
    title="time of one iteration, the family that every source's model is a setting of",
    source="theory.md section 2",
    unit="s",
    quantities=(
        _LAUNCH,
        WEIGHT_FLOOR_S,
        _TILE,
        TILE_TOKENS,
        TOKEN_S,
        PAIR_S,
        KV_TOKEN_S,
        SEQUENCE_S,
        BATCH_TOKENS,
        _PAIRS,
        _KV,
        _MEMBERS,
    ),
    build=_family,
    conditions=(Condition(_one_token, "launch_s + max(weight_floor_s, tile_s + token_s) >= 0", strict=False),),
)

GATE_AND_ROUTE_TIME = ClosedForm(
    name="gate_and_route_iteration_time",
    title="time of one iteration in the gate-and-route model",
    source="Lin, Ding, Han, Zhang, arXiv 2602.02987, section 2 (piecewise linear iteration time)",
    unit="s",
    quantities=(_C0, _A0, _B0, BATCH_TOKENS),
    build=_gate_and_route,
)

GATE_AND_ROUTE_CAPACITY = ClosedForm(
    name="gate_and_route_capacity",
    title="requests per second and GPU of a fleet of mixed and solo GPUs with nobody giving up",
    source="Lin, Ding, Han, Zhang, arXiv 2602.02987, program at theta = 0 (derived above)",
    unit="1/s",
    quantities=(_P, _D, _TAU, _CHUNK, _SLOTS, _GAMMA),
    build=_fleet_capacity,
)

FORMS = (ITERATION_TIME, GATE_AND_ROUTE_TIME, GATE_AND_ROUTE_CAPACITY)
