"""A measured run: its requests with their latencies, its paths over time, its totals."""

from __future__ import annotations

__all__ = ["MeasuredRun", "RunSeries", "Tokens"]

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.trace import Trace
from tileq_theory.errors import InputError

_TIMES = ("ttft_s", "tpot_s", "e2e_s", "queue_s")


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Gaps between tokens: request i holds `gaps_s[offsets[i]:offsets[i + 1]]`, in order."""

    gaps_s: Float[np.ndarray, "gap"]
    offsets: Int[np.ndarray, "edge"]

    def of(self, request: int) -> Float[np.ndarray, "own"]:
        """Return the gaps of one request."""
        return self.gaps_s[self.offsets[request] : self.offsets[request + 1]]


@dataclass(frozen=True, slots=True, eq=False)
class RunSeries:
    """What one engine reported over time; NaN where it did not say.

    Parameters
    ----------
    engine
        Which engine ("" where there is one and it has no name).
    t_s
        Seconds, never falling; from the first report, or on the run's own clock where the file has one.
    running, waiting
        Requests in the batch and in the queue.
    kv_usage
        KV cache in use, as a share from 0 to 1.
    prompt_tokens_per_s, output_tokens_per_s
        Throughputs of the interval that ends at `t_s`.
    """

    engine: str
    t_s: Float[np.ndarray, "tick"]
    running: Float[np.ndarray, "tick"]
    waiting: Float[np.ndarray, "tick"]
    kv_usage: Float[np.ndarray, "tick"]
    prompt_tokens_per_s: Float[np.ndarray, "tick"]
    output_tokens_per_s: Float[np.ndarray, "tick"]

    def __len__(self) -> int:
        return int(self.t_s.size)

    def time_average(self, name: str) -> float:
        """Return the mean of a column over time (each report stands for the interval that it ends); NaN for none."""
        values: np.ndarray = getattr(self, name)
        known = np.isfinite(values)
        if not known.any():
            return float("nan")
        widths = np.diff(self.t_s, prepend=2 * self.t_s[0] - self.t_s[1] if self.t_s.size > 1 else self.t_s[0] - 1)
        total = float(widths[known].sum())
        return float(values[known] @ widths[known]) / total if total > 0 else float(values[known].mean())


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRun:
    """Requests of a run in the order of their arrival (the file's order where it has none), times in seconds.

    Parameters
    ----------
    source, format
        The file's name, and the reader's.
    prompt_tokens, output_tokens
        Lengths; empty where the file holds no requests.
    arrival_s
        Seconds from the first arrival; None where the file has none.
    ttft_s, tpot_s, e2e_s, queue_s
        Time to first token, mean time per output token after the first, end-to-end latency, and wait before the
        first batch; NaN for a request that has none, None where the file tells it of no request.
    gaps
        Every gap between tokens, where the file has them.
    series
        Reports over time, one per engine.
    totals
        Figures of the run as its tool printed them, names with their unit ("mean_ttft_s", "output_throughput_per_s").
    preemptions
        How often requests were preempted or restarted, where the file tells it.
    conditions
        Model, device, versions.
    kv_capacity_tokens
        Size of the KV cache, where the file tells it.
    skipped, warnings
        What was left out, with counts; what to know before relying on the numbers.
    """

    source: str
    format: str
    prompt_tokens: Int[np.ndarray, "request"] = field(default_factory=lambda: np.empty(0, np.int64))
    output_tokens: Int[np.ndarray, "request"] = field(default_factory=lambda: np.empty(0, np.int64))
    arrival_s: Float[np.ndarray, "request"] | None = None
    ttft_s: Float[np.ndarray, "request"] | None = None
    tpot_s: Float[np.ndarray, "request"] | None = None
    e2e_s: Float[np.ndarray, "request"] | None = None
    queue_s: Float[np.ndarray, "request"] | None = None
    gaps: Tokens | None = None
    series: tuple[RunSeries, ...] = ()
    totals: Mapping[str, float] = field(default_factory=dict)
    preemptions: int | None = None
    conditions: Conditions = field(default=Conditions())
    kv_capacity_tokens: float | None = None
    skipped: tuple[tuple[str, int], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """Number of requests."""
        return int(self.prompt_tokens.size)

    @property
    def duration_s(self) -> float | None:
        """Seconds from the first arrival to the last completion; the tool's own figure where requests lack them."""
        if self.arrival_s is not None and self.e2e_s is not None and np.isfinite(self.e2e_s).any():
            return float(np.nanmax(self.arrival_s + self.e2e_s))
        return self.totals.get("duration_s")

    @property
    def throughput_per_s(self) -> float | None:
        """Completed requests over the duration; the tool's own figure where requests lack it."""
        duration = self.duration_s
        if self.count and duration:
            return self.count / duration
        return self.totals.get("request_throughput_per_s")

    def quantile(self, name: str, q: float) -> float:
        """Return a quantile of ttft_s, tpot_s, e2e_s or queue_s over the requests that have it."""
        if name not in _TIMES:
            raise InputError(f"{name!r} is no latency of a run; expected one of {', '.join(_TIMES)}")
        values = getattr(self, name)
        if values is None or not np.isfinite(values).any():
            raise InputError(f"{self.source} tells {name} of no request; record the run with per-request details")
        return float(np.nanquantile(values, q))

    def trace(self) -> Trace:
        """Return the run's requests as a trace, to be replayed."""
        if not self.count:
            raise InputError(
                f"{self.source} holds no requests ({self.format}); record the run with per-request details"
            )
        return Trace(
            self.prompt_tokens,
            self.output_tokens,
            self.arrival_s,
            f"{self.source} ({self.format})",
            self.format,
            self.skipped,
            self.warnings,
        )

    def describe(self) -> str:
        """Return one line: source, requests, and what is known of their latencies."""
        told = [name for name in (*_TIMES, "gaps", "arrival_s") if getattr(self, name) is not None]
        ticks = sum(len(series) for series in self.series)
        parts = [f"{self.count} requests ({', '.join(told) or 'no latencies'})"] if self.count else []
        parts += [f"{ticks} reports of {len(self.series)} engines"] if self.series else []
        parts += [f"{len(self.totals)} totals"] if self.totals else []
        return f"{self.source} ({self.format}): {'; '.join(parts)}"
