"""Shortest job first, on the batching of a known engine."""

from __future__ import annotations

__all__ = ["sjf"]

from dataclasses import replace

from tileq_engine.policies.base import base_policy
from tileq_engine.policies.common import both, order_named, predicting, predictor_params
from tileq_engine.policy import Policy
from tileq_theory.errors import InputError


def sjf(
    *,
    key: str = "output",
    predictor: str = "oracle",
    sigma: float = 0.5,
    quantile: float = 0.9,
    seed: int = 0,
    base: str = "vllm_v1",
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """Shortest job first by predicted length, on the batching of `base` ("vllm_v1", "sarathi", "vllm_v0").

    Waiting requests stand by predicted output (`key="output"`) or by prompt plus predicted output ("total"); the
    `predictor` is "oracle", "noise" (times exp(sigma Z)), "quantile" (of the class), "none" (then it is FCFS), or
    "given". Residents are not preempted for order's sake. It optimises the mean response, as SJF does in the M/G/1
    queue (Mitzenmacher & Shahout, arXiv 2503.07545). It fails in the tail: long requests may starve near
    saturation, and under heavy-tailed lengths a wrong prediction makes the tail worse than FCFS.
    """
    if key not in ("output", "total"):
        raise InputError(f"key is {key!r}; expected 'output' or 'total'")
    under = base_policy(base, token_budget=token_budget, max_num_seqs=max_num_seqs)
    return replace(
        under,
        name="sjf",
        order=order_named("sjf" if key == "output" else "sjf_total"),
        params={"key": key, **predictor_params(predictor, sigma, quantile, seed), "base": base},
        prepare=both(under.prepare, predicting(predictor, sigma, quantile, seed)),
    )
