"""Tileq's policies as schedulers of vLLM V1: ``--scheduler-cls tileq_engine.vllm.SlaiScheduler``.

A scheduler here is vLLM's asynchronous scheduler with one question taken out of its hands: who gets how many tokens
in the next iteration. The compiled rules of the simulator answer it; vLLM keeps its memory, prefix cache, preemption
mechanics, speculative decoding and statistics. Nothing of vLLM is imported before a scheduler is asked for.

Examples
--------
>>> from tileq_engine.vllm import VllmSettings
>>> VllmSettings(policy="slai").tier(None).tbt_limit_s
0.5
"""

from __future__ import annotations

__all__ = [
    "AgingScheduler",
    "RadScheduler",
    "SarathiScheduler",
    "ShortestPromptScheduler",
    "SlaiScheduler",
    "Tier",
    "TileqScheduler",
    "TileqStatLogger",
    "VllmSettings",
    "read_settings",
]

import importlib
from typing import Any

from tileq_engine.vllm.settings import Tier, VllmSettings, read_settings

_IN_VLLM = {
    "TileqScheduler": "classes",
    "SarathiScheduler": "classes",
    "SlaiScheduler": "classes",
    "RadScheduler": "classes",
    "AgingScheduler": "classes",
    "ShortestPromptScheduler": "classes",
    "TileqStatLogger": "stat_logger",
}


def __getattr__(name: str) -> Any:
    if name in _IN_VLLM:
        return getattr(importlib.import_module(f"tileq_engine.vllm.{_IN_VLLM[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
