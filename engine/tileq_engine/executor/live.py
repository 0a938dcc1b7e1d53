"""The live table of a real run: queue, batch, KV, TTFT and TBT, on stderr."""

from __future__ import annotations

__all__ = ["LiveTable"]

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tileq_engine.executor.session import Session

_PERIOD_S = 0.25
_RECENT = 256


class LiveTable:
    """Shows a session four times a second; nothing when `shown` is False, or None and stderr is no terminal."""

    def __init__(self, session: Session, shown: bool | None, title: str = "") -> None:
        self._session, self._title = session, title
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._live: Any = None
        self._due = 0.0

    def __enter__(self) -> LiveTable:
        if self._shown:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(self._table(), console=Console(stderr=True), transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self) -> None:
        """Show what changed, if it is time."""
        if self._live is None or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + _PERIOD_S
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Any:
        from rich.table import Table

        table = Table(title=self._title or self._session.policy.describe())
        figures = live_figures(self._session)
        for name in figures:
            table.add_column(name, justify="right")
        table.add_row(*figures.values())
        return table


def live_figures(session: Session) -> dict[str, str]:
    """Return the figures of the table: what a person watches while it runs."""
    scheduler, recent = session.scheduler, session.log.log(_RECENT)
    waiting, running, done, total, free = scheduler.facts("nwaiting", "nres", "finished", "total_blocks", "free")
    figures = {
        "clock": f"{scheduler.now_ps / 1e12:.1f} s",
        "waiting": str(waiting),
        "running": str(running),
        "finished": str(done),
        "KV": f"{100 * (total - free) / total:.0f} %",
    }
    if len(recent):
        figures["batch"] = f"{recent['npre'].mean():.0f} + {recent['ndec'].mean():.0f}"
        figures["iteration"] = f"{1e3 * float(np.median(recent.seconds)):.1f} ms"
        figures["tokens/s"] = f"{recent.tokens.sum() / max(recent.seconds.sum(), 1e-12):.0f}"
    ttft, tbt = scheduler.latencies_s(_RECENT)
    figures["TTFT"] = "-" if ttft is None else f"{ttft:.3g} s"
    figures["TBT"] = "-" if tbt is None else f"{tbt:.3g} s"
    return figures
