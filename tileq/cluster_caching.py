r"""What prefix caches, and the router before them, do to a cluster's capacity.

A node with a cache computes what is not found in it, so its share of the cluster's program has a demand of its own.
How much is found depends on what the router sends there: whole conversations (session and prefix affinity) or single
turns (every other router), by `tileq_theory.prefix_cache.split`; and, since a finite cache forgets in time, on the
rate. The capacity is the rate at which the program with the hits at that rate says the same rate. More requests a
second never find more, so there is one, between the capacity without caches and that with the hits found at it.
"""

from __future__ import annotations

__all__ = ["CachedCapacity", "NodeHits", "cached_capacity"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tileq.routed_hits import TOGETHER, conversation_law, trace_law
from tileq.traffic import Traffic
from tileq_theory.conventions import TokenConvention

if TYPE_CHECKING:
    from tileq_engine.cluster import Cluster
    from tileq_theory.cluster import ClusterCapacity, NodeGroup
    from tileq_theory.demand import Demand
    from tileq_theory.prefix_cache import CachedLengths

_AGREE = 1e-4  # relative difference of rate and capacity at that rate
_ROUNDS = 40
_BY_WEIGHT = ("random", "round_robin")


@dataclass(frozen=True, slots=True)
class NodeHits:
    """What the cache of one node of a group serves, at capacity.

    Parameters
    ----------
    name
        Of the group.
    share
        Share of all requests that one of its nodes is sent.
    cache_tokens
        Tokens that it caches; None: no limit.
    hit_share
        Share of the prompt tokens sent there that are found.
    hit_tokens
        The same as tokens of a mean prompt.
    """

    name: str
    share: float
    cache_tokens: float | None
    hit_share: float
    hit_tokens: float

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, eq=False)
class CachedCapacity:
    """Capacity of a cluster with its caches.

    Parameters
    ----------
    capacity
        The program's answer with what the caches leave to compute.
    without
        The same without caches.
    router, together
        Its name, and whether it keeps the turns of a conversation together.
    nodes
        Hits by group of nodes.
    ring_rate_per_s
        Of session affinity, whose ring gives nodes unequal shares of the conversations: the rate at which the first of
        them is full; None for other routers.
    """

    capacity: ClusterCapacity
    without: ClusterCapacity
    router: str
    together: bool
    nodes: tuple[NodeHits, ...]
    ring_rate_per_s: float | None = None

    def warnings(self) -> tuple[str, ...]:
        """Return what the hits rest on."""
        if self.ring_rate_per_s is not None and self.ring_rate_per_s < 0.99 * self.capacity.rate_per_s:
            return (
                "session_affinity's ring gives nodes unequal shares of the conversations: the first is full at "
                f"{self.ring_rate_per_s:.4g} requests/s; more points even them out",
            )
        if self.together or sum(node.share < 1 for node in self.nodes) == 0:
            return ()
        return (
            f"router {self.router} splits conversations: a node finds only the turns that came to it "
            f"({100 * self.hit_share:.3g}% of the prompt tokens); session_affinity keeps them together",
        )

    @property
    def hit_share(self) -> float:
        """Share of the prompt tokens found, over the nodes with a cache."""
        return float(np.average([n.hit_share for n in self.nodes], weights=[n.share for n in self.nodes]))

    def to_dict(self) -> dict[str, Any]:
        """Return the section `prefix_cache` of a cluster's document."""
        gain = self.capacity.rate_per_s / self.without.rate_per_s - 1
        return {
            "router": self.router,
            "conversations_together": self.together,
            "rate_gain": gain,
            "rate_without_per_s": self.without.rate_per_s,
            "ring_rate_per_s": self.ring_rate_per_s,
            "nodes": [node.to_dict() for node in self.nodes],
        }


def cached_capacity(
    cluster: Cluster,
    traffic: Traffic,
    groups: Sequence[NodeGroup],
    solve: Callable[[Sequence[NodeGroup]], ClusterCapacity],
    *,
    convention: TokenConvention,
) -> CachedCapacity | None:
    """Return the capacity with the hits of the nodes' caches; None where no node has one, or nothing tells the hits.

    Parameters
    ----------
    cluster, groups
        The engine's nodes and the theory's groups, in one order.
    traffic
        The requests; with `prefixes`.
    solve
        The cluster's program.
    convention
        Of tokens.
    """
    cached = [k for k, node in enumerate(cluster.nodes) if node.config.prefix_cache and node.role != "decode"]
    if not cached or traffic.prefixes is None or len(traffic.workload.classes) > 1:
        return None
    without = solve(groups)
    chunk = max(int(group.limits.max_batch_tokens) for group in groups)
    hits: dict[int, NodeHits] = {}

    def at(rate_per_s: float, flows: ClusterCapacity) -> ClusterCapacity:
        own = list(groups)
        for k, share in _shares(cluster, flows).items():
            if k in cached:
                law = node_law(traffic, cluster, k, share, rate_per_s)
                size = cluster.nodes[k].config.kv_tokens
                hits[k] = NodeHits(
                    cluster.nodes[k].name,
                    share,
                    None if size is None else float(size),
                    law.hit_share,
                    law.hit_share * law.prompt_law.mean(),
                )
                demand: Demand = law.demand(chunk_tokens=chunk, convention=convention, counting="least")
                own[k] = replace(own[k], demands=(demand,))
        return solve(own)

    found = _agreed(at, without)
    told = tuple(hits[k] for k in sorted(hits))
    ring = _ring_rate(cluster, found) if cluster.router.name == "session_affinity" else None
    return CachedCapacity(found, without, cluster.router.name, cluster.router.name in TOGETHER, told, ring)


def _agreed(at: Callable[[float, ClusterCapacity], ClusterCapacity], without: ClusterCapacity) -> ClusterCapacity:
    """Return the capacity that is its own rate: the zero of the falling `at(rate) - rate`, by the Illinois rule."""
    low = without.rate_per_s
    found = at(low, without)
    above = found.rate_per_s - low
    high, below = found.rate_per_s, 0.0
    side = 0
    for turn in range(_ROUNDS):
        rate = high if turn == 0 else (low * below - high * above) / (below - above)
        found = at(rate, found)
        gap = found.rate_per_s - rate
        if abs(gap) <= _AGREE * rate:
            break
        if gap > 0:
            low, above = rate, gap
            below /= 2 if side > 0 else 1
            side = 1
        else:
            high, below = rate, gap
            above /= 2 if side < 0 else 1
            side = -1
    return found


def _shares(cluster: Cluster, flows: ClusterCapacity) -> dict[int, float]:
    """Return the share of all requests that one node of each entry group is sent.

    By weight or place on the ring where the router goes by these; in proportion to what the program sends there where
    it goes by load.
    """
    entry = [k for k, node in enumerate(cluster.nodes) if node.role != "decode"]
    if cluster.router.name == "session_affinity":
        return _ring_shares(cluster, entry)
    if cluster.router.name in _BY_WEIGHT:
        sent = {k: cluster.nodes[k].weight for k in entry}
    else:
        sent = {k: float(flows.groups[k].rates_per_s.sum()) / cluster.nodes[k].count for k in entry}
    total = sum(sent[k] * cluster.nodes[k].count for k in entry)
    return {k: max(value / total, 1e-9) for k, value in sent.items()}


def _ring(cluster: Cluster) -> Float[np.ndarray, "replica"]:
    """Return the part of the ring, and so of the conversations, that each replica has."""
    from tileq_engine.cluster.tables import ring_points

    points = ring_points(cluster)
    places = np.array([place for place, _ in points], dtype=float)
    arcs = np.diff(places, prepend=places[-1] - 2.0**63) / 2.0**63  # who stands at the end of an arc has it
    return np.bincount([r for _, r in points], weights=arcs, minlength=len(cluster.replicas))


def _edges(cluster: Cluster) -> list[int]:
    return [0, *np.cumsum([node.count for node in cluster.nodes]).tolist()]


def _ring_shares(cluster: Cluster, entry: list[int]) -> dict[int, float]:
    ring, edges = _ring(cluster), _edges(cluster)
    return {k: float(ring[edges[k] : edges[k + 1]].mean()) for k in entry}


def _ring_rate(cluster: Cluster, found: ClusterCapacity) -> float:
    """Return the rate at which the first replica is sent as much as the capacity's flow of one of its group."""
    ring, edges = _ring(cluster), _edges(cluster)
    rates: list[float] = []
    for k, (node, group) in enumerate(zip(cluster.nodes, found.groups, strict=True)):
        if node.role != "decode":
            most = float(ring[edges[k] : edges[k + 1]].max())
            rates.append(float(group.rates_per_s.sum()) / node.count / most)
    return min(rates)


def node_law(traffic: Traffic, cluster: Cluster, k: int, share: float, rate_per_s: float) -> CachedLengths:
    """Return the lengths with what a node of group `k` finds of them, at `rate_per_s` over the cluster."""
    from tileq_theory.prefix_cache import Conversations

    node = cluster.nodes[k]
    base = traffic.workload.classes[0].lengths
    together = cluster.router.name in TOGETHER
    size = None if node.config.kv_tokens is None else float(node.config.kv_tokens)
    residents = float(node.config.max_num_seqs)
    if size is not None:
        residents = min(residents, size / (base.prompt_law.mean() + base.output_law.mean() / 2))
    answers = node.role == "both"  # else they are made elsewhere
    if isinstance(traffic.prefixes, Conversations):
        talks = traffic.prefixes if answers else replace(traffic.prefixes, cache_answers=False)
        return conversation_law(base, talks, share, together, size, residents, rate_per_s * share)[0]
    return trace_law(base, traffic.prefixes, share, together, size, residents, answers)[0]
