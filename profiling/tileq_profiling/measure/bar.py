"""The progress bar of a measurement: seconds of the budget, on stderr."""

from __future__ import annotations

__all__ = ["Bar"]

import sys
import time
from types import TracebackType
from typing import Any


class Bar:
    """A bar that fills with the budget; shows nothing when `shown` is False, or None and stderr is no terminal."""

    def __init__(self, budget_s: float, shown: bool | None) -> None:
        self._budget_s = budget_s
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._begun = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> Bar:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("measuring"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("", total=self._budget_s)
            self._progress.start()
        return self

    def step(self, told: str) -> None:
        """Show what was measured last."""
        if self._progress is not None:
            spent = min(self._budget_s, time.monotonic() - self._begun)
            self._progress.update(self._task, completed=spent, description=told)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()
