"""`tileq compare`: policies on the same requests over several rates, and their capacities under an objective."""

from __future__ import annotations

__all__ = ["PolicyComparison", "compare"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq.experiments import Experiment, make_experiment, parse_rates, ready_folder, replication_count
from tileq_theory.errors import positive

if TYPE_CHECKING:
    from tileq_engine.backpressure import Backpressure, TbtControl
    from tileq_engine.capacity_search_criteria import Criterion
    from tileq_engine.policy import Policy
    from tileq_engine.sweep_compare import Comparison
    from tileq_engine.tenants import Tenants


@dataclass(frozen=True, slots=True)
class PolicyComparison:
    """What was simulated, and what came out."""

    experiment: Experiment
    theory: Comparison

    def rows(self) -> list[dict[str, Any]]:
        """Return one row a policy and rate."""
        return self.theory.rows()

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `tileq compare --json` prints."""
        from tileq.plain import plain

        document: dict[str, Any] = plain(
            {"schema_version": 1, "setting": self.experiment.setting(), **self.theory.to_dict()}
        )
        return document

    def plot(self, path: str | PathLike[str]) -> None:
        """Draw TTFT and TBT against rate by policy."""
        self.theory.plot(Path(path))


def compare(
    policies: Sequence[str | Policy] | Mapping[str, str | Policy] | str = ("sarathi", "slai", "rad"),
    rates: Sequence[float] | float | str | None = None,
    *,
    slo_ttft: float | None = None,
    slo_tbt: float | None = None,
    capacity: bool = False,
    requests: int = 4000,
    replications: int = 5,
    seed: int = 0,
    token_budget: int | None = None,
    seats: int | None = None,
    kv_tokens: int | None = None,
    preemption: str = "recompute",
    swap_gb_per_s: float = 25.0,
    paying: float | None = None,
    tenants: Sequence[str] | Tenants | None = None,
    token_prices: str | tuple[float, float] = (1.0, 2.0),
    reservation: str = "policy",
    watermark: float = 0.0,
    backpressure: str | Backpressure | None = None,
    control_tbt: float | TbtControl | None = None,
    prefix_cache: bool = False,
    folder: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **question: Any,
) -> PolicyComparison:
    """Compare policies on the same requests (common random numbers) on one replica of a plan's machine.

    Parameters
    ----------
    policies
        Names with their settings or `Policy` objects, as in `tileq.simulate`; a mapping gives them names of its own.
    rates
        Requests per second: numbers, "0.5,1,2" or "first:last:step"; None: .5, .7, .8, .9 and 1.0 of lambda*.
    slo_ttft, slo_tbt
        Limits on the median TTFT and the p99 TBT, seconds. With either, each policy's capacity under them is
        searched among the rates at which it is not found unstable, up to lambda*: no policy is stable beyond it.
    capacity
        Search each policy's stable capacity as well.
    tenants, token_prices, reservation, watermark, backpressure, control_tbt, prefix_cache
        Who shares the machine, admission under pressure, and whether prompts' KV is kept; as in `tileq.simulate`.
    question
        Of `tileq.plan`.
    """
    from tileq.planning import plan
    from tileq.policy_text import policies_by_name
    from tileq_engine.sweep_compare import compare as run_comparison

    repeated, kept = replication_count(replications), ready_folder(folder)
    experiment = make_experiment(
        plan(**question),
        requests=requests,
        token_budget=token_budget,
        max_num_seqs=seats,
        kv_tokens=kv_tokens,
        preemption=preemption,
        swap_gb_per_s=swap_gb_per_s,
        paying=paying,
        tenants=tenants,
        token_prices=token_prices,
        reservation=reservation,
        watermark=watermark,
        backpressure=backpressure,
        control_tbt=control_tbt,
        prefix_cache=prefix_cache,
    )
    named = policies_by_name(policies, plan=experiment.plan)
    found = run_comparison(
        named,
        _rates(experiment, rates),
        workload=experiment.workload,
        time=experiment.plan.setting.time,
        config=experiment.config,
        requests=experiment.requests,
        tiers=experiment.tiers,
        source=experiment.plan.traffic.source_of_blocks if prefix_cache else None,
        replications=repeated,
        seed=seed,
        criterion=_criterion(slo_ttft, slo_tbt, capacity, experiment.capacity_per_s),
        progress=progress,
        folder=kept,
    )
    return PolicyComparison(experiment, _bounded(found, experiment.capacity_per_s))


def _bounded(found: Comparison, bound_per_s: float) -> Comparison:
    """Return the comparison with each capacity's interval cut at lambda*, which no policy exceeds."""
    cut = {key: replace(c, interval=c.interval.within(0.0, bound_per_s)) for key, c in found.capacity.items()}
    return replace(found, capacity=cut)


def _rates(experiment: Experiment, rates: Sequence[float] | float | str | None) -> tuple[float, ...]:
    if rates is None:
        return tuple(share * experiment.capacity_per_s for share in (0.5, 0.7, 0.8, 0.9, 1.0))
    if isinstance(rates, str):
        return parse_rates(rates)
    return tuple(positive("rate", rate) for rate in (rates if hasattr(rates, "__iter__") else [rates]))


def _criterion(ttft_s: float | None, tbt_s: float | None, capacity: bool, bound_per_s: float) -> Criterion | None:
    from tileq.sustainable import NotUnstable, UpTo
    from tileq_engine.capacity_search_criteria import Stable, Within, all_of

    parts: list[Criterion] = []
    if ttft_s is not None:
        parts.append(Within("ttft_s.p50", positive("slo_ttft", ttft_s)))
    if tbt_s is not None:
        parts.append(Within("tbt_s.p99", positive("slo_tbt", tbt_s)))
    if capacity:
        parts.append(Stable())
    return all_of(*parts, NotUnstable(), UpTo(bound_per_s)) if parts else None
