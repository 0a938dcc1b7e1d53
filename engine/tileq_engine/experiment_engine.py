r"""The engine's simulator as the `simulate` of an experiment: scenario in, `Run` out.

`EngineSimulation` is picklable, draws requests with common random numbers (`experiment_streams`) and runs them
through the scenario's policy. Gap distributions take only tokens that complete between the arrival that follows the
first tenth of the requests and the last arrival, so that TBT has neither warm-up nor drain in it.
"""

from __future__ import annotations

__all__ = ["EngineSimulation", "engine_policies", "replicate_policy", "simulate_policy"]

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq_engine.experiment_streams import Streams, crn_requests
from tileq_engine.metrics_slai import slai_arrivals_s, slai_true_rate
from tileq_engine.run import PS_PER_S, Run, Slo
from tileq_engine.run_raw import plain, run_from_raw
from tileq_theory.errors import InputError, positive

if TYPE_CHECKING:
    from tileq_engine.config import EngineConfig
    from tileq_engine.experiment import Replications
    from tileq_engine.sweep import Scenario
    from tileq_theory.iteration_time import IterationTime

_ARRIVALS = ("workload", "slai")


def engine_policies(policies: Any) -> dict[str, Any]:
    """Return name -> engine policy from names, policies, or a mapping of names to either."""
    from tileq_engine.registry import policy

    if isinstance(policies, Mapping):
        named = [(str(name), given) for name, given in policies.items()]
    else:
        items = [policies] if isinstance(policies, str) or not isinstance(policies, Iterable) else list(policies)
        named = [(item if isinstance(item, str) else item.name, item) for item in items]
    twice = sorted({name for name, _ in named if [n for n, _ in named].count(name) > 1})
    if twice:
        raise InputError(f"policy {twice[0]!r} is given twice; give a mapping of names to policies to tell them apart")
    if not named:
        raise InputError("no policy was given; expected at least one")
    return {name: policy(given) if isinstance(given, str) else given for name, given in named}


@dataclass(frozen=True, slots=True)
class EngineSimulation:
    """simulate(scenario) -> `Run` on an iteration time.

    Parameters
    ----------
    time
        `IterationTime`.
    config
        `EngineConfig`; None: its defaults.
    requests
        Requests of a run.
    slo
        One objective for all, or one a tier (standard, then paying).
    tiers
        None: one tier. A mapping (may be empty) gives the options of `Requests.with_tiers`.
    arrivals
        "workload": its own process at the scenario's rate; "slai": the authors' cut exponential gaps, whose true rate
        is 1.0524 times the rate named.
    measure_gaps
        "steady": only tokens between the arrivals at a tenth of the requests and the last; "all": every token.
    mode
        The simulator's mode ("compiled", "stepped", "python").
    source
        Where requests come from that know their prompts' blocks (`Conversations`, `ReplayedRequests`), in place of
        draws from the workload's law; anything with `draw(count, streams, rate_per_s)` and `to_dict()`.
    """

    time: IterationTime
    config: EngineConfig | None = None
    requests: int = 4000
    slo: Slo | tuple[Slo, ...] | None = None
    tiers: Mapping[str, Any] | None = None
    arrivals: str = "workload"
    measure_gaps: str = "steady"
    mode: str = "compiled"
    source: Any = None

    def __post_init__(self) -> None:
        if self.arrivals not in _ARRIVALS:
            raise InputError(f"arrivals is {self.arrivals!r}; expected one of {', '.join(_ARRIVALS)}")
        if self.measure_gaps not in ("steady", "all"):
            raise InputError(f"measure_gaps is {self.measure_gaps!r}; expected 'steady' or 'all'")

    def __call__(self, scenario: Scenario) -> Run:
        """Simulate one scenario."""
        from tileq_engine.config import EngineConfig
        from tileq_engine.simulator import simulate

        streams, rate = scenario.streams, scenario.rate_per_s
        config = self.config or EngineConfig()
        if not config.policy_seed:
            config = config.with_(policy_seed=streams.integer("policy"))
        asked = self._requests(scenario)
        if self.measure_gaps == "steady" and not config.gap_from_s and config.gap_to_s is None and len(asked) > 1:
            edges = (int(asked.arrival_ps[len(asked) // 10]), int(asked.arrival_ps[-1]))
            if edges[0] < edges[1]:
                config = config.with_(gap_from_s=edges[0] / PS_PER_S, gap_to_s=edges[1] / PS_PER_S)
        raw = simulate(asked, scenario.policy, self.time, config, mode=self.mode)  # type: ignore[arg-type]
        limits = (self.slo,) if isinstance(self.slo, Slo) else self.slo
        tiers = 2 if bool(asked.paying.any()) else 1
        if limits is not None and len(limits) == 1:
            limits = limits * tiers
        return run_from_raw(
            raw,
            rate_per_s=slai_true_rate(rate) if self.arrivals == "slai" else rate or scenario.workload.rate_per_s,
            class_names=self._class_names(scenario.workload, asked),
            slo=None if limits is None else limits[:tiers],
            seed=streams.seed,
            replication=streams.replication,
            workload=plain(scenario.workload),
        )

    def _requests(self, scenario: Scenario) -> Any:
        streams = scenario.streams
        if self.source is not None:
            asked = self._divided(self.source.draw(self.requests, streams, scenario.rate_per_s or None), scenario)
        else:
            asked = crn_requests(scenario.workload, self.requests, streams, scenario.rate_per_s or None)
        if self.arrivals == "slai":
            moments = slai_arrivals_s(streams.rng("arrivals"), self.requests, scenario.rate_per_s)
            asked = asked.with_(arrival_ps=(moments * PS_PER_S).round().astype("int64"))
        if self.config is not None and self.config.tenants is not None:
            asked = self.config.tenants.with_priorities(asked)
        return asked if self.tiers is None else asked.with_tiers(seed=streams.integer("tiers"), **self.tiers)

    def _divided(self, asked: Any, scenario: Scenario) -> Any:
        """Return a source's requests, of one class, among the tenants that the workload has as its classes."""
        from tileq_engine.prefix_sessions import with_tenants

        tenants = None if self.config is None else self.config.tenants
        shares = getattr(scenario.workload, "shares", ())
        if tenants is None or len(tenants.names) < 2 or len(shares) != len(tenants.names):
            return asked
        return with_tenants(asked, shares, scenario.streams.rng("tenants"))

    @staticmethod
    def _class_names(workload: Any, asked: Any) -> tuple[str, ...]:
        names = tuple(str(c.name) for c in getattr(workload, "classes", ()))
        highest = int(asked.class_index.max()) + 1 if len(asked) else 1
        return names if len(names) >= highest else tuple(f"class {i}" for i in range(highest))

    def at_rate(self, rate_per_s: float, streams: Streams, *, policy: Any, workload: Any) -> Run:
        """Simulate a policy at a rate: with `functools.partial` the `simulate` of a capacity search."""
        from tileq_engine.sweep import Scenario

        name = str(getattr(policy, "name", policy))
        return self(Scenario(name, policy, rate_per_s, "all", workload, streams))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as plain data (they pin a results folder)."""
        names = ("time", "config", "requests", "slo", "tiers", "arrivals", "measure_gaps")
        source = {} if self.source is None else {"source": plain(self.source)}
        return {**{name: plain(getattr(self, name)) for name in names}, **source}


def _at_streams(simulation: EngineSimulation, policy: Any, rate_per_s: float, workload: Any, streams: Streams) -> Run:
    return simulation.at_rate(rate_per_s, streams, policy=policy, workload=workload)


def simulate_policy(
    policy: Any,
    rate_per_s: float | None = None,
    *,
    workload: Any,
    time: IterationTime,
    seed: int = 0,
    replication: int = 0,
    **options: Any,
) -> Run:
    """Return one run of a policy (by name or object) on a workload.

    Parameters
    ----------
    rate_per_s
        Arrival rate; None keeps the workload's own arrivals (a trace).
    options
        Of `EngineSimulation`: config, requests, slo, tiers, arrivals, measure_gaps, mode, source.
    """
    (chosen,) = engine_policies([policy]).values()
    simulation = EngineSimulation(time, **options)
    return _at_streams(simulation, chosen, _rate(rate_per_s), workload, Streams(seed, replication))


def replicate_policy(
    policy: Any,
    rate_per_s: float | None = None,
    *,
    workload: Any,
    time: IterationTime,
    replications: int = 5,
    seed: int = 0,
    backend: str = "threads",
    workers: int | None = None,
    progress: bool | None = None,
    folder: str | Path | None = None,
    metrics: Mapping[str, Any] | None = None,
    **options: Any,
) -> Replications:
    """Return independent replications of a policy on a workload; `options` as for `simulate_policy`."""
    from tileq_engine.experiment import replicate

    (chosen,) = engine_policies([policy]).values()
    simulation, rate = EngineSimulation(time, **options), _rate(rate_per_s)
    pinned = {"simulation": simulation, "policy": chosen, "rate_per_s": rate_per_s, "workload": workload}
    return replicate(
        partial(_at_streams, simulation, chosen, rate, workload), replications, seed, settings=pinned, metrics=metrics,
        backend=backend, workers=workers, progress=progress, folder=folder,
    )  # fmt: skip


def _rate(rate_per_s: float | None) -> float:
    """Return the rate of a scenario, 0 standing for the workload's own arrivals."""
    return 0.0 if rate_per_s is None else positive("rate_per_s", rate_per_s)
