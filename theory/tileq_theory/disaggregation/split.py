r"""Disaggregation: prefill nodes and decode nodes as a tandem, with the KV transfer between them.

With mu_p requests a second of one prefill node and mu_d of one decode node, each the answer of the capacity program for
its half of the demand (the TBT limit binds decode nodes only), and a link time l = P b/B of a node per request,

    lambda(n) = min(n mu_p, (R - n) mu_d, n/l, (R - n)/l, shared),       n prefill nodes of R

    whole:     max over n = 1, ..., R - 1
    relaxed:   R / (max(1/mu_p, l) + max(1/mu_d, l)), at most the shared link;  n = lambda max(1/mu_p, l)

The relaxed rate is the limit of many nodes, the whole one is what R nodes do. KV on a
prefill node while its transfer runs is not counted. Whether a policy reaches both programs at once is not proved.
"""

from __future__ import annotations

__all__ = ["Pool", "Split", "best_split", "decode_demand", "prefill_demand"]

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity import Capacity, Limits, capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation.link import KvLink
from tileq_theory.errors import InputError, positive_int
from tileq_theory.iteration_time import IterationTime

SplitBinding = Literal["prefill pool", "decode pool", "link"]


def prefill_demand(demand: Demand) -> Demand:
    """Return the prefill half: P, its attention, the memory and slots of its prefill iterations.

    Examples
    --------
    >>> whole = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200)
    >>> prefill_demand(whole).memory_iterations, prefill_demand(whole).slot_iterations
    (100.0, 1.0)
    """
    return replace(
        demand,
        decode_tokens=0.0,
        kv_read_tokens=0.0,
        kv_shared_tokens=0.0,
        memory_iterations=float(max(demand.memory_iterations - demand.kv_held_tokens, 0.0)),
        slot_iterations=float(max(demand.slot_iterations - demand.decode_tokens, 0.0)),
        longest_context_tokens=demand.longest_prompt_tokens,
    )


def decode_demand(demand: Demand) -> Demand:
    """Return the decode half: D, the KV it reads, which is the memory it holds, and its slots.

    Examples
    --------
    >>> decode_demand(Demand(100, 100, 15050, 5050, 15150, 101, 100, 200)).memory_iterations
    15050.0
    """
    return replace(
        demand,
        prefill_tokens=0.0,
        attention_pairs=0.0,
        cached_tokens=0.0,
        memory_iterations=float(demand.kv_held_tokens),
        slot_iterations=float(demand.decode_tokens),
    )


@dataclass(frozen=True, slots=True)
class Pool:
    """The nodes of one phase.

    Parameters
    ----------
    time
        Iteration time of a node.
    limits
        Limits of a node; `nodes` is ignored, the split decides it.
    """

    time: IterationTime
    limits: Limits


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The best split of R nodes.

    Parameters
    ----------
    rate_per_s
        Capacity with whole nodes (0 for one node: it cannot be both).
    prefill_nodes, decode_nodes
        The split that reaches it (the one with most decode nodes among equals).
    binding
        What stops the whole split.
    relaxed_rate_per_s, relaxed_prefill_nodes
        The same with nodes divided freely.
    relaxed_binding
        "link" where the link sets a pool's size or the shared fabric the rate, else both pools bind alike and the one
        that takes more nodes is named.
    rates_per_s
        lambda(n) for n = 1, ..., R - 1.
    prefill, decode
        Capacity of one prefill and of one decode node, with their prices.
    transfer_s
        Unloaded transfer of a mean prompt, seconds.
    """

    rate_per_s: float
    prefill_nodes: int
    decode_nodes: int
    binding: SplitBinding
    relaxed_rate_per_s: float
    relaxed_prefill_nodes: float
    relaxed_binding: SplitBinding
    rates_per_s: Float[np.ndarray, "split"]
    prefill: Capacity
    decode: Capacity
    transfer_s: float


def best_split(demand: Demand, *, nodes: int, prefill: Pool, decode: Pool, link: KvLink) -> Split:
    """Return the capacity of R nodes split into prefill and decode pools.

    Parameters
    ----------
    demand
        Of one request; P and D above 0.
    nodes
        R, at least 1 (with 1 the whole capacity is 0).
    prefill, decode
        The pools; a TBT limit belongs in the decode pool's limits.
    link
        KV transfer.

    Raises
    ------
    InputError
        A demand without prefill or without decode, or limits under which some request never fits.

    Examples
    --------
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> d = Demand(100, 300, 75150, 5050, 75250, 301, 100, 400)
    >>> pool = Pool(t, Limits(max_batch_tokens=512))
    >>> split = best_split(d, nodes=4, prefill=pool, decode=pool, link=KvLink(131072))
    >>> split.prefill_nodes, split.decode_nodes, round(split.rate_per_s, 4), split.binding
    (1, 3, 33.4291, 'prefill pool')
    """
    count = positive_int("nodes", nodes)
    if demand.prefill_tokens <= 0 or demand.decode_tokens <= 0:
        raise InputError(
            f"demand has {demand.prefill_tokens:g} prefill and {demand.decode_tokens:g} decode tokens; expected both "
            "above 0: with only one phase there is nothing to split"
        )
    first = capacity(prefill.time, prefill_demand(demand), prefill.limits.with_(nodes=1))
    second = capacity(decode.time, decode_demand(demand), decode.limits.with_(nodes=1))
    wire, shared = link.node_s(demand.prompt_tokens), link.shared_rate_per_s(demand.prompt_tokens)
    pools = (first.rate_per_s, second.rate_per_s)
    n = np.arange(1, count, dtype=float)
    ports = np.full(n.size, math.inf) if wire == 0 else np.minimum(n, count - n) / wire
    rates = np.minimum(np.minimum(n * pools[0], (count - n) * pools[1]), np.minimum(ports, shared))
    at = int(np.argmax(rates)) if n.size else -1
    relaxed, share = _relaxed(count, pools, wire, shared)
    return Split(
        rate_per_s=float(rates[at]) if n.size else 0.0,
        prefill_nodes=at + 1,
        decode_nodes=count - at - 1,
        binding=_binding(n[at], count, pools, float(ports[at]), shared) if n.size else "decode pool",
        relaxed_rate_per_s=relaxed,
        relaxed_prefill_nodes=share,
        relaxed_binding=_relaxed_binding(count, relaxed, share, pools, wire, shared),
        rates_per_s=rates,
        prefill=first,
        decode=second,
        transfer_s=link.transfer_s(demand.prompt_tokens),
    )


def _relaxed(count: int, pools: tuple[float, float], wire: float, shared: float) -> tuple[float, float]:
    per_request = max(1 / pools[0], wire), max(1 / pools[1], wire)
    free = count / sum(per_request)
    # under a shared limit nodes are left over; they are kept in the proportion of the need
    return min(free, shared), free * per_request[0]


def _relaxed_binding(
    count: int, rate: float, share: float, pools: tuple[float, float], wire: float, shared: float
) -> SplitBinding:
    if rate >= shared * (1 - 1e-12) or wire > 1 / pools[0] or wire > 1 / pools[1]:
        return "link"
    return "prefill pool" if share >= count / 2 else "decode pool"


def _binding(n: float, count: int, pools: tuple[float, float], ports: float, shared: float) -> SplitBinding:
    rows: dict[SplitBinding, float] = {
        "prefill pool": n * pools[0],
        "decode pool": (count - n) * pools[1],
        "link": min(ports, shared),
    }
    return min(rows, key=lambda name: rows[name])
