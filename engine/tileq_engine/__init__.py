"""Requests in motion: policies, memory, simulator, executors, metrics."""

from __future__ import annotations

__all__ = [
    "EngineConfig",
    "KvCache",
    "Policy",
    "RawRun",
    "Requests",
    "Scheduler",
    "policy_names",
    "simulate",
]

import importlib
from typing import Any

_HOMES = {
    "EngineConfig": "config",
    "KvCache": "kv",
    "Policy": "policy",
    "RawRun": "simulator",
    "Requests": "requests",
    "Scheduler": "scheduler",
    "policy_names": "registry",
    "simulate": "simulator",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"tileq_engine.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tileq_engine' has no attribute {name!r}")
