"""What the scheduler tells of itself, on vLLM's Prometheus endpoint.

vLLM loads it as a plug-in of the group ``vllm.stat_logger_plugins`` wherever Tileq is installed; it is silent until a
scheduler of Tileq's writes its file. The scheduler lives in the engine's process and the endpoint in the server's:
between them is that file, named by vLLM's instance.
"""

from __future__ import annotations

__all__ = ["TileqStatLogger"]

import json
import time
from typing import Any

from vllm.v1.metrics.loggers import StatLoggerBase

from tileq_engine.vllm.report import report_path


class TileqStatLogger(StatLoggerBase):
    """Shows the scheduler's numbers as gauges ``tileq:NAME``, one a data-parallel engine."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        self._path = report_path(str(vllm_config.instance_id), engine_index)
        self._engine = str(engine_index)
        self._gauges: dict[str, Any] = {}
        self._looked = 0.0

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Take over the scheduler's last report, if there is one; at most once a second."""
        if time.monotonic() - self._looked < 1.0:
            return
        self._looked = time.monotonic()
        try:
            found: dict[str, float] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        for name, value in found.items():
            self._gauge(name).labels(engine=self._engine).set(value)

    def log_engine_initialized(self) -> None:
        """Say nothing: the scheduler has its own line in the log."""

    def _gauge(self, name: str) -> Any:
        from prometheus_client import REGISTRY, Gauge

        if name not in self._gauges:
            known = REGISTRY._names_to_collectors.get(f"tileq:{name}")
            self._gauges[name] = known or Gauge(f"tileq:{name}", f"Tileq's scheduler: {name}", ["engine"])
        return self._gauges[name]
