"""`serve`: requests through a policy on a real model, from the first arrival to the last token."""

from __future__ import annotations

__all__ = ["RunFailedError", "Served", "serve"]

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.config import EngineConfig
from tileq_engine.executor.backend import Backend
from tileq_engine.executor.clocks import RunClock
from tileq_engine.executor.journal import RunJournal
from tileq_engine.executor.live import LiveTable
from tileq_engine.executor.log import IterationLog
from tileq_engine.executor.sampling import Sampling
from tileq_engine.executor.session import Session
from tileq_engine.executor.stopping import StopRule, StopSwitch
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_engine.run import Run
from tileq_engine.simulator_result import RawRun
from tileq_theory.errors import InputError, TileqError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import Provenance


@dataclass(frozen=True, slots=True)
class Served:
    """What a real run left.

    Parameters
    ----------
    raw
        As a simulation leaves it; `run` makes metrics of it.
    log
        Every iteration.
    outputs
        Generated tokens of each request.
    facts
        Backend, clock, policy, as plain data.
    """

    raw: RawRun
    log: IterationLog
    outputs: tuple[Int[np.ndarray, "_"], ...]
    facts: dict[str, Any]

    def run(self, **facts: Any) -> Run:
        """Return the `Run` (facts as in `run_raw.run_from_raw`), whose metrics are those of any run."""
        return Run.of(self.raw, **{"provenance": self.facts, **facts})

    @property
    def requests(self) -> Requests:
        """The requests that were let in, with the lengths they had in the end."""
        return self.raw.requests


class RunFailedError(TileqError):
    """A real run that could not go on; `served` is what happened before, nothing of it is lost."""

    def __init__(self, message: str, served: Served) -> None:
        super().__init__(message)
        self.served = served


def serve(
    requests: Requests,
    policy: Policy,
    backend: Backend,
    config: EngineConfig | None = None,
    *,
    clock: str | IterationTime | RunClock = "wall",
    prompts: Iterable[Int[np.ndarray, "_"]] | None = None,
    sampling: Sampling | Iterable[Sampling] | None = None,
    time: IterationTime | None = None,
    probe: Any = None,
    journal: str | Path | None = None,
    resume: bool = True,
    live: bool | None = None,
    on_stop: StopRule = "drain",
    switch: StopSwitch | None = None,
    until: Callable[[Session], bool] | None = None,
    seed: int = 0,
    check: bool = False,
) -> Served:
    """Serve `requests` on a real model; the policy's decisions are the simulator's.

    Parameters
    ----------
    requests
        Arrivals and lengths; `output_tokens` is each one's limit.
    policy, config
        As for `simulate`. Bounds of the run (`stop_time_s`, `stop_backlog`, `stop_iterations`) hold here too.
    backend
        The model.
    clock
        "wall" (real time), "busy", "cpu", "steady" (see `clocks`), or an `IterationTime` for a rehearsal.
    prompts
        Their tokens; None: random ones, from `seed` and the request's id.
    sampling
        For all, or one each; None: greedy, exactly to the given length.
    time
        What a policy that plans with the iteration time (theta, eb_plus) is told of it.
    probe
        What the steady clock looks at.
    journal
        A file to which each iteration is written as it ends. An interrupted run goes on from it: the recorded
        iterations are decided again, the residents' KV is computed again outside the clock.
    live
        The table on stderr; None: when it is a terminal.
    on_stop
        What SIGINT and SIGTERM do: "drain" or "save" (a second signal saves).
    until
        Asked after every iteration, outside the clock; the run ends, "enough", when it says True.

    Raises
    ------
    InputError
        For settings and requests that the model cannot run.
    RunFailedError
        When the model fails in the middle; it holds the run so far.
    """
    held = None
    if journal is not None:
        held = RunJournal(journal, _header(requests, policy, config, backend, clock, seed), resume=resume)
    session = Session(
        backend,
        policy,
        config,
        requests=requests,
        prompts=prompts,
        sampling=sampling,
        time=time,
        clock=clock,
        probe=probe,
        journal=held,
        seed=seed,
        check=check,
    )
    session.scheduler.close()
    watch = StopSwitch(on_stop) if switch is None else switch
    try:
        with watch, LiveTable(session, live) as table:
            if held is not None and held.entries:
                _catch_up(session, held)
            reason = _drive(session, watch, table, until)
    except Exception as error:  # the device's own errors too: what was measured is not lost with them
        what = str(error) if isinstance(error, TileqError) else f"{type(error).__name__}: {error}"
        kept = "" if held is None else f"; the {len(session.log)} iterations before it are in {held.path}"
        raise RunFailedError(f"{what}{kept}", _served(session, requests, "failed")) from error
    finally:
        if held is not None:
            held.close()
    return _served(session, requests, reason)


def snapshot(session: Session, requests: Requests | None = None, reason: str = "running") -> Served:
    """Return what a session has done so far, while it runs; `requests` are those it was made with, if any."""
    return _served(session, session.scheduler.requests() if requests is None else requests, reason)


def _drive(
    session: Session, watch: StopSwitch, table: LiveTable, until: Callable[[Session], bool] | None = None
) -> str:
    """Run to the end, to a bound or to a stop; the order of events is the simulator's. Return why it ended."""
    scheduler, config = session.scheduler, session.config
    draining, tries, now = False, 0, scheduler.now_ps
    while True:
        present = scheduler.arrive(now)
        if watch.asked == "save":
            return "stopped"
        if watch.asked == "drain" and not draining:
            draining = True
            scheduler.turn_away()
            if session.journal is not None:
                session.journal.event("turn away")
        reason = _bound(config, now, present, len(session.log))
        if reason:
            return reason
        arrival = scheduler.next_arrival_ps
        if present == 0:
            if arrival is None:
                return "drained" if draining else "finished"
            now = arrival if session.clock.wait(arrival, watch) else max(now, scheduler.now_ps)
            continue
        if session.step(now) is None:
            event = scheduler.next_event_ps
            if scheduler.facts("npreempt")[0] > 0 and tries <= present:
                tries += 1  # whoever gave way may let another in at once
                continue
            if event is None:
                return "stalled"
            to = event if config.stop_time_s is None else min(event, round(config.stop_time_s * PS_PER_S))
            now = to if session.clock.wait(to, watch) else now
            continue
        tries, now = 0, scheduler.now_ps
        session.clock.pause()
        table.step()
        enough = until is not None and until(session)
        session.clock.resume(probe=False)
        if enough:
            return "enough"


def _bound(config: EngineConfig, now: int, present: int, iterations: int) -> str:
    if config.stop_time_s is not None and now >= round(config.stop_time_s * PS_PER_S):
        return "time"
    if config.stop_backlog is not None and present >= config.stop_backlog:
        return "backlog"
    if config.stop_iterations is not None and iterations >= config.stop_iterations:
        return "iterations"
    return ""


def _catch_up(session: Session, journal: RunJournal) -> None:
    """Take the recorded decisions again, then compute the residents' KV again, outside the clock."""
    scheduler, now = session.scheduler, 0
    for entry in journal.entries:
        if entry.get("event") == "turn away":
            scheduler.arrive(now)
            scheduler.turn_away()
        if "i" not in entry:
            continue
        now = int(entry["i"][0])  # the instant at which that iteration began
        _advance(session, now)
        if not session.repeat(entry, now):
            raise InputError(
                f"{journal.path}: the recorded iteration at {now} ps is not decided again; the file is of other "
                "requests or of another version. Begin anew with resume=False"
            )
    for request, cached in zip(*(column.tolist() for column in scheduler.on_host()), strict=True):
        session.executor.rebuild(np.array([request]), np.array([cached]))
        session.executor.memory.swap_out(request)
    session.executor.rebuild(*scheduler.on_device())
    session.clock.begin(scheduler.now_ps)


def _advance(session: Session, until: int) -> None:
    """Go through the instants before `until` at which the first process found no batch to form."""
    scheduler, now, tries = session.scheduler, session.scheduler.now_ps, 0
    while True:
        present = scheduler.arrive(now)
        if now >= until:
            return
        if present == 0:
            arrival = scheduler.next_arrival_ps
            now = until if arrival is None else min(arrival, until)
            continue
        if len(scheduler.decide(now)):
            raise InputError(f"a batch forms at {now} ps, where the recorded run had none; begin anew")
        event = scheduler.next_event_ps
        if scheduler.facts("npreempt")[0] > 0 and tries <= present:
            tries += 1
            continue
        now = until if event is None else min(event, until)


def _served(session: Session, requests: Requests, reason: str) -> Served:
    log, histories = session.log.log(), session.executor.histories
    outputs = tuple(histories.generated(i) for i in range(histories.count))
    raw = session.scheduler.raw_run(
        requests, reason, session.time or _MEASURED, f"executor, {session.clock.name} clock"
    )
    ended = raw.status == 3
    lengths = np.where(ended, raw.tokens_done, requests.output_tokens)
    whole = bool(np.array_equal(lengths, requests.output_tokens))  # one that a stop rule ended was as long as it was
    asked = requests if whole else requests.with_(output_tokens=lengths, blocks=None)
    facts = {
        "executor": {
            "backend": session.backend.describe(),
            "clock": session.clock.name,
            "time_shares": log.shares(),
        }
    }
    return Served(replace(raw, requests=asked, samples=log.samples()), log, outputs, facts)


_MEASURED = IterationTime(provenance=Provenance("measured", "every iteration of the run itself"))


def _header(
    requests: Requests,
    policy: Policy,
    config: EngineConfig | None,
    backend: Backend,
    clock: str | IterationTime | RunClock,
    seed: int,
) -> dict[str, Any]:
    from tileq_engine.run_raw import plain

    digest = hashlib.sha256()
    for item in fields(requests):
        if item.name == "blocks":
            continue  # what the prompts share is read from the prompts, and no journal is kept with a prefix cache
        digest.update(np.ascontiguousarray(getattr(requests, item.name)).tobytes())
    name = clock if isinstance(clock, str) else getattr(clock, "name", "model")
    return {
        "requests": digest.hexdigest()[:24],
        "policy": plain(policy),
        "config": plain(config or EngineConfig()),
        "backend": plain(backend.describe()),
        "clock": name,
        "seed": seed,
    }
