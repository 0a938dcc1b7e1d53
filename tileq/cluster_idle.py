"""Keys of a cluster's file that change nothing as the file stands: said, so that nobody relies on them."""

from __future__ import annotations

__all__ = ["without_effect"]

from collections.abc import Iterator, Mapping
from typing import Any


def without_effect(asked: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each key that is given and looked at by nobody.

    Examples
    --------
    >>> from tileq.cluster_file import read_cluster_file
    >>> list(without_effect(read_cluster_file({"node": [{"name": "a", "warm_factor": 2.0}]})[0]))
    ['node a: warm_factor changes nothing without warm_s']
    """
    nodes = asked["node"]
    if asked["link"] is not None and all(node["role"] == "both" for node in nodes):
        yield "[link] changes nothing: no node has the role prefill or decode"
    if asked["decode_router"] != "jsq" and all(node["role"] != "decode" for node in nodes):
        yield "decode_router changes nothing: no node has the role decode"
    if asked["rebalance_gap"] != 2 and asked["rebalance_s"] is None:
        yield "rebalance_gap changes nothing without rebalance_s"
    if asked["on_full"] != "reject" and not any(node["queue_limit"] or node["backpressure"] for node in nodes):
        yield f"on_full = {asked['on_full']!r} changes nothing: no node has a queue_limit"
    for node in nodes:
        yield from (f"node {node['name']}: {text}" for text in _of_node(node, asked["router"]))


def _of_node(node: Mapping[str, Any], router: str) -> Iterator[str]:
    if node["warm_factor"] != 1 and not node["warm_s"]:
        yield "warm_factor changes nothing without warm_s"
    if node["warm_s"] and node["warm_factor"] == 1:
        yield "warm_s changes nothing without a warm_factor above 1"
    if node["swap_gb_per_s"] != 25 and node["preemption"] != "swap":
        yield 'swap_gb_per_s changes nothing without preemption = "swap"'
    if node["tenants"] and router.partition(":")[0].strip() != "tenant":
        yield "tenants changes nothing: only the router tenant looks at it"
    if node["tenants"] and node["role"] == "decode":
        yield "tenants changes nothing: decode nodes take whoever is handed over"
