"""One real run of a validation: a policy at one load, until there is a verdict; and the simulator beside it."""

from __future__ import annotations

__all__ = ["Case", "Trial", "case_requests", "run_case"]

import time as clock_time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tileq_engine.clock import PS_PER_S
from tileq_engine.config import EngineConfig
from tileq_engine.executor.backend import Backend
from tileq_engine.executor.clocks import Probe
from tileq_engine.executor.figures import clock_ratio, error_figures, latency_figures, saturated_rate, verdict_of
from tileq_engine.executor.replaying import differences, replay
from tileq_engine.executor.serving import Served, serve, snapshot
from tileq_engine.executor.session import Session
from tileq_engine.executor.stopping import StopSwitch
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import simulate
from tileq_theory.errors import InputError, positive
from tileq_theory.iteration_time import IterationTime

_FIRST_LOOK = 0.25  # share of the requests that must have arrived before a verdict is asked for
_LOOKS = 1.3  # and that share grows by this factor from look to look


@dataclass(frozen=True, slots=True)
class Case:
    """A policy at a load: `fraction` of lambda*, or None for all requests at once (saturated)."""

    name: str
    policy: Policy
    fraction: float | None

    @property
    def key(self) -> str:
        """Name of the case's files."""
        return f"{self.name}-" + ("saturated" if self.fraction is None else f"{self.fraction:g}")


@dataclass(frozen=True, slots=True)
class Trial:
    """What all cases share.

    Parameters
    ----------
    backend, probe, clock
        The model, the machine's speed, and the clock of the runs.
    config
        Engine settings.
    lengths
        The requests, all at time 0: the same lengths in every case.
    rate_per_s
        lambda*.
    time
        The fitted iteration time.
    seed
        Of the arrivals and the prompts.
    folder
        Where journals go; None: nothing is kept.
    """

    backend: Backend
    probe: Probe | None
    clock: str | IterationTime
    config: EngineConfig
    lengths: Requests
    rate_per_s: float
    time: IterationTime
    seed: int = 0
    folder: Path | None = None


def case_requests(lengths: Requests, rate_per_s: float | None, seed: int) -> Requests:
    """Return the requests with Poisson arrivals at exactly this mean rate over the whole; None: all at once.

    The gaps are exponential and scaled so that the last request arrives at count/rate: near the edge of stability a
    rate that is off by a few per cent by the luck of the draw would be another load.
    """
    if rate_per_s is None:
        return lengths
    count = len(lengths)
    gaps = np.random.default_rng([seed, 77]).exponential(size=count).cumsum()
    arrival = gaps / gaps[-1] * count / positive("rate_per_s", rate_per_s)
    return lengths.with_(arrival_ps=np.rint(arrival * PS_PER_S).astype(np.int64))


def run_case(
    trial: Trial,
    case: Case,
    *,
    budget_s: float,
    switch: StopSwitch | None = None,
    live: bool | None = False,
    resume: bool = True,
) -> tuple[Served, dict[str, Any]]:
    """Run one case for at most `budget_s` real seconds and return it with its document.

    A case at a fraction ends with its verdict ("stable" or "unstable"), a saturated one when all requests have been
    admitted; both end with the budget.
    """
    rate = None if case.fraction is None else case.fraction * trial.rate_per_s
    asked = case_requests(trial.lengths, rate, trial.seed)
    journal = None if trial.folder is None else trial.folder / f"{case.key}.journal.jsonl"
    served = serve(
        asked,
        case.policy,
        trial.backend,
        trial.config,
        clock=trial.clock,
        time=trial.time,
        probe=trial.probe,
        journal=journal,
        resume=resume,
        live=live,
        on_stop="save",
        switch=switch,
        until=_enough(asked, case.fraction is None, budget_s),
        seed=trial.seed,
    )
    return served, case_document(trial, case, served, rate)


def _enough(asked: Requests, saturated: bool, budget_s: float) -> Callable[[Session], bool]:
    begun = clock_time.monotonic()
    look = {"at": _FIRST_LOOK * len(asked), "left": 0}

    def enough(session: Session) -> bool:
        if clock_time.monotonic() - begun > budget_s:
            return True
        look["left"] -= 1
        if look["left"] > 0:
            return False
        look["left"] = 16
        arrived, waiting = session.scheduler.facts("next", "nwaiting")
        if saturated:
            return arrived == len(asked) and waiting == 0
        if arrived < look["at"] or arrived == len(asked):
            return False
        look["at"] *= _LOOKS
        return bool(verdict_of(snapshot(session, asked).raw)["verdict"] != "undecided")

    return enough


def case_document(trial: Trial, case: Case, served: Served, rate: float | None) -> dict[str, Any]:
    """Return what a case says: measured, simulated on the fitted time, and how the two compare; plain data."""
    raw, log = served.raw, served.log
    simulated = _simulated(trial, case, served)
    measured_rate, simulated_rate = saturated_rate(raw), saturated_rate(simulated)
    differ = differences(served, replay(served))
    document: dict[str, Any] = {
        "policy": case.name,
        "describes": case.policy.describe(),
        "fraction": case.fraction,
        "rate_per_s": rate,
        "stop_reason": raw.stop_reason,
        "requests": int((raw.status != 0).sum()),
        "finished": int((raw.status == 3).sum()),
        "iterations": len(log),
        "clock_s": raw.end_ps / PS_PER_S,
        "wall_s": float(log["wall_ns"].sum() / 1e9),
        "mean_residents": _mean(log["nres"], log["duration_ps"]),
        "preemptions": int(raw.counters["preemptions"]),
        "iteration_error": error_figures(log, trial.time),
        "time_shares": log.shares(),
        "overhead_share": float(1 - log["compute_ns"].sum() / max(int(log["wall_ns"].sum()), 1)),
        "clock_over_cpu": clock_ratio(log, "cpu_ns"),
        "drift": _drift(served),
        "measured": {**latency_figures(raw), **verdict_of(raw)},
        "simulated": {**latency_figures(simulated), **verdict_of(simulated)},
        "replay": {"same": not differ, "differences": differ[:5]},
    }
    if case.fraction is None:
        document["saturated_per_s"] = None if measured_rate is None else measured_rate[0]
        document["saturated_halfwidth_per_s"] = None if measured_rate is None else measured_rate[1]
        document["saturated_raw_per_s"] = None
        if measured_rate is not None:
            raw_clock = "wall_ns" if trial.backend.describe().get("cuda") else "cpu_ns"
            document["saturated_raw_per_s"] = measured_rate[0] * clock_ratio(log, raw_clock, measured_rate[2])
        document["saturated_simulated_per_s"] = None if simulated_rate is None else simulated_rate[0]
    return document


def _simulated(trial: Trial, case: Case, served: Served) -> Any:
    """Simulate the same requests on the fitted time, to the same moment where the real run was cut."""
    rate = None if case.fraction is None else case.fraction * trial.rate_per_s
    asked = case_requests(trial.lengths, rate, trial.seed)
    config = served.raw.config
    if served.raw.stop_reason not in ("finished", "stalled"):
        config = config.with_(stop_time_s=served.raw.end_ps / PS_PER_S)
    return simulate(asked, case.policy, trial.time, config, mode="stepped")


def _mean(values: np.ndarray, weights: np.ndarray) -> float:
    return float(np.average(values, weights=weights)) if len(values) else 0.0


def _drift(served: Served) -> dict[str, float] | None:
    """Return how the machine's speed wandered during the run: the probe's spread over its median, None without one."""
    probe = served.log["probe_ns"]
    if not len(probe) or not probe.any():
        return None
    middle = float(np.median(probe))
    low, high = np.quantile(probe, [0.05, 0.95]).tolist()
    return {"probe_us": middle / 1e3, "spread": (high - low) / middle}


def check_lengths(lengths: Requests) -> Requests:
    """Return `lengths` with every arrival at 0, as `Trial` wants them."""
    if len(lengths) < 50:
        raise InputError(f"{len(lengths)} requests are too few for a validation; give 50 or more")
    return lengths.with_(arrival_ps=np.zeros(len(lengths), dtype=np.int64))
