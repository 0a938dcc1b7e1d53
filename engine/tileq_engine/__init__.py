"""Requests in motion: policies, memory, simulator, executors, metrics."""

from __future__ import annotations

__all__ = [
    "Cluster",
    "ClusterRun",
    "Comparison",
    "EngineConfig",
    "KvCache",
    "Node",
    "Policy",
    "PolicyError",
    "RawRun",
    "Replications",
    "Requests",
    "Run",
    "Scheduler",
    "Slo",
    "Stable",
    "Sweep",
    "Within",
    "all_of",
    "compare",
    "policy_maker",
    "policy_names",
    "replicate_policy",
    "search_capacity",
    "simulate",
    "simulate_cluster",
    "simulate_policy",
    "simulate_requests",
    "sweep_rates",
]

import importlib
from typing import Any

# a function never has the name of a submodule: importing the module would put it in the function's place
_HOMES = {
    "Cluster": ("cluster.nodes", "Cluster"),
    "ClusterRun": ("cluster.result", "ClusterRun"),
    "Comparison": ("sweep_compare", "Comparison"),
    "EngineConfig": ("config", "EngineConfig"),
    "KvCache": ("kv", "KvCache"),
    "Node": ("cluster.nodes", "Node"),
    "Policy": ("policy", "Policy"),
    "PolicyError": ("policy", "PolicyError"),
    "RawRun": ("simulator", "RawRun"),
    "Replications": ("experiment", "Replications"),
    "Requests": ("requests", "Requests"),
    "Run": ("run", "Run"),
    "Scheduler": ("scheduler", "Scheduler"),
    "Slo": ("run", "Slo"),
    "Stable": ("capacity_search_criteria", "Stable"),
    "Sweep": ("sweep", "Sweep"),
    "Within": ("capacity_search_criteria", "Within"),
    "all_of": ("capacity_search_criteria", "all_of"),
    "compare": ("sweep_compare", "compare"),
    "policy_maker": ("registry", "policy_maker"),
    "policy_names": ("registry", "policy_names"),
    "replicate_policy": ("experiment_engine", "replicate_policy"),
    "search_capacity": ("capacity_search", "capacity_search"),
    "simulate": ("simulator", "simulate"),
    "simulate_cluster": ("cluster.simulation", "simulate_cluster"),
    "simulate_policy": ("experiment_engine", "simulate_policy"),
    "simulate_requests": ("simulator", "simulate"),
    "sweep_rates": ("sweep", "sweep"),
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        module, own = _HOMES[name]
        return getattr(importlib.import_module(f"tileq_engine.{module}"), own)
    raise AttributeError(f"module 'tileq_engine' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
