"""Clusters: nodes behind a router, prefill and decode pools, failures; each node a compiled engine of its own."""

from __future__ import annotations

__all__ = [
    "Cluster",
    "ClusterRun",
    "Failure",
    "ModeRun",
    "Node",
    "Outcome",
    "Router",
    "load_cluster_runs",
    "mode_clusters",
    "outcome",
    "placement_weights",
    "router",
    "router_names",
    "save_cluster_runs",
    "simulate_cluster",
    "simulate_modes",
]

import importlib
from typing import Any

_HOMES = {
    "Cluster": "nodes",
    "ClusterRun": "result",
    "Failure": "nodes",
    "ModeRun": "modes",
    "Node": "nodes",
    "Outcome": "outcomes",
    "Router": "routers",
    "load_cluster_runs": "saving",
    "mode_clusters": "modes",
    "outcome": "outcomes",
    "placement_weights": "placement",
    "router": "routers",
    "router_names": "routers",
    "save_cluster_runs": "saving",
    "simulate_cluster": "simulation",
    "simulate_modes": "modes",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"tileq_engine.cluster.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tileq_engine.cluster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
