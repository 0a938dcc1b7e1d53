"""What is known of a cluster's run beforehand: when nodes start, fail and come back, when queues are rebalanced."""

from __future__ import annotations

__all__ = ["planned_events"]

import numpy as np
from jaxtyping import Int

from tileq_engine.clock import PS_PER_S, to_ps
from tileq_engine.cluster.nodes import Cluster, Node
from tileq_engine.requests import Requests
from tileq_theory.errors import InputError

_UP, _DOWN, _REBALANCE = 0, 1, 2
_MOST = 1_000_000
_LAST_S = 4e6  # of the clock


def _drawn(node: Node, last_s: float, rng: np.random.Generator) -> list[tuple[float, int]]:
    """Return the failures and repairs of one node until `last_s` (and the repair after it), seconds."""
    if node.mtbf_s is None:
        return []
    times = 0.0 if node.mttr_s is None else last_s / (node.mtbf_s + node.mttr_s)
    if times > _MOST:
        raise InputError(
            f"mtbf_s of node {node.name} is {node.mtbf_s!r} and mttr_s {node.mttr_s!r}: it would fail some {times:.3g} "
            f"times in {last_s:g} s; expected longer"
        )
    found = []
    at = node.start_s + rng.exponential(node.mtbf_s)
    while at <= last_s:
        found.append((at, _DOWN))
        if node.mttr_s is None:
            break
        at += rng.exponential(node.mttr_s)
        if at > _LAST_S:
            break  # up again when the clock has ended: never
        found.append((at, _UP))
        at += rng.exponential(node.mtbf_s)
    return found


def planned_events(cluster: Cluster, requests: Requests, seed: int) -> Int[np.ndarray, "integer"]:
    """Return (time, kind, node) of every planned event, in order of time: kind 0 up, 1 down, 2 rebalance.

    At one instant a node that is up again comes before one that fails, so that a request finds it.
    """
    replicas = cluster.replicas
    last_s = float(requests.arrival_ps[-1]) / PS_PER_S if len(requests) else 0.0
    streams = np.random.SeedSequence(seed, spawn_key=(11,)).spawn(len(replicas))
    rows: list[tuple[int, int, int]] = []
    names = {node.name: r for r, node in enumerate(replicas)}
    for r, node in enumerate(replicas):
        if node.start_s > 0:
            rows.append((to_ps(f"start_s of node {node.name}", node.start_s), _UP, r))
        rng = np.random.default_rng(streams[r])
        rows += [
            (to_ps(f"the time of a failure of node {node.name}", at), kind, r) for at, kind in _drawn(node, last_s, rng)
        ]
    for failure in cluster.failures:
        r = names[failure.node]
        rows.append((to_ps(f"at_s of the failure of {failure.node}", failure.at_s), _DOWN, r))
        if failure.back_s is not None:
            rows.append((to_ps(f"back_s of the failure of {failure.node}", failure.back_s), _UP, r))
    if cluster.rebalance_s is not None:
        step = to_ps("rebalance_s", cluster.rebalance_s)
        count = int(requests.arrival_ps[-1]) // max(step, 1) if len(requests) else 0
        if step == 0 or count > _MOST:
            raise InputError(f"rebalance_s is {cluster.rebalance_s!r}, {count} times in {last_s:g} s; expected longer")
        rows += [(step * (k + 1), _REBALANCE, 0) for k in range(count)]
    rows.sort()
    return np.array(rows, dtype=np.int64).reshape(-1)
