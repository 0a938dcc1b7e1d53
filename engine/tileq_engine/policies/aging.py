"""Aging by score."""

from __future__ import annotations

__all__ = ["aging"]

from dataclasses import replace

from tileq_engine.policies.base import base_policy
from tileq_engine.policies.common import both, order_named, predicting, predictor_params
from tileq_engine.policy import Policy


def aging(
    *,
    predictor: str = "none",
    sigma: float = 0.5,
    quantile: float = 0.9,
    seed: int = 0,
    base: str = "vllm_v1",
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """Aging: the waiting queue by a score of wait and length (the scorer of vLLM's RFC on pluggable schedulers).

    score = sigma(wait; 5 s, 1/5)/2 + (1 - sigma(length; 32768, 1/32768))/2, higher first, with sigma the logistic
    function and length the prompt plus what the `predictor` says of the output ("none": nothing). Scores are taken
    anew at every decision. It optimises a compromise of short-first and fairness: nobody waits for ever. It fails
    to protect residents: aging reorders the queue and cannot stop an eviction that comes first; and beyond some
    tens of seconds of wait all scores saturate and length alone decides among the old.
    """
    under = base_policy(base, token_budget=token_budget, max_num_seqs=max_num_seqs)
    return replace(
        under,
        name="aging",
        order=order_named("aging"),
        params={**predictor_params(predictor, sigma, quantile, seed), "base": base},
        scalars={**under.scalars, "dynamic": 1},
        prepare=both(under.prepare, predicting(predictor, sigma, quantile, seed)),
    )
