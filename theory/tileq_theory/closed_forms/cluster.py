r"""Memory-time of a request as used by flow control (Dong, Cao) and by smallest volume first (Kong et al.).

    w = vol = l o + (o + o^2)/2 = sum_{j=1..o} (l + j)         token slots

One decode token per active request and slot; prefill takes memory but no time.
"""

from __future__ import annotations

__all__ = ["FLOW_CAPACITY", "FLOW_PEAK", "FORMS", "SVF_RATIO", "VOLUME"]

from collections.abc import Mapping
from typing import Any

from tileq_theory.closed_forms.base import ClosedForm, Condition, Quantity
from tileq_theory.closed_forms.quantities import KV_CAPACITY

_DONG = "Dong, Cao, arXiv 2604.11001"
_L = Quantity("prompt_tokens", "l", "prompt", "tokens", "nonnegative")
_O = Quantity("output_tokens", "o", "output", "tokens", "whole")
_W = Quantity("workload", r"\sum_k w_k", "memory-time of one request of each class together", "token slots")
_B = Quantity("budget", "b", "requests of each class activated per slot", "1/slot", "nonnegative")
_ALPHA = Quantity("peak_share", r"\alpha", "largest peak s + o over the memory M", "", "share")


def _volume(v: Mapping[str, Any]) -> Any:
    return v["prompt_tokens"] * v["output_tokens"] + (v["output_tokens"] + v["output_tokens"] ** 2) / 2


VOLUME = ClosedForm(
    "volume",
    "memory-time of a request from its activation to its last token",
    f"{_DONG}, section 2; Kong, Qi, Ye, Zhou, arXiv 2606.22327, section 3",
    "token slots",
    (_L, _O),
    _volume,
)
FLOW_CAPACITY = ClosedForm(
    "flow_capacity",
    "largest rate of every class, all classes alike, that any scheduler can carry",
    f"{_DONG}, Proposition 3.2: sum lambda_k w_k <= M",
    "1/slot",
    (KV_CAPACITY, _W),
    lambda v: v["kv_capacity_tokens"] / v["workload"],
)
FLOW_PEAK = ClosedForm(
    "flow_peak",
    "KV in use when b requests of each class are activated in every slot",
    f"{_DONG}, inequality (2): sum b_k w_k <= M, met with equality once the pipeline is full",
    "tokens",
    (_B, _W),
    lambda v: v["budget"] * v["workload"],
)
SVF_RATIO = ClosedForm(
    "svf_ratio",
    "competitive ratio of smallest volume first in total latency, all requests present at the start",
    "Kong, Qi, Ye, Zhou, arXiv 2606.22327, Theorem 3.2",
    "",
    (_ALPHA,),
    lambda v: 1 + 2 / (1 - v["peak_share"]),
    (Condition(lambda v: 1 - v["peak_share"], "peak_share < 1"),),
)
FORMS = (VOLUME, FLOW_CAPACITY, FLOW_PEAK, SVF_RATIO)
