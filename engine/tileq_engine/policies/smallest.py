"""Preemptive size-based service, one request at a time: PSJF and SRPT."""

from __future__ import annotations

__all__ = ["psjf", "srpt"]

from tileq_engine.policies.common import checked_common, predicting, predictor_params
from tileq_engine.policy import Policy


def psjf(
    *,
    predictor: str = "oracle",
    sigma: float = 0.5,
    quantile: float = 0.9,
    seed: int = 0,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """PSJF: preemptive shortest job first, one request at a time.

    Every iteration serves one request, the smallest by prompt plus predicted output, with a chunk of the budget or
    a decode; who is overtaken keeps its KV and resumes. It is the M/G/1 discipline of that name at the engine's
    token clock (Mitzenmacher & Shahout, arXiv 2503.07545), a reference for queueing, not for GPUs: it batches
    nothing, and needs slots and memory for everybody in the system.
    """
    return _policy("psjf", 0, predictor, sigma, quantile, seed, token_budget, max_num_seqs)


def srpt(
    *,
    predictor: str = "oracle",
    sigma: float = 0.5,
    quantile: float = 0.9,
    seed: int = 0,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
) -> Policy:
    """SRPT: shortest remaining processing time, one request at a time.

    As `psjf`, by what is left of prompt and predicted output: the discipline that minimises the mean response of
    the M/G/1 queue (Schrage, 1968). It fails where `psjf` does, and its mean is only as good as its predictions.
    """
    return _policy("srpt", 1, predictor, sigma, quantile, seed, token_budget, max_num_seqs)


def _policy(
    name: str,
    remaining: int,
    predictor: str,
    sigma: float,
    quantile: float,
    seed: int,
    token_budget: int | None,
    max_num_seqs: int | None,
) -> Policy:
    return Policy(
        name=name,
        mixing="mix_smallest",
        eviction="evict_largest",
        params=predictor_params(predictor, sigma, quantile, seed),
        scalars={"alloc": 1, "to_front": 1, "want": remaining},
        prepare=predicting(predictor, sigma, quantile, seed),
        **checked_common(token_budget, max_num_seqs),
    )
