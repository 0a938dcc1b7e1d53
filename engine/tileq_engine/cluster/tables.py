"""What routers look up: the ring of the consistent hash, the nodes of each tenant, where each prefix was last."""

from __future__ import annotations

__all__ = ["routing_keys", "routing_table"]

import hashlib
from collections.abc import Mapping

import numpy as np
from jaxtyping import Int

from tileq_engine.cluster.nodes import Cluster
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError

_SPACE = 2**63
_MOST_POINTS = 10_000_000


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def ring_points(cluster: Cluster) -> list[tuple[int, int]]:
    """Return (place, node) around the ring, sorted: each entry node has `points` times its weight of them."""
    if cluster.router.kind != "ring":
        return []
    points = int(cluster.router.params["points"])
    weight = sum(node.weight for node in cluster.replicas if node.role != "decode")
    if points * weight > _MOST_POINTS:
        raise InputError(
            f"session_affinity has {points} points and the nodes weigh {weight:g}: {points * weight:.3g} places on the "
            f"ring; expected at most {_MOST_POINTS}, with fewer points or smaller weights"
        )
    found = []
    for r, node in enumerate(cluster.replicas):
        if node.role != "decode":
            found += [(_hash(f"{node.name}/{k}"), r) for k in range(max(1, round(points * node.weight)))]
    return sorted(found)


def tenant_nodes(cluster: Cluster, requests: Requests) -> list[list[int]]:
    """Return the entry nodes that serve each tenant; raise `InputError` for a tenant whom nobody serves."""
    if cluster.router.kind != "tenant":
        return []
    entry = [(r, node.tenants) for r, node in enumerate(cluster.replicas) if node.role != "decode"]
    groups = []
    count = int(requests.tenant.max()) + 1 if len(requests) else 0
    seen = set(np.unique(requests.tenant).tolist())
    for tenant in range(count):
        group = [r for r, whom in entry if not whom or tenant in whom]
        if not group and tenant in seen:
            raise InputError(f"no node serves tenant {tenant}; add it to a node's tenants, or leave one's empty")
        groups.append(group)
    return groups


def routing_table(
    cluster: Cluster, requests: Requests, told: list[Requests], prefixes: np.ndarray | None
) -> tuple[Int[np.ndarray, "integer"], dict[str, int]]:
    """Return Z and where its parts begin.

    Room for candidates (drawn, and sorted), the ring's nodes, each prefix's last node, where each tenant's nodes begin,
    the lengths and TBT limits that policies see where they see different ones, then the tenants' nodes.
    """
    choices = max(int(r.params.get("choices", 2)) for r in (cluster.router, cluster.decode_router))
    ring = [r for _, r in ring_points(cluster)]
    homes = int(np.unique(prefixes).size) if prefixes is not None and cluster.router.kind == "prefix" else 0
    groups = tenant_nodes(cluster, requests)
    starts = np.concatenate([[0], np.cumsum([len(g) for g in groups])]).astype(np.int64)
    kinds = list({id(seen): seen for seen in told}.values())
    lengths = [c for seen in kinds for c in (seen.predicted_output_tokens, seen.tbt_limit_ps)] if len(kinds) > 1 else []
    parts = {
        "cand": np.zeros(2 * choices + 4, dtype=np.int64),
        "ring": np.array(ring, dtype=np.int64),
        "home": np.full(homes, -1, dtype=np.int64),
        "groups": starts,
        "told": np.concatenate([*lengths, np.zeros(0, dtype=np.int64)]).astype(np.int64),
    }
    members = np.array([r for g in groups for r in g], dtype=np.int64)
    where, at = {}, 0
    for name, part in parts.items():
        where[name] = at
        at += len(part)
    parts["groups"] = starts + at  # of the members, which come last
    whole = np.concatenate([*parts.values(), members])
    where["points"] = len(ring)
    return np.ascontiguousarray(whole, dtype=np.int64), where


def routing_keys(
    cluster: Cluster,
    requests: Requests,
    sessions: np.ndarray | None,
    prefixes: np.ndarray | None,
    where: Mapping[str, int],
) -> Int[np.ndarray, "request"]:
    """Return what the router looks up for each request: a place on the ring, a tenant, a prefix; else 0."""
    kind, n = cluster.router.kind, len(requests)
    if kind == "tenant":
        return requests.tenant.astype(np.int64)
    if kind == "prefix":
        if prefixes is None:
            raise InputError("router prefix_affinity needs prefixes=, one whole number a request (equal: shared)")
        return np.unique(prefixes, return_inverse=True)[1].reshape(-1).astype(np.int64)
    if kind == "ring":
        if sessions is None:
            raise InputError("router session_affinity needs sessions=, one whole number a request")
        places = np.array([place for place, _ in ring_points(cluster)], dtype=np.int64)
        names, inverse = np.unique(sessions, return_inverse=True)
        hashed = np.array([_hash(f"session {s}") for s in names.tolist()], dtype=np.int64)
        return (np.searchsorted(places, hashed) % len(places))[inverse.reshape(-1)].astype(np.int64)
    return np.zeros(n, dtype=np.int64)
