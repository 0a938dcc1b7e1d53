"""Arrivals as a trace recorded them."""

from __future__ import annotations

__all__ = ["TraceArrivals"]

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_theory.arrivals.base import ArrivalProcess
from tileq_theory.errors import InputError, positive
from tileq_theory.lengths.checks import Numbers, vector


@dataclass(frozen=True, slots=True, eq=False, init=False)
class TraceArrivals(ArrivalProcess):
    """The gaps of a trace, replayed.

    Parameters
    ----------
    times
        Arrival times, seconds from any origin, never falling; at least 2, not all equal.
    beyond
        What follows the last one. "loop": the trace again, after one mean gap (order and bursts are kept; the first
        arrival of a replay is at 0). "resample": every gap is drawn anew from the trace's gaps, with replacement
        (their law is kept, their order is not).

    Raises
    ------
    InputError
        Naming the first row that falls back in time, or when all times are equal.

    Examples
    --------
    >>> TraceArrivals([10.0, 11.0, 13.0]).sample(np.random.default_rng(0), 5).tolist()
    [0.0, 1.0, 3.0, 4.5, 5.5]
    """

    offsets_s: Float[np.ndarray, "arrival"]
    beyond: Literal["loop", "resample"]

    def __init__(self, times: Numbers, beyond: Literal["loop", "resample"] = "loop") -> None:
        at = vector("arrival times", times)
        if at.size < 2:
            raise InputError("one arrival time was given; expected at least 2, so that there is a gap")
        falls = np.diff(at) < 0
        if falls.any():
            row = int(np.argmax(falls)) + 1
            raise InputError(f"arrival times, row {row}: {at[row]!s} s comes after {at[row - 1]!s} s; sort them first")
        if at[-1] == at[0]:
            raise InputError(f"all {at.size} arrival times are {at[0]!s} s; expected a span above 0")
        if beyond not in ("loop", "resample"):
            raise InputError(f"beyond is {beyond!r}; expected 'loop' or 'resample'")
        object.__setattr__(self, "offsets_s", at - at[0])
        object.__setattr__(self, "beyond", beyond)

    @property
    def rate_per_s(self) -> float:
        """Gaps over the time they span."""
        return float((self.offsets_s.size - 1) / self.offsets_s[-1])

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the recorded gaps."""
        gaps = np.diff(self.offsets_s)
        return float(gaps.var() / gaps.mean() ** 2)

    @property
    def dispersion(self) -> float | None:
        """That of independent gaps when resampled; None when looped (use `count_dispersion`)."""
        return self.scv if self.beyond == "resample" else None

    def count_dispersion(self, window_s: float) -> float:
        """Return Var/mean of the arrivals in the trace's whole windows of `window_s` seconds (an estimate)."""
        windows = int(self.offsets_s[-1] / positive("window_s", window_s))
        if windows < 2:
            raise InputError(f"window_s is {window_s:g}; expected at most half the trace's {self.offsets_s[-1]:g} s")
        counts = np.histogram(self.offsets_s, np.arange(windows + 1) * window_s)[0]
        return float(counts.var(ddof=1) / counts.mean()) if counts.any() else 0.0

    def sample(self, rng: np.random.Generator, count: int) -> Float[np.ndarray, "request"]:
        """Return `count` arrival times, seconds; the loop uses no `rng`."""
        if self.beyond == "resample":
            return np.cumsum(rng.choice(np.diff(self.offsets_s), count))
        size = self.offsets_s.size
        period = self.offsets_s[-1] * size / (size - 1)
        turn, row = np.divmod(np.arange(count), size)
        return np.asarray(turn * period + self.offsets_s[row])

    def scaled_to(self, rate_per_s: float) -> TraceArrivals:
        """Return the trace on a clock that makes its rate `rate_per_s`."""
        f = self.rate_per_s / positive("rate_per_s", rate_per_s)
        return TraceArrivals(self.offsets_s * f, self.beyond)

    def describe(self) -> str:
        """Return one short line."""
        how = "looped" if self.beyond == "loop" else "gaps resampled"
        return f"{self.offsets_s.size} recorded arrivals, {self.rate_per_s:g}/s, CV {self.scv**0.5:.3g}, {how}"
