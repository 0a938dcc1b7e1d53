r"""Capacity by simulation: the largest rate that meets an objective.

`capacity_search` looks for the largest rate at which a criterion holds (`capacity_search_criteria`). Each replication
keeps one random stream for every rate it tries (common random numbers: the same requests on another clock), so its
answer is a nearly monotone function of the rate: bracketing by doubling, then secant steps kept well inside the
bracket, then bisection, to a relative width `tolerance`. Then it probes beyond the bracket: a rate above that meets
the criterion, or one below that misses it, is a violation of monotonicity. It is counted and reported; a higher rate
that meets it restarts the search from there, since the answer is the *largest* rate. Replications give a Student
interval; a single one gives its bracket.
"""

from __future__ import annotations

__all__ = ["CapacityResult", "RateSimulation", "capacity_search"]

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tileq_engine.capacity_search_bracket import BracketSearch
from tileq_engine.capacity_search_criteria import Criterion
from tileq_engine.experiment_parallel import run_tasks
from tileq_engine.experiment_store import ResultStore, settings_of
from tileq_engine.experiment_streams import Streams
from tileq_engine.intervals import Interval, student_interval
from tileq_engine.run import Run
from tileq_engine.run_raw import run_from_raw
from tileq_theory.errors import InputError, nonnegative, positive, positive_int

RateSimulation = Callable[[float, Streams], Any]


@dataclass(frozen=True, slots=True)
class CapacityResult:
    """Answer of a capacity search, requests a second.

    Parameters
    ----------
    rate_per_s
        Mean over replications of the largest rate found to meet the criterion.
    interval
        From the lower end of the Student interval of the brackets' lower ends over replications to the upper end of
        that of their upper ends: each capacity is known to its bracket only (one replication: its final bracket).
    brackets
        (largest rate that met it, smallest rate above that did not) of each replication; the second is inf where every
        rate tried met it.
    runs
        Simulations made in all.
    violations
        Pairs (rate that missed, higher rate that met) found, over all replications.
    criterion
        What was asked, in words.
    history
        (replication, rate, margin) of every simulation in order; margin <= 0 means met.
    notes
        What a reader must know.
    """

    rate_per_s: float
    interval: Interval
    brackets: tuple[tuple[float, float], ...]
    runs: int
    violations: int
    criterion: str
    history: tuple[tuple[int, float, float], ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data."""
        ends = [[low, high if math.isfinite(high) else None] for low, high in self.brackets]
        return {
            "rate_per_s": self.rate_per_s if math.isfinite(self.rate_per_s) else None,
            "interval": self.interval.to_dict(),
            "brackets_per_s": ends,
            "runs": self.runs,
            "monotonicity_violations": self.violations,
            "criterion": self.criterion,
            "warnings": list(self.notes),
        }


def _as_run(result: Any) -> Run:
    return result if isinstance(result, Run) else run_from_raw(result)


@dataclass(frozen=True, slots=True)
class _Found:
    """What one replication's search found."""

    bracket: tuple[float, float]
    tried: tuple[tuple[float, float], ...]
    violations: int
    verdict: str
    rejections: str


def _one_search(
    simulate: RateSimulation,
    criterion: Criterion,
    start: float,
    tolerance: float,
    most_runs: int,
    allowed_rejections: float,
    store: ResultStore,
    streams: Streams,
) -> _Found:
    def run_at(rate: float) -> Run:
        return _as_run(simulate(rate, streams))

    search = BracketSearch(run_at, criterion, tolerance, most_runs, allowed_rejections, store, streams.replication)
    low, high = search.bracket(start)
    if low > 0.0 and math.isfinite(high):
        low, high = search.probe(*search.narrow(low, high))
    tried = tuple((rate, search.tried[rate]) for rate in search.order)
    return _Found((low, high), tried, search.violations(), search.verdicts.get(low, ""), search.rejections)


def _interval(brackets: list[tuple[float, float]], level: float) -> Interval:
    if len(brackets) == 1:
        low, high = brackets[0]
        closed = low > 0.0 and math.isfinite(high)
        return Interval(
            low, low, high, level, "final bracket of one replication", 1, closed, "" if closed else "bracket is open"
        )
    below, above = (student_interval([bracket[side] for bracket in brackets], level) for side in (0, 1))
    found = replace(below, high=above.high, settled=above.settled, note=above.note and "a bracket is open")
    return found.within(0.0) if math.isfinite(below.half_width) else found


def capacity_search(
    simulate: RateSimulation,
    criterion: Criterion,
    *,
    start_per_s: float = 1.0,
    tolerance: float = 0.01,
    replications: int = 5,
    seed: int = 0,
    level: float = 0.95,
    most_runs: int = 60,
    allowed_rejections: float = 0.0,
    backend: str = "joblib",
    workers: int | None = None,
    progress: bool | None = None,
    folder: str | Path | None = None,
    settings: Any = None,
) -> CapacityResult:
    """Return the largest rate at which `criterion` holds.

    Parameters
    ----------
    simulate
        simulate(rate_per_s, streams) -> `Run` or raw result; it must draw from `streams` only.
    criterion
        A `Criterion`: margin of a run, <= 0 where the objective is met.
    start_per_s
        First rate tried; a guess of the capacity saves runs.
    tolerance
        Relative width of the final bracket.
    most_runs
        Simulations allowed in each replication; when they are used up the bracket stays as it is and a note says so.
    allowed_rejections
        Largest share of rejected requests with which a run may meet the criterion: times cover the accepted ones
        only, so a policy that turns requests away would look the better for it.
    folder, settings
        Keep every evaluation there as it finishes and take those already there (`experiment_store`); `settings` says
        what is simulated, and its change is an error.

    Raises
    ------
    InputError
        For a start, tolerance or counts out of range.
    """
    start, width = positive("start_per_s", start_per_s), positive("tolerance", tolerance)
    if most_runs < 4:
        raise InputError(f"most_runs is {most_runs!r}; expected 4 or more simulations in each replication")
    streams = [Streams(seed, r) for r in range(positive_int("replications", replications))]
    allowed = nonnegative("allowed_rejections", allowed_rejections)
    pinned = {
        "criterion": criterion.describe(),
        "allowed_rejections": allowed,
        "settings": settings_of(simulate) if settings is None else settings,
    }
    store = ResultStore(folder, {"kind": "capacity", "seed": seed, **pinned})
    task = partial(_one_search, simulate, criterion, start, width, most_runs, allowed, store)
    found = run_tasks(task, streams, backend=backend, workers=workers, progress=progress, title="capacity")
    brackets = [item.bracket for item in found]
    history = tuple((r, rate, margin) for r, item in enumerate(found) for rate, margin in item.tried)
    lows = [low for low, _ in brackets]
    return CapacityResult(
        rate_per_s=math.fsum(lows) / len(lows),
        interval=_interval(brackets, level),
        brackets=tuple(brackets),
        runs=len(history),
        violations=sum(item.violations for item in found),
        criterion=criterion.describe(),
        history=history,
        notes=tuple(_notes(found, width, most_runs)),
    )


def _notes(found: list[_Found], width: float, most: int) -> list[str]:
    notes, brackets, total = [], [item.bracket for item in found], len(found)
    rejections = next((item.rejections for item in found if item.rejections), "")
    if rejections:
        notes.append(f"rates that reject requests do not count as meeting the objective; rejected: {rejections}")
    if any(low == 0.0 for low, _ in brackets):
        notes.append("no rate tried met the objective in some replication, which counts as 0: it may be out of reach")
    if any(math.isinf(high) for _, high in brackets):
        notes.append("every rate tried met the objective in some replication: the capacity is above the rate given")
    violations = sum(item.violations for item in found)
    if violations:
        notes.append(f"{violations} rates missed the objective although a higher one met it; the largest is given")
    unsettled = sum(item.verdict in ("unstable", "undecided") for item in found if item.bracket[0] > 0)
    if unsettled:
        notes.append(
            f"at the rate found the run is not known to be stable in {unsettled} of {total} replications: longer runs "
            "may give a lower capacity"
        )
    wide = any(high > low * (1 + width) for low, high in brackets if low > 0 and math.isfinite(high))
    if wide and max(len(item.tried) for item in found) >= most:
        notes.append(f"the allowance of {most} runs ended the search before the bracket was within {width:.2%}")
    return notes
