"""What a law sees: a run with its trace, regrouped by iteration; and what it says: the first breach, or None."""

from __future__ import annotations

__all__ = ["Breach", "Law", "Member", "Replay", "replay"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_engine.simulator import RawRun


class Member(NamedTuple):
    """One request in one iteration."""

    request: int
    prefill_tokens: int
    decode: int


@dataclass(frozen=True, slots=True)
class Replay:
    """A traced run, iteration by iteration: `members[i]` ran from start_ps[i] for duration_ps[i]."""

    run: RawRun
    start_ps: tuple[int, ...]
    duration_ps: tuple[int, ...]
    members: tuple[tuple[Member, ...], ...]

    def name_of(self, request: int) -> str:
        """Return how the user calls the request: its id."""
        return f"request {int(self.run.requests.ids[request])}"


@dataclass(frozen=True, slots=True)
class Breach:
    """A broken rule: which, by whom (a request, or the run), when (iteration, -1 for the whole run) and why."""

    rule: str
    who: str
    iteration: int
    reason: str

    def __str__(self) -> str:
        when = f"iteration {self.iteration}, " if self.iteration >= 0 else ""
        return f"rule '{self.rule}' broken: {when}{self.who}: {self.reason}"


Law = Callable[[Replay], "Breach | None"]


def replay(run: RawRun) -> Replay:
    """Regroup the trace of `run` by iteration.

    Parameters
    ----------
    run
        A run whose trace is complete: `trace_limit` of its configuration at least the members of all its batches.

    Raises
    ------
    InputError
        When the trace is missing or was cut, so that a law could not see the whole run.
    """
    trace, counters = run.trace, run.counters
    seen = int(trace.prefill_tokens.sum()), int((trace.decode > 0).sum())
    done = int(counters["prefill_tokens"]), int(counters["decode_tokens"])
    if seen != done:
        raise InputError(
            f"trace holds {seen[0]} prefill and {seen[1]} decode tokens of {done[0]} and {done[1]}; "
            "run again with a larger trace_limit in EngineConfig, in mode 'stepped'"
        )
    starts: list[int] = []
    durations: list[int] = []
    members: list[list[Member]] = []
    last = -1
    columns = (trace.iteration, trace.start_ps, trace.duration_ps, trace.request, trace.prefill_tokens, trace.decode)
    for iteration, start, duration, request, tokens, decode in zip(*(c.tolist() for c in columns), strict=True):
        if iteration != last:
            starts.append(start)
            durations.append(duration)
            members.append([])
            last = iteration
        members[-1].append(Member(request, tokens, decode))
    return Replay(run, tuple(starts), tuple(durations), tuple(tuple(m) for m in members))
