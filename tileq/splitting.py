"""`tileq plan --disaggregate`: the same nodes as a prefill pool and a decode pool, against mixing and taking turns."""

from __future__ import annotations

__all__ = ["MOST_NODES", "SplitAnswer", "plan_split"]

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tileq.setting import Setting
from tileq.traffic import Traffic
from tileq_theory.capacity import Limits, TilePlan, tile_plan
from tileq_theory.conventions import TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, positive

if TYPE_CHECKING:
    from tileq_theory.cluster import ClusterCapacity
    from tileq_theory.disaggregation import Comparison, KvLink

MOST_NODES = 100_000  # splits are compared one by one
_LOAD = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class SplitAnswer:
    """Nodes apart: the best whole split, its pools, what binds, and the other ways to use the same nodes.

    Parameters
    ----------
    nodes
        Nodes in all.
    link, demand
        The KV transfer, and what one request asks.
    comparison
        Mixed, aggregated (every node takes turns) and disaggregated on these nodes.
    prefill, decode
        Tile plan of one node of each pool.
    proof
        The cluster's program at the best split: prices of nodes and links, optimality conditions.
    needed
        Prefill and decode nodes for the offered rate at 90 % load; None without a rate.
    rate_per_s
        Offered rate.
    """

    nodes: int
    link: KvLink
    demand: Demand
    comparison: Comparison
    prefill: TilePlan
    decode: TilePlan
    proof: ClusterCapacity
    needed: tuple[int, int] | None
    rate_per_s: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the section `disaggregation` of the plan's document."""
        found, split = self.comparison, self.comparison.split
        return {
            "nodes": self.nodes,
            "rate_per_s": split.rate_per_s,
            "binding": split.binding,
            "split": {"prefill": split.prefill_nodes, "decode": split.decode_nodes},
            "utilisation": None if self.rate_per_s is None else self.rate_per_s / split.rate_per_s,
            "nodes_needed": None if self.needed is None else {"prefill": self.needed[0], "decode": self.needed[1]},
            "winner": found.winner,
            "mixed_rate_per_s": found.mixed_per_s,
            "aggregated_rate_per_s": found.aggregated_per_s,
            "relaxed": {
                "rate_per_s": split.relaxed_rate_per_s,
                "prefill_nodes": split.relaxed_prefill_nodes,
                "binding": split.relaxed_binding,
                "node_price_per_s": split.node_price_per_s,
                "link_elasticity": split.link_elasticity,
            },
            "rates_by_prefill_nodes": split.rates_per_s.tolist() if split.rates_per_s.size <= 1000 else None,
            "pools": {
                "prefill": self._pool(self.prefill, "prefill"),
                "decode": self._pool(self.decode, "decode"),
            },
            "link": {
                "node_bytes_per_s": _finite(self.link.node_bytes_per_s),
                "fabric_bytes_per_s": _finite(self.link.shared_bytes_per_s),
                "bytes_per_token": self.link.bytes_per_token,
                "bytes_per_request": self.demand.prompt_tokens * self.link.bytes_per_token,
                "transfer_s": split.transfer_s,
                "use": split.link_use,
            },
            "kkt": self.proof.kkt.to_dict(),
        }

    def _pool(self, tile: TilePlan, name: str) -> dict[str, Any]:
        from tileq_theory.disaggregation import rate_of

        split, one = self.comparison.split, tile.capacity
        p, d = split.prefill_nodes, split.decode_nodes
        more = (p + 1, d) if name == "prefill" else (p, d + 1)
        return {
            "nodes": p if name == "prefill" else d,
            "node_rate_per_s": one.rate_per_s,
            "binding": one.binding,
            "load": self.proof.group(name).load,
            "one_more_per_s": rate_of(split, self.demand, self.link, *more) - split.rate_per_s,
            "token_budget": tile.token_budget,
            "max_num_seqs": tile.max_num_seqs,
            "tile": tile.to_dict()["tile"],
            "iteration_s": tile.iteration_s,
            "prices": one.prices.to_dict(),
            "kkt": one.kkt().to_dict(),
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def plan_split(
    setting: Setting,
    traffic: Traffic,
    limits: Limits,
    *,
    rate_per_s: float | None,
    convention: TokenConvention,
    link_gb_per_s: float,
    fabric_gb_per_s: float | None = None,
) -> SplitAnswer:
    """Return the best split of `limits.nodes` nodes (of as many as the rate needs, where one node was named).

    Parameters
    ----------
    setting, traffic, limits
        Machine, workload and limits of the plan; its TBT limit binds the nodes that decode.
    rate_per_s
        Offered rate; None: unknown.
    link_gb_per_s, fabric_gb_per_s
        10^9 bytes a second of one node's port, and of all transfers together (None: no limit).

    Raises
    ------
    InputError
        One node without a rate, too many nodes, a bandwidth that is not above 0.
    """
    from tileq_theory.cluster import NodeGroup, cluster_capacity
    from tileq_theory.disaggregation import DecodeHalf, KvLink, Pool, PrefillHalf, best_split, compare_modes, nodes_for

    link = KvLink(
        bytes_per_token=float(setting.model.kv_bytes_per_token(setting.kv_dtype or "bf16")),
        node_bytes_per_s=1e9 * positive("link", link_gb_per_s),
        shared_bytes_per_s=math.inf if fabric_gb_per_s is None else 1e9 * positive("fabric", fabric_gb_per_s),
    )
    demand = traffic.workload.demand(chunk_tokens=limits.max_batch_tokens, convention=convention, counting="least")
    first, second = Pool(setting.time, limits.with_(tbt_s=None)), Pool(setting.time, limits)
    needed = None
    if rate_per_s:
        two = best_split(demand, nodes=2, prefill=first, decode=second, link=link)
        needed = nodes_for(two, demand, link, rate_per_s, load=_LOAD)
    nodes = limits.nodes if limits.nodes > 1 or needed is None else sum(needed)
    if nodes < 2:
        raise InputError("disaggregate needs 2 nodes or more to split, or a rate to count them for; nodes is 1")
    if nodes > MOST_NODES:
        raise InputError(f"disaggregate has {nodes} nodes to split; expected at most {MOST_NODES}")
    found = compare_modes(demand, setting.time, limits.with_(nodes=nodes), link=link)
    split = found.split
    prefill = tile_plan(first.time, PrefillHalf(traffic.workload), first.limits.with_(nodes=1), convention=convention)
    decode = tile_plan(second.time, DecodeHalf(traffic.workload), second.limits.with_(nodes=1), convention=convention)
    groups = [
        NodeGroup("prefill", first.time, first.limits, split.prefill_nodes, "prefill"),
        NodeGroup("decode", second.time, second.limits, split.decode_nodes, "decode"),
    ]
    proof = cluster_capacity(groups, [demand], link=link)
    return SplitAnswer(nodes, link, demand, found, prefill, decode, proof, needed, rate_per_s)
