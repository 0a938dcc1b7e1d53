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

__all__ = ["Pool", "Split", "best_split", "decode_demand", "nodes_for", "prefill_demand", "rate_of"]

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity import Capacity, Limits, capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation.link import KvLink
from tileq_theory.errors import InputError, positive, positive_int
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
    link_use
        Share of what the links carry that transfers take at `rate_per_s`: the fullest port, or the shared fabric.
    node_price_per_s
        Requests per second of one more node, divided freely: d lambda/d R.
    link_elasticity
        Percent of the relaxed rate that one percent more bandwidth brings.
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
    link_use: float = 0.0
    node_price_per_s: float = 0.0
    link_elasticity: float = 0.0


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
        link_use=float(rates[at] / min(ports[at], shared)) if n.size else 0.0,
        node_price_per_s=0.0 if relaxed >= shared else relaxed / count,
        link_elasticity=_link_elasticity(pools, wire, relaxed, shared),
    )


def _link_elasticity(pools: tuple[float, float], wire: float, relaxed: float, shared: float) -> float:
    """Return d ln lambda / d ln B of the relaxed rate: 1 where the fabric binds, else the ports' share of nodes."""
    if relaxed >= shared:
        return 1.0
    per_request = [max(1 / rate, wire) for rate in pools]
    return sum(wire for rate in pools if wire > 1 / rate) / sum(per_request)


def rate_of(split: Split, demand: Demand, link: KvLink, prefill_nodes: int, decode_nodes: int) -> float:
    """Return lambda of any whole split with the pools of `split`, requests per second (0 where a pool is empty)."""
    p, d, wire = prefill_nodes, decode_nodes, link.node_s(demand.prompt_tokens)
    ports = math.inf if wire == 0 else min(p, d) / wire
    pools = min(p * split.prefill.rate_per_s, d * split.decode.rate_per_s)
    return min(pools, ports, link.shared_rate_per_s(demand.prompt_tokens))


def nodes_for(split: Split, demand: Demand, link: KvLink, rate_per_s: float, *, load: float = 0.9) -> tuple[int, int]:
    """Return the least prefill and decode nodes that carry a rate with pools and links at most at `load`.

    Raises
    ------
    InputError
        A rate or load that is not above 0, or a rate beyond what the shared fabric carries.

    Examples
    --------
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> d = Demand(100, 300, 75150, 5050, 75250, 301, 100, 400)
    >>> pool, link = Pool(t, Limits(max_batch_tokens=512)), KvLink(131072)
    >>> nodes_for(best_split(d, nodes=2, prefill=pool, decode=pool, link=link), d, link, 60.0)
    (2, 6)
    """
    rate, most = positive("rate_per_s", rate_per_s), positive("load", load)
    if most > 1:
        raise InputError(f"load is {load!r}; expected a share above 0 and at most 1")
    shared = link.shared_rate_per_s(demand.prompt_tokens)
    if rate > shared * most:
        raise InputError(
            f"the rate is {rate:g}/s, but the shared fabric carries {shared * most:g}/s at {100 * most:g}% load; "
            "expected a faster fabric or a lower rate"
        )
    wire = link.node_s(demand.prompt_tokens)
    needs = [rate * max(1 / pool.rate_per_s, wire) / most for pool in (split.prefill, split.decode)]
    # a rate that is exactly k nodes' worth needs k nodes, not k + 1
    prefill, decode = (max(1, math.ceil(need * (1 - 1e-12))) for need in needs)
    return prefill, decode


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
