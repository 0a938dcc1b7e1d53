"""From a cluster's file to the engine's nodes and the theory's groups: settings, budgets, memory, capacity.

A node's token budget, sequences and KV memory are those of its own plan (of its half of the requests, where it has
one phase), unless the file says otherwise, as `simulate` does for one replica.
"""

from __future__ import annotations

__all__ = ["ClusterSetting", "make_cluster"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from re import fullmatch
from typing import TYPE_CHECKING, Any

from tileq.cluster_file import read_cluster_file
from tileq.cluster_idle import without_effect
from tileq.setting import Setting, make_setting
from tileq.traffic import Traffic
from tileq_theory.capacity import Limits, TilePlan, tile_plan
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import InputError, near_matches

if TYPE_CHECKING:
    from tileq.cluster_caching import CachedCapacity
    from tileq_engine.cluster import Cluster, Node
    from tileq_theory.cluster import ClusterCapacity, NodeGroup
    from tileq_theory.disaggregation import KvLink

_UNCACHED = (
    "the requests do not tell which prompts share a prefix: the capacity counts whole prompts, and prefix caches find "
    "nothing"
)
_OF_SETTING = ("gpu", "model", "tp", "dtype", "kv_dtype", "memory_utilisation", "times", "calibration")


@dataclass(frozen=True, slots=True, eq=False)
class ClusterSetting:
    """A cluster ready to run, and its capacity by theory.

    Parameters
    ----------
    label
        Name of the file, or "cluster".
    asked
        What the file says, defaults filled in; None for an engine's `Cluster`.
    cluster
        The engine's nodes, routers and link.
    traffic
        The requests.
    capacity
        The cluster's program with the nodes' own budgets, slots and memory.
    warnings
        What to know before relying on the numbers.
    caching
        What the nodes' prefix caches do to the capacity; None without them, or where no prompts are known to share any.
    """

    label: str
    asked: Mapping[str, Any] | None
    cluster: Cluster
    traffic: Traffic
    capacity: ClusterCapacity
    warnings: tuple[str, ...] = ()
    caching: CachedCapacity | None = None

    @property
    def caches(self) -> bool:
        """Whether some node keeps prefixes."""
        return any(node.config.prefix_cache for node in self.cluster.nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return the cluster as documents have it."""
        c = self.cluster
        return {
            "label": self.label,
            "router": c.router.to_dict(),
            "decode_router": c.decode_router.to_dict() if c.disaggregated else None,
            "link": None if c.link is None else _link_dict(c.link),
            "on_full": c.on_full,
            "rebalance_s": c.rebalance_s,
            "nodes": [_node_dict(node, self.asked, k) for k, node in enumerate(c.nodes)],
            "failures": [{"node": f.node, "at_s": f.at_s, "back_s": f.back_s} for f in c.failures],
        }


def _link_dict(link: KvLink) -> dict[str, Any]:
    from tileq.plain import plain

    found: dict[str, Any] = plain(link)
    return found


def _node_dict(node: Node, asked: Mapping[str, Any] | None, k: int) -> dict[str, Any]:
    own = {} if asked is None else {key: asked["node"][k][key] for key in ("gpu", "model", "tp", "calibration")}
    from tileq.experiments import asked_of

    config: Any = node.config
    policy: Any = node.policy
    return {
        "name": node.name,
        **own,
        "role": node.role,
        "count": node.count,
        "weight": node.weight,
        "policy": policy.name,
        "token_budget": config.token_budget,
        "max_num_seqs": config.max_num_seqs,
        "kv_tokens": config.kv_tokens,
        "queue_limit": config.queue_limit,
        **asked_of(config),
    }


def make_cluster(
    given: str | PathLike[str] | Mapping[str, Any] | Cluster,
    traffic: Traffic,
    *,
    convention: TokenConvention = "engine",
) -> ClusterSetting:
    """Return the cluster that a file, a mapping of the same layout, or an engine's `Cluster` describes.

    Raises
    ------
    InputError
        In one line that names file, node and key.
    """
    from tileq_engine.cluster import Cluster

    if isinstance(given, Cluster):
        capacity, caching = _capacity(given, traffic, convention)
        return ClusterSetting("cluster", None, given, traffic, capacity, _of_caches(given, caching), caching)
    asked, label = read_cluster_file(given)
    settings = [_setting(label, node) for node in asked["node"]]
    try:
        cluster = _engine_cluster(asked, settings, traffic, convention)
        capacity, caching = _capacity(cluster, traffic, convention)
    except InputError as error:
        raise InputError(f"{label}: {error}") from None
    warnings = dict.fromkeys(text for setting in settings for text in setting.warnings)
    idle = (f"{label}: {text}" for text in without_effect(asked))
    told = (*warnings, *traffic.warnings, *_of_caches(cluster, caching), *idle)
    return ClusterSetting(label, asked, cluster, traffic, capacity, told, caching)


def _setting(label: str, node: Mapping[str, Any]) -> Setting:
    try:
        return make_setting(**{name: node[name] for name in _OF_SETTING})
    except InputError as error:
        raise InputError(f"{label}: node {node['name']}: {error}") from None


def _engine_cluster(
    asked: Mapping[str, Any], settings: list[Setting], traffic: Traffic, convention: TokenConvention
) -> Cluster:
    from tileq_engine.cluster import Cluster, Failure

    if asked["link"] is None and any(node["role"] != "both" for node in asked["node"]):
        raise InputError(
            "there are prefill or decode nodes and no [link]; expected one, with gb_per_s of a node's port"
        )
    nodes = [_node(node, setting, traffic, convention) for node, setting in zip(asked["node"], settings, strict=True)]
    return Cluster(
        nodes,
        router=_router(asked["router"]),
        decode_router=_router(asked["decode_router"]),
        link=_link(asked, settings),
        on_full=asked["on_full"],
        rebalance_s=asked["rebalance_s"],
        rebalance_gap=asked["rebalance_gap"],
        failures=[Failure(f["node"], f["at_s"], f["back_s"]) for f in asked["failure"]],
    )


def _router(text: str) -> Any:
    """Return the router of "name:parameter=value:..."."""
    from tileq_engine.cluster import router

    name, *items = text.split(":")
    params: dict[str, Any] = {}
    for item in items:
        key, sign, value = (part.strip() for part in item.partition("="))
        if not sign or not key or not value:
            raise InputError(f"router {text!r} has the setting {item!r}; expected name:parameter=value")
        if key in params:
            raise InputError(f"router {text!r} gives {key} twice; expected every parameter once")
        params[key] = int(value) if fullmatch("-?[0-9]+", value) else value
    return router(name.strip().replace("-", "_"), **params)


def _link(asked: Mapping[str, Any], settings: list[Setting]) -> KvLink | None:
    from tileq_theory.disaggregation import KvLink

    link = asked["link"]
    if link is None:
        return None
    moved = [
        (node["name"], s.model.name, float(s.model.kv_bytes_per_token(s.kv_dtype or "bf16")))
        for node, s in zip(asked["node"], settings, strict=True)
        if node["role"] != "both"
    ]
    if len({(model, size) for _, model, size in moved}) > 1:
        named = ", ".join(f"{name} {model}" for name, model, _ in moved)
        raise InputError(f"nodes that hand KV to each other run different models or formats ({named}); expected one")
    size = moved[0][2] if moved else float(settings[0].model.kv_bytes_per_token(settings[0].kv_dtype or "bf16"))
    fabric = {} if link["fabric_gb_per_s"] is None else {"shared_bytes_per_s": 1e9 * link["fabric_gb_per_s"]}
    return KvLink(size, node_bytes_per_s=1e9 * link["gb_per_s"], latency_s=link["latency_s"], **fabric)


def _node(node: Mapping[str, Any], setting: Setting, traffic: Traffic, convention: TokenConvention) -> Node:
    from tileq.policy_text import parse_policy
    from tileq_engine.cluster import Node

    try:
        tile, setting = _tile(node["role"], setting, traffic, convention)
        return Node(
            node["name"],
            setting.time,
            policy=parse_policy(node["policy"]),
            config=_config(node, setting, tile, convention),
            tenants=_tenants(node, traffic),
            **{
                key: node[key]
                for key in ("role", "count", "weight", "start_s", "warm_s", "warm_factor", "mtbf_s", "mttr_s")
            },
        )
    except InputError as error:
        told = str(error)
        raise InputError(told if node["name"] in told else f"node {node['name']}: {told}") from None


def _tile(role: str, setting: Setting, traffic: Traffic, convention: TokenConvention) -> tuple[TilePlan, Setting]:
    """Return the tile plan of a node and its setting with the memory that the plan's batches leave."""
    from tileq_theory.disaggregation import DecodeHalf, PrefillHalf

    half: Any = {"both": lambda w: w, "prefill": PrefillHalf, "decode": DecodeHalf}[role](traffic.workload)

    def solve(where: Setting) -> TilePlan:
        return tile_plan(where.time, half, Limits(kv_tokens=where.kv_tokens), convention=convention)

    tile = solve(setting)
    exact = setting.for_batch(tile.token_budget, tile.max_num_seqs)
    if abs(exact.kv_tokens / setting.kv_tokens - 1) <= 1e-3:
        return tile, setting
    return solve(exact), exact


def _config(node: Mapping[str, Any], setting: Setting, tile: TilePlan, convention: TokenConvention) -> Any:
    from tileq.sharing import parse_backpressure
    from tileq_engine.backpressure import TbtControl
    from tileq_engine.config import EngineConfig
    from tileq_theory.hardware import kv_bytes_on_gpu

    budget = node["token_budget"] or tile.token_budget
    slots = node["max_num_seqs"] or min(tile.max_num_seqs, budget)
    if slots > budget:
        raise InputError(f"max_num_seqs is {slots} and token_budget {budget}; engines ask for a token a resident")
    moved = kv_bytes_on_gpu(setting.model, setting.tp, setting.kv_dtype) / (1e9 * node["swap_gb_per_s"])
    return EngineConfig(
        token_budget=budget,
        max_num_seqs=slots,
        kv_tokens=node["kv_tokens"] or setting.kv_tokens,
        convention=convention,
        preemption=node["preemption"],
        reservation=node["reservation"],
        watermark=node["watermark"],
        backpressure=None if node["backpressure"] is None else parse_backpressure(node["backpressure"]),
        control=None if node["control_tbt_s"] is None else TbtControl(node["control_tbt_s"]),
        swap_token_s=moved if node["preemption"] == "swap" else 0.0,
        queue_limit=node["queue_limit"],
        prefix_cache=node["prefix_cache"],
    )


def _tenants(node: Mapping[str, Any], traffic: Traffic) -> tuple[int, ...]:
    """Return the classes that the router "tenant" sends here, by index; the file may name them."""
    names = [c.name for c in traffic.workload.classes]
    found = []
    for given in node["tenants"]:
        if isinstance(given, str) and given not in names:
            raise InputError(f"tenants of node {node['name']} has {given!r}; {near_matches('classes', given, names)}")
        if not isinstance(given, str) and not 0 <= given < len(names):
            raise InputError(
                f"tenants of node {node['name']} has {given}; expected a class by name, or its place from 0 to "
                f"{len(names) - 1}"
            )
        found.append(names.index(given) if isinstance(given, str) else given)
    return tuple(found)


def _of_caches(cluster: Cluster, caching: CachedCapacity | None) -> tuple[str, ...]:
    """Return what to know of the caches."""
    if not any(node.config.prefix_cache for node in cluster.nodes):
        return ()
    return (_UNCACHED,) if caching is None else caching.warnings()


def _capacity(
    cluster: Cluster, traffic: Traffic, convention: TokenConvention
) -> tuple[ClusterCapacity, CachedCapacity | None]:
    from tileq.cluster_caching import cached_capacity
    from tileq_engine.cluster.placement import node_limits
    from tileq_theory.cluster import NodeGroup, cluster_capacity

    by_tenant = cluster.router.name == "tenant"
    groups = [
        NodeGroup(
            node.name,
            node.time,
            node_limits(node),
            node.count,
            node.role,
            node.tenants if by_tenant and node.tenants and node.role != "decode" else None,
        )
        for node in cluster.nodes
    ]
    largest = max(int(group.limits.max_batch_tokens) for group in groups)
    demands = traffic.workload.demands(chunk_tokens=largest, convention=convention, counting="least")

    def solve(of: Sequence[NodeGroup]) -> ClusterCapacity:
        return cluster_capacity(of, demands, traffic.workload.shares, link=cluster.link)

    try:
        caching = cached_capacity(cluster, traffic, groups, solve, convention=convention)
        return (solve(groups), None) if caching is None else (caching.capacity, caching)
    except InputError as error:
        text = str(error)
        for i, c in enumerate(traffic.workload.classes):
            text = text.replace(f"class {i} can", f"class {c.name} can")
        raise InputError(text) from None


def with_weights(setting: ClusterSetting, weights: Mapping[str, float]) -> ClusterSetting:
    """Return the setting with other router weights, by node name."""
    nodes = [replace(node, weight=weights.get(node.name, node.weight)) for node in setting.cluster.nodes]
    return replace(setting, cluster=setting.cluster.with_(nodes=nodes))
