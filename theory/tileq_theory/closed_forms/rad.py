r"""RAD: prefill iterations of b_lcm tokens and decode iterations of b_col tokens, nothing else.

A batch of n tokens takes t_Lin*ceil(n/b_col) + t_nl*n (eq. 7), so t_p = t(b_lcm) and t_d = t(b_col). A request keeps a
node busy for E[P]/b_lcm prefill iterations and E[O]/b_col decode iterations; R nodes carry

    lambda* = R / (E[P] t_p/b_lcm + E[O] t_d/b_col)         (Theorems 1 and 2)

with E[P]/b_lcm replaced by E[ceil(P/b_lcm)] when prompts are not tile multiples. The paper's convention: O decode
steps for O output tokens.
"""

from __future__ import annotations

__all__ = [
    "CAPPED_EXPONENTIAL_MEAN",
    "FORMS",
    "RAD_CAPACITY",
    "RAD_CAPACITY_CHUNKS",
    "RAD_PREFILL_SHARE",
    "RAD_RATIO",
    "RAD_TOKEN_TIME",
]

from collections.abc import Mapping
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Quantity
from tileq_theory.closed_forms.quantities import DECODE_TOKENS, NODES, PREFILL_TOKENS

_SOURCE = "Bari, Hegde, de Veciana, arXiv 2508.01002"
_T_LIN = Quantity("t_lin_s", r"t_{Lin}", "time of one tile of the linear layers", "s")
_T_NL = Quantity("t_nl_s", r"t_{nl}", "non-linear time of a token", "s/token", "nonnegative")
_B_COL = Quantity(
    "b_col_tokens", r"b_{col}", "tile of the token dimension; tokens of a decode batch", "tokens", "count"
)
_B_LCM = Quantity("b_lcm_tokens", r"b_{lcm}", "tokens of a prefill batch", "tokens", "count")
_CHUNKS = Quantity("prefill_chunks", r"E\lceil P/b_{lcm}\rceil", "mean prefill chunks of a request", "")
_MEAN = Quantity("mean_tokens", "m", "mean of the exponential", "tokens")
_CAP = Quantity("cap_tokens", "L", "largest length", "tokens", "count")


def _batch_times(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return (t_p, t_d) of eq. (7)."""
    import sympy as sp

    tiles = sp.ceiling(v["b_lcm_tokens"] / v["b_col_tokens"])
    prefill = v["t_lin_s"] * tiles + v["t_nl_s"] * v["b_lcm_tokens"]
    return prefill, v["t_lin_s"] + v["t_nl_s"] * v["b_col_tokens"]


def _request_times(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the node time of a request's prefill and of its decode."""
    prefill, decode = _batch_times(v)
    return v["prefill_tokens"] * prefill / v["b_lcm_tokens"], v["decode_tokens"] * decode / v["b_col_tokens"]


def _capacity(v: Mapping[str, Any]) -> Any:
    return v["nodes"] / sum(_request_times(v))


def _capacity_chunks(v: Mapping[str, Any]) -> Any:
    prefill, decode = _batch_times(v)
    return v["nodes"] / (v["prefill_chunks"] * prefill + v["decode_tokens"] * decode / v["b_col_tokens"])


def _ratio(v: Mapping[str, Any]) -> Any:
    return (v["prefill_tokens"] / v["b_lcm_tokens"]) / (v["decode_tokens"] / v["b_col_tokens"])


def _share(v: Mapping[str, Any]) -> Any:
    prefill, decode = _request_times(v)
    return prefill / (prefill + decode)


def _token_time(v: Mapping[str, Any]) -> Any:
    return v["t_lin_s"] / v["b_col_tokens"] + v["t_nl_s"]


def _capped_exponential(v: Mapping[str, Any]) -> Any:
    import sympy as sp

    return (1 - sp.exp(-v["cap_tokens"] / v["mean_tokens"])) / (1 - sp.exp(-1 / v["mean_tokens"]))


_MODEL = (_T_LIN, _T_NL, _B_COL, _B_LCM)

RAD_CAPACITY = ClosedForm(
    "rad_capacity",
    "capacity of R nodes under optimal tiling",
    f"{_SOURCE}, Theorems 1 and 2 with eq. (7)",
    "1/s",
    (NODES, PREFILL_TOKENS, DECODE_TOKENS, *_MODEL),
    _capacity,
)
RAD_CAPACITY_CHUNKS = ClosedForm(
    "rad_capacity_chunks",
    "capacity when prompts are not tile multiples",
    f"{_SOURCE}, Theorems 1 and 2 without Assumption 3",
    "1/s",
    (NODES, _CHUNKS, DECODE_TOKENS, *_MODEL),
    _capacity_chunks,
)
RAD_RATIO = ClosedForm(
    "rad_ratio",
    "prefill iterations per decode iteration at capacity",
    f"{_SOURCE}, section 4",
    "",
    (PREFILL_TOKENS, DECODE_TOKENS, _B_COL, _B_LCM),
    _ratio,
)
RAD_PREFILL_SHARE = ClosedForm(
    "rad_prefill_share",
    "share of busy time spent in prefill",
    f"{_SOURCE}, section 4",
    "",
    (PREFILL_TOKENS, DECODE_TOKENS, *_MODEL),
    _share,
)
RAD_TOKEN_TIME = ClosedForm(
    "rad_token_time",
    "least node time of a token: no batch is cheaper per token than a full tile",
    f"{_SOURCE}, Theorem 1",
    "s/token",
    (_T_LIN, _T_NL, _B_COL),
    _token_time,
)
CAPPED_EXPONENTIAL_MEAN = ClosedForm(
    "capped_exponential_mean",
    "mean of min(floor(Exp(m)) + 1, L): the output length of the reference instance",
    "E[X] = sum over j < L of P(X > j) = exp(-j/m), a geometric sum",
    "tokens",
    (_MEAN, _CAP),
    _capped_exponential,
)
FORMS = (
    RAD_CAPACITY,
    RAD_CAPACITY_CHUNKS,
    RAD_RATIO,
    RAD_PREFILL_SHARE,
    RAD_TOKEN_TIME,
    CAPPED_EXPONENTIAL_MEAN,
)
