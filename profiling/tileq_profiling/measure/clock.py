r"""Timing one thing on a device whose speed wanders: warm-up, a probe beside every repetition, repetition until sure.

A fixed matrix product is timed beside every repetition. What is kept of a repetition is its time over the probe's,
the probe smoothed by an exponential mean; the point is the median of these ratios. A machine that runs 10 % slower for
a while slows both alike. Ratios become seconds by the median probe of the whole session.

Repetition ends when half the width of an interval for the median is below the precision asked for. The interval is
that of order statistics: with r sorted values it runs from rank floor((r - z sqrt(r))/2) to its mirror, z = 1.96.
"""

from __future__ import annotations

__all__ = ["Clock", "Timing", "median_halfwidth"]

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_SMOOTHING = 0.3
_WARM_UPS = 2
_FEWEST = 5
_MOST = 200
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Timing:
    """One measured thing: its time in probes, the probe's own time, and what the repetitions showed.

    `inner_share` is the share of the marked stretch (the blocks of a stack) in the whole.
    """

    ratio: float
    probe_s: float
    repeats: int
    halfwidth: float
    inner_share: float = 1.0


def median_halfwidth(values: list[float]) -> float:
    """Return half the width of the 95 % interval for the median over the median; infinite for fewer than 5 values.

    Examples
    --------
    >>> median_halfwidth([1.0] * 9)
    0.0
    >>> median_halfwidth([1.0, 2.0])
    inf
    """
    r = len(values)
    if r < _FEWEST:
        return math.inf
    ordered = sorted(values)
    low = max(0, math.floor((r - _Z * math.sqrt(r)) / 2))
    return (ordered[r - 1 - low] - ordered[low]) / 2 / ordered[r // 2]


class Clock:
    """Times calls on one device, with the probe.

    One thread on a CPU is timed by its own CPU time, so that what other processes take is not counted; several threads
    by the wall clock, CUDA by events in its stream.
    """

    def __init__(self, torch: Any, device: Any, dtype: Any, threads: int = 1) -> None:
        self.torch, self.device = torch, device
        self._now = time.thread_time if threads == 1 else time.perf_counter
        self.cuda = device.type == "cuda"
        side = 2048 if self.cuda else 256
        self._left = torch.ones(side, side, device=device, dtype=dtype)
        self._right = torch.ones(side, side, device=device, dtype=dtype)
        self._smooth: float | None = None
        for _ in range(5):
            self.once(self._probe)

    def _probe(self, mark: Any) -> Any:
        return self.torch.mm(self._left, self._right)

    def once(self, call: Callable[[Any], Any]) -> tuple[float, float]:
        """Return the seconds of one call and of the stretch between its marks (the whole where it sets none)."""
        return self._once_cuda(call) if self.cuda else self._once_cpu(call)

    def _once_cpu(self, call: Callable[[Any], Any]) -> tuple[float, float]:
        marks: list[float] = []
        now = self._now
        start = now()
        call(lambda: marks.append(now()))
        whole = now() - start
        return whole, marks[1] - marks[0] if len(marks) == 2 else whole

    def _once_cuda(self, call: Callable[[Any], Any]) -> tuple[float, float]:
        """Events in the stream; the host waits once, after the call, so that no wait is inside what is timed."""
        stream, events = self.torch.cuda.current_stream(self.device), []

        def mark() -> None:
            event = self.torch.cuda.Event(enable_timing=True)
            event.record(stream)
            events.append(event)

        mark()
        call(mark)
        mark()
        events[-1].synchronize()
        whole = events[0].elapsed_time(events[-1]) / 1e3
        return whole, events[1].elapsed_time(events[2]) / 1e3 if len(events) == 4 else whole

    def probe(self) -> float:
        """Time the probe and return its smoothed seconds."""
        now, _ = self.once(self._probe)
        self._smooth = now if self._smooth is None else (1 - _SMOOTHING) * self._smooth + _SMOOTHING * now
        return self._smooth

    def measure(
        self, call: Callable[[Any], Any], *, precision: float, deadline: float, most_s: float, warm_ups: int = _WARM_UPS
    ) -> Timing | None:
        """Time `call(mark)` until its median is known to `precision`, or for `most_s` seconds; None past the deadline.

        `deadline` is on the monotonic clock; a point that cannot have its fewest repetitions before it is given up.
        """
        begun = time.monotonic()
        for _ in range(warm_ups):
            if time.monotonic() >= deadline:
                return None
            self.once(call)
        ratios, probes, shares = list[float](), list[float](), list[float]()
        while len(ratios) < _MOST:
            now = time.monotonic()
            if now >= deadline or (len(ratios) >= _FEWEST and now - begun > most_s):
                break
            probe = self.probe()
            whole, inner = self.once(call)
            ratios.append(whole / probe)
            probes.append(probe)
            shares.append(inner / whole)
            if median_halfwidth(ratios) <= precision:
                break
        if len(ratios) < _FEWEST:
            return None
        return Timing(
            float(np.median(ratios)),
            float(np.median(probes)),
            len(ratios),
            median_halfwidth(ratios),
            float(np.median(shares)),
        )
