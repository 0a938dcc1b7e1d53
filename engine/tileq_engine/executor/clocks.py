r"""Clocks of a run: how long an iteration took, and what happens while nobody is there.

| name | an iteration takes | idle time |
|---|---|---|
| wall | real time, everything between two completions included | is waited for: arrivals come in real time |
| busy | real time from its decision to its tokens | is skipped |
| cpu | the thread's CPU time in that stretch: other processes' share is not in it | is skipped |
| steady | CPU time (real time on CUDA) at the machine's reference speed | is skipped |

The steady clock takes out the drift of the machine's speed: a fixed matrix product is timed beside every iteration,
smoothed by an exponential mean, and the iteration's time is multiplied by reference over probe. What serves the
record alone (probe, journal, live table) is not counted by the last three.
"""

from __future__ import annotations

__all__ = ["CLOCKS", "ModelClock", "Probe", "RunClock", "make_clock"]

import time
from collections.abc import Callable
from typing import Any

from tileq_engine.clock import coefficients, duration_ps
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

CLOCKS = ("wall", "busy", "cpu", "steady")
_NS = 1000  # picoseconds
_NAP_S = 0.02


class Probe:
    """A fixed piece of work, timed now and then: the machine's speed.

    Parameters
    ----------
    work
        What is timed; a matrix product where torch is there, see `decoder_backend.gemm_probe`.
    now_ns
        The clock it is timed with.
    smoothing
        Weight of the newest timing in the exponential mean.
    between
        Run before each timing of the reference: what runs before it in earnest, so that the caches are as cold.
    """

    def __init__(
        self,
        work: Callable[[], object],
        now_ns: Callable[[], int] = time.thread_time_ns,
        smoothing: float = 0.1,
        between: Callable[[], object] | None = None,
    ) -> None:
        self._work, self._now, self._smoothing, self._between = work, now_ns, smoothing, between
        self.reference_ns = 0.0
        self.smooth_ns = 0.0

    def once(self) -> float:
        """Time the work once; return the smoothed time in nanoseconds."""
        begun = self._now()
        self._work()
        took = float(max(self._now() - begun, 1))
        # a neighbour's burst or an interrupt says nothing of the speed: one timing moves the mean by a tenth at most
        took = min(took, 2.0 * self.smooth_ns) if self.smooth_ns else took
        self.smooth_ns = took if not self.smooth_ns else self.smooth_ns + self._smoothing * (took - self.smooth_ns)
        return self.smooth_ns

    def set_reference(self, rounds: int = 50) -> float:
        """Take the median of some timings as the reference speed, and return it."""
        timings = []
        for _ in range(rounds):
            if self._between is not None:
                self._between()
            begun = self._now()
            self._work()
            timings.append(float(max(self._now() - begun, 1)))
        self.reference_ns = sorted(timings)[rounds // 2]
        self.smooth_ns = self.reference_ns
        return self.reference_ns

    @property
    def slowness(self) -> float:
        """How much slower than the reference the machine is now (1 before anything was timed)."""
        return self.smooth_ns / self.reference_ns if self.reference_ns else 1.0


class RunClock:
    """Measures iterations; make one with `make_clock`."""

    real_time = False

    def __init__(self, name: str, now_ns: Callable[[], int], probe: Probe | None = None) -> None:
        self.name, self._now, self.probe = name, now_ns, probe
        self._mark = self._paused = 0
        self.wall_ns = self.cpu_ns = 0
        self._wall_mark = self._cpu_mark = 0

    def begin(self, now_ps: int) -> None:
        """Start, or go on from `now_ps` of the run's own time."""
        if self.probe is not None and not self.probe.reference_ns:
            self.probe.set_reference()
        self._restart()

    def _restart(self) -> None:
        self._mark, self._wall_mark, self._cpu_mark = self._now(), time.perf_counter_ns(), time.thread_time_ns()

    def wait(self, until_ps: int, stopped: Callable[[], bool]) -> bool:
        """Let idle time pass until `until_ps`; False when `stopped` came true before."""
        self._restart()
        return not stopped()

    def lap(self, facts: dict[str, int]) -> int:
        """Return the picoseconds of the iteration that ends now; `facts` is its batch."""
        now, wall, cpu = self._now(), time.perf_counter_ns(), time.thread_time_ns()
        took = now - self._mark
        self.wall_ns, self.cpu_ns = wall - self._wall_mark, cpu - self._cpu_mark
        self._mark, self._wall_mark, self._cpu_mark = now, wall, cpu
        slow = 1.0 if self.probe is None else self.probe.slowness
        return max(1, round(took * _NS / slow))

    def pause(self) -> None:
        """Stop counting: what follows serves the record alone."""
        self._paused = self._now()
        self._wall_paused, self._cpu_paused = time.perf_counter_ns(), time.thread_time_ns()

    def resume(self, probe: bool = True) -> None:
        """Take the probe, and count again."""
        if self.probe is not None and probe:
            self.probe.once()
        self._mark += self._now() - self._paused
        self._wall_mark += time.perf_counter_ns() - self._wall_paused
        self._cpu_mark += time.thread_time_ns() - self._cpu_paused


class WallClock(RunClock):
    """Real time without gaps: an iteration begins where the last one, or the wait, ended."""

    real_time = True

    def begin(self, now_ps: int) -> None:
        """Start, or go on from `now_ps`."""
        super().begin(now_ps)
        self._zero = time.perf_counter_ns() - now_ps // _NS
        self._at = now_ps

    def wait(self, until_ps: int, stopped: Callable[[], bool]) -> bool:
        """Sleep until `until_ps`, a little at a time so that a signal is answered."""
        while (left := until_ps / 1e12 - (time.perf_counter_ns() - self._zero) / 1e9) > 0:
            if stopped():
                return False
            time.sleep(min(left, _NAP_S))
        super().wait(until_ps, stopped)
        self._at = until_ps
        return not stopped()

    def lap(self, facts: dict[str, int]) -> int:
        """Return the picoseconds since the last completion, or since the instant waited for."""
        super().lap(facts)
        now = (time.perf_counter_ns() - self._zero) * _NS
        took = max(1, now - self._at)
        self._at += took
        return took

    def pause(self) -> None:
        """Real time does not stop."""

    def resume(self, probe: bool = True) -> None:
        """Real time does not stop."""


class ModelClock(RunClock):
    """An iteration takes what an `IterationTime` says: real tokens on a simulated clock, for rehearsals."""

    def __init__(self, model: IterationTime) -> None:
        super().__init__("model", time.perf_counter_ns)
        self._coefficients = coefficients(model)

    def lap(self, facts: dict[str, int]) -> int:
        """Return the model's picoseconds for the batch."""
        super().lap(facts)
        tokens = facts["npre"] + facts["ndec"] + facts["pad"]
        return int(duration_ps(*self._coefficients, tokens, facts["pairs2"], facts["kv"], facts["seqs"]))


def make_clock(clock: str | IterationTime | RunClock, probe: Any = None, cuda: bool = False) -> RunClock:
    """Return the clock of that name, or one that an `IterationTime` drives."""
    if isinstance(clock, RunClock):
        return clock
    if isinstance(clock, IterationTime):
        return ModelClock(clock)
    if clock == "wall":
        return WallClock("wall", time.perf_counter_ns)
    if clock == "busy":
        return RunClock("busy", time.perf_counter_ns)
    cpu_time = time.perf_counter_ns if cuda else time.thread_time_ns
    if clock == "cpu":
        return RunClock("cpu", cpu_time)
    if clock == "steady":
        if probe is None:
            raise InputError("the steady clock needs a probe; give one, or take the clock 'busy'")
        return RunClock("steady", cpu_time, probe)
    raise InputError(f"clock is {clock!r}; expected one of {', '.join(CLOCKS)}, or an IterationTime")
