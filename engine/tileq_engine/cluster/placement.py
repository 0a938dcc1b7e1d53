"""Static global placement: each node's share of the requests from the capacity program."""

from __future__ import annotations

__all__ = ["node_rates", "placement_weights"]

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from tileq_engine.cluster.nodes import Cluster, Node
from tileq_engine.policy import Policy
from tileq_theory.capacity import Limits, capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation import decode_demand, prefill_demand
from tileq_theory.errors import instance


def node_limits(node: Node) -> Limits:
    """Return the limits of the capacity program that the node's settings are."""
    assert isinstance(node.policy, Policy)
    config = node.policy.settings(node.config)
    return Limits(max_batch_tokens=config.token_budget, max_num_seqs=config.max_num_seqs, kv_tokens=config.kv_tokens)


def node_rates(cluster: Cluster, demand: Demand) -> Float[np.ndarray, "kind"]:
    """Return the capacity program's rate of one node of each of `cluster.nodes`, requests per second.

    A node of one phase has that half of the demand.
    """
    instance("cluster", cluster, Cluster)
    instance("demand", demand, Demand)
    halves = {"both": demand, "prefill": prefill_demand(demand), "decode": decode_demand(demand)}
    return np.array([capacity(n.time, halves[n.role], node_limits(n)).rate_per_s for n in cluster.nodes])


def placement_weights(cluster: Cluster, demand: Demand) -> Cluster:
    """Return the cluster with each node's weight set to its rate by the capacity program, over the mean of its pool.

    With these weights every node of a pool is as far from its own capacity as the others: random and round robin give
    it requests in proportion, the others divide its load by it.

    Parameters
    ----------
    demand
        Of one request (`Workload.demand`).

    Raises
    ------
    InputError
        As the capacity program.

    Examples
    --------
    >>> from tileq_engine.config import EngineConfig
    >>> from tileq_theory.iteration_time import IterationTime
    >>> settings = EngineConfig(token_budget=256)
    >>> slow, fast = (IterationTime(launch_s=c, token_s=1e-4) for c in (0.02, 0.01))
    >>> two = Cluster([Node("slow", slow, config=settings), Node("fast", fast, config=settings)])
    >>> d = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200)
    >>> [round(n.weight, 3) for n in placement_weights(two, d).nodes]
    [0.876, 1.124]
    """
    rates = node_rates(cluster, demand)
    entry = np.array([node.role != "decode" for node in cluster.nodes])
    counts = np.array([node.count for node in cluster.nodes])
    means = {pool: np.average(rates[entry == pool], weights=counts[entry == pool]) for pool in set(entry.tolist())}
    nodes = [
        replace(node, weight=float(rate / means[bool(first)]))
        for node, rate, first in zip(cluster.nodes, rates, entry, strict=True)
    ]
    return cluster.with_(nodes=nodes)
