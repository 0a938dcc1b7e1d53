"""The schedulers by name, for ``--scheduler-cls tileq_engine.vllm.NAME``."""

from __future__ import annotations

__all__ = [
    "AgingScheduler",
    "RadScheduler",
    "SarathiScheduler",
    "ShortestPromptScheduler",
    "SlaiScheduler",
    "TileqScheduler",
]

from typing import Any, ClassVar

from tileq_engine.vllm.scheduler import TileqScheduler


class SarathiScheduler(TileqScheduler):
    """Sarathi-Serve: every resident decodes, the planned budget's rest goes to prefill chunks in order of arrival."""

    defaults: ClassVar[dict[str, Any]] = {"policy": "sarathi"}


class SlaiScheduler(TileqScheduler):
    """SLAI: decodes whose deadline is near first, then prefills (paying tier, then shortest prompt), then the rest."""

    defaults: ClassVar[dict[str, Any]] = {"policy": "slai", "params": {"order": "paying_spf", "mean": "ewma"}}


class RadScheduler(TileqScheduler):
    """Generalised RAD: the plan's levels, in the plan's proportions."""

    defaults: ClassVar[dict[str, Any]] = {"policy": "rad_general"}


class AgingScheduler(TileqScheduler):
    """Waiting requests by a score of wait and length, on Sarathi-Serve's batches."""

    defaults: ClassVar[dict[str, Any]] = {"policy": "aging", "params": {"base": "sarathi"}}


class ShortestPromptScheduler(TileqScheduler):
    """The shortest prompt (less what is cached of it) first, on Sarathi-Serve's batches."""

    defaults: ClassVar[dict[str, Any]] = {"policy": "sarathi", "params": {"order": "spf"}}
