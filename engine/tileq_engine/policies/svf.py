"""Smallest volume first."""

from __future__ import annotations

__all__ = ["svf"]

from tileq_engine.policies.common import checked_common, predicting, predictor_params
from tileq_engine.policy import Policy


def svf(
    *,
    predictor: str = "oracle",
    sigma: float = 0.5,
    quantile: float = 0.9,
    seed: int = 0,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """Smallest volume first (Kong, Qi, Ye, Zhou, arXiv 2606.22327).

    Waiting requests stand by memory volume s o + (o^2 + o)/2, the KV a request of prompt s and predicted output o
    holds summed over its decode steps; admission reserves the blocks of prompt and predicted output, so that with
    an oracle nobody is ever preempted; batches are Sarathi's. It optimises the sum of completion times of a backlog
    under a memory limit, within 1 + 2/(1 - alpha) of the optimum when s + o <= alpha M. It fails as every
    shortest-first rule does, by starving large requests, and when predictions are short of the truth.
    """
    return Policy(
        name="svf",
        order="order_volume",
        params=predictor_params(predictor, sigma, quantile, seed),
        scalars={"alloc": 2, "to_front": 1},
        prepare=predicting(predictor, sigma, quantile, seed),
        **checked_common(token_budget, max_num_seqs),
    )
