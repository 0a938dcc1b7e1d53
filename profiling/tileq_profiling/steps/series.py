"""Reports over time under construction, one list of rows per engine; step times out of their steady stretches."""

from __future__ import annotations

__all__ = ["SERIES_COLUMNS", "SeriesBuilder", "steady_decodes"]

from array import array

import numpy as np
from jaxtyping import Float

from tileq_profiling.steps.run import RunSeries

SERIES_COLUMNS = ("t_s", "running", "waiting", "kv_usage", "prompt_tokens_per_s", "output_tokens_per_s")


class SeriesBuilder:
    """Rows of one engine's reports; those without a time stamp are placed `period_s` after the one before."""

    def __init__(self, period_s: float = 10.0) -> None:
        self.period_s = period_s
        self.unstamped = 0
        self.backwards = 0
        self._values = array("d")
        self._last = 0.0

    def add(
        self,
        t_s: float | None,
        running: float,
        waiting: float,
        kv_usage: float,
        prompt_tokens_per_s: float,
        output_tokens_per_s: float,
    ) -> None:
        """Append one report."""
        if t_s is None:
            self.unstamped += 1
            t_s = self._last + self.period_s if self._values else 0.0
        if self._values and t_s < self._last:
            self.backwards += 1
            t_s = self._last
        self._last = t_s
        self._values.extend((t_s, running, waiting, kv_usage, prompt_tokens_per_s, output_tokens_per_s))

    def __len__(self) -> int:
        return len(self._values) // len(SERIES_COLUMNS)

    def series(self, engine: str) -> RunSeries:
        """Return the reports as arrays."""
        columns = np.array(self._values, np.float64).reshape(-1, len(SERIES_COLUMNS)).T
        return RunSeries(engine, **dict(zip(SERIES_COLUMNS, columns.copy(), strict=True)))

    def warnings(self) -> list[str]:
        """Return what was wrong with the stamps."""
        found = []
        if self.unstamped:
            found.append(
                f"{self.unstamped} reports without a time stamp placed {self.period_s:g} s after the one before"
            )
        if self.backwards:
            found.append(f"{self.backwards} reports stamped before the one above them, moved to its time")
        return found


def steady_decodes(series: RunSeries) -> Float[np.ndarray, "step 3"]:
    """Return (sequences, mean KV usage, seconds) of decode steps, out of intervals in which the batch did not change.

    An interval whose prompt throughput is 0 admitted nobody; if as many requests run at its end as at its start,
    none left either. Its steps each made `running` tokens, so a step took running / output throughput.
    """
    same = series.running[1:] == series.running[:-1]
    quiet = (series.prompt_tokens_per_s[1:] == 0) & (series.output_tokens_per_s[1:] > 0) & (series.waiting[1:] == 0)
    which = same & quiet & (series.running[1:] > 0)
    running = series.running[1:][which]
    usage = (series.kv_usage[1:][which] + series.kv_usage[:-1][which]) / 2
    return np.column_stack([running, usage, running / series.output_tokens_per_s[1:][which]])
