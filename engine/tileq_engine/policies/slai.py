"""SLAI."""

from __future__ import annotations

__all__ = ["slai"]

import functools
from typing import Any

import numpy as np

from tileq_engine.clock import PS_PER_S
from tileq_engine.config import EngineConfig
from tileq_engine.policies.common import checked_common, order_named
from tileq_engine.policy import Policy, Prepared
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError, nonnegative, positive, positive_int
from tileq_theory.iteration_time import IterationTime

_LARGEST_THETA = 1000.0  # more would not fit the integer clock
_ORDERS = ("fcfs", "spf", "paying_spf")


def slai(
    *,
    order: str = "fcfs",
    theta: float | str = "dynamic",
    mean: str = "cumulative",
    ewma_weight: float = 0.1,
    decode_cap: int = 128,
    paying_tbt_s: float = 0.1,
    other_tbt_s: float = 0.5,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """SLAI: SLO-aware LLM inference (Bari, Hegde, de Veciana, arXiv 2508.01002).

    A resident's last schedulable time is LST = completion of its previous token + TBT limit - Theta * (mean batch
    time so far). A batch holds (1) the decodes with LST <= now in order of LST, up to `decode_cap` and whatever the
    budget, (2) ongoing prefills in order, then waiting ones in `order` ("fcfs", "spf", or paying tier first then
    shortest prompt), stopping at the first that does not fit, (3) with what is left of the budget the other decodes
    in order of LST. Theta is 5 below 96 % of the KV used and 10 from there on ("dynamic"), or the number given (the
    paper's fixed variant: 10). Requests without a TBT limit get their tier's. If a critical decode finds no block, the
    prefill begun last is preempted, else the decode itself. It optimises median TTFT subject to each tier's TBT. It
    fails when batches are long against the limits: with Theta = 10 and batches of 50 ms every decode is critical, and
    it is Sarathi with SPF. The mean is the authors' cumulative one, or "ewma".
    """
    if isinstance(theta, str) and theta != "dynamic":
        raise InputError(f"theta is {theta!r}; expected 'dynamic' or a number of mean batches")
    if mean not in ("cumulative", "ewma"):
        raise InputError(f"mean is {mean!r}; expected 'cumulative' or 'ewma'")
    low, high = (nonnegative("theta", theta),) * 2 if not isinstance(theta, str) else (5.0, 10.0)
    if high > _LARGEST_THETA:
        raise InputError(
            f"theta is {theta!r}; expected at most {_LARGEST_THETA:g} mean batches (the paper has 5 and 10)"
        )
    tiers = [
        round(positive(n, v) * PS_PER_S) for n, v in (("paying_tbt_s", paying_tbt_s), ("other_tbt_s", other_tbt_s))
    ]

    weight = positive("ewma_weight", ewma_weight)
    if weight > 1:
        raise InputError(f"ewma_weight is {ewma_weight!r}; expected a share above 0 and at most 1")
    scalars: dict[str, Any] = {
        "alloc": 1,
        "to_front": 1,
        "deadline": 1,
        "decode_cap": positive_int("decode_cap", decode_cap),
        "theta_lo": round(1000 * low),
        "theta_hi": round(1000 * high),
        "kv_high": 960,
        "mean_kind": int(mean == "ewma"),
        "ewma_weight": weight,
    }
    return Policy(
        name="slai",
        decodes="decodes_critical",
        order=order_named(order, _ORDERS),
        eviction="evict_prefill",
        params={"order": order, "theta": theta, "mean": mean},
        scalars=scalars,
        prepare=functools.partial(_limits, tiers),
        **checked_common(token_budget, max_num_seqs),
    )


def _limits(
    tiers: list[int], policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig
) -> Prepared:
    own = np.where(requests.paying, tiers[0], tiers[1])
    limit = np.where(requests.tbt_limit_ps > 0, requests.tbt_limit_ps, own).astype(np.int64)
    return Prepared(requests.with_(tbt_limit_ps=limit))
