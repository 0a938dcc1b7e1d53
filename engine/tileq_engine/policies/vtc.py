"""Weighted fair shares of tokens: the virtual token counter."""

from __future__ import annotations

__all__ = ["vtc"]

from dataclasses import replace

from tileq_engine.config import EngineConfig
from tileq_engine.policies.base import base_policy
from tileq_engine.policies.common import both, prepared_order
from tileq_engine.policy import Policy, Prepared
from tileq_engine.requests import Requests
from tileq_theory.iteration_time import IterationTime


def vtc(*, base: str = "sarathi", token_budget: int | None = None, max_num_seqs: int | None = None) -> Policy:
    """Virtual token counter: weighted fair shares of tokens among tenants (Sheng et al., OSDI 2024, Algorithms 2, 3).

    Every tenant has a counter of the tokens it got: a prompt's when it is admitted for the first time, an output token
    as it comes, at the prices and over the weight of `Tenants`. The next to be admitted is the earliest request of the
    tenant whose counter is the least; batches are those of `base`. A tenant that comes (back) to the queue is lifted to
    the least counter of those who wait there, or to that of whoever left the queue last, so that time without requests
    earns no credit. It optimises fairness: two tenants that both wait all the time differ in service over weight by a
    constant, whatever the horizon (the source's Theorem 4.4: twice the larger of what the longest prompt and what all
    residents' KV can cost). Without `Tenants` in the settings all tenants are equal. It fails on memory and latency:
    residents are not preempted for fairness, so that long requests of one tenant hold slots that others wait for, and
    a tenant of short requests waits as long as its share says, urgent or not.
    """
    under = base_policy(base, token_budget=token_budget, max_num_seqs=max_num_seqs)
    return replace(
        under,
        name="vtc",
        order=prepared_order("vtc"),
        params={"base": base},
        scalars={**under.scalars, "dynamic": 1},
        prepare=both(under.prepare, _counted),
    )


def _counted(policy: Policy, requests: Requests, time: IterationTime, config: EngineConfig) -> Prepared:
    return Prepared(requests, {"fair": 1})
