"""`tileq plan --check`: the plan simulated, against the capacity that theory gives it.

A saturated server finishes requests at the rate that its policy can sustain. Generalised RAD (the plan's own tiles and
ratio) and Sarathi (the plan's single budget) are offered more than lambda* and what they finish per second is measured
while work is always waiting. It is held against lambda* of the very requests that were drawn, so that the luck of their
lengths does not count for or against a policy. No policy exceeds it, up to the interval. What Sarathi is expected to
reach stands beside it: less than lambda* where few requests fit (`tileq_theory.capacity.population`).
"""

from __future__ import annotations

__all__ = ["CHECKED", "check_plan"]

from typing import TYPE_CHECKING, Any

from tileq.experiments import Experiment, make_experiment

if TYPE_CHECKING:
    from tileq.planning import Plan
    from tileq_engine.run import Run

CHECKED = ("rad_general", "sarathi")
_OVERLOAD = 1.5


def check_plan(plan: Plan, *, requests: int = 4000, seed: int = 0) -> dict[str, Any]:
    """Return what saturated simulations of one replica say of the plan, as plain data.

    `policies` maps each to rate_per_s, ci95 and of_capacity, or to a reason why there is no number;
    `capacity_per_s` is lambda*, `capacity_of_these_requests_per_s` that of the lengths drawn, `expected_rate_per_s`
    the attainable rate of the budget.

    Parameters
    ----------
    requests
        Requests offered; more narrow the interval.
    seed
        Seed of the requests, the same for both policies.
    """
    experiment = make_experiment(plan, requests=requests, stop_backlog=requests + 1)
    capacity = experiment.capacity_per_s
    runs = {name: _overloaded(experiment, name, capacity, seed) for name in CHECKED}
    own = _capacity_of_run(experiment, runs[CHECKED[0]])
    found = {name: _judged(run, own) for name, run in runs.items()}
    return {
        "capacity_per_s": capacity,
        "capacity_of_these_requests_per_s": own,
        "expected_rate_per_s": plan.tile.attainable_rate_per_s / plan.tile.capacity.limits.nodes,
        "requests": requests,
        "seed": seed,
        "policies": found,
    }


def _overloaded(experiment: Experiment, name: str, capacity: float, seed: int) -> Run:
    from tileq_engine.experiment_engine import simulate_policy

    rate = _OVERLOAD * capacity
    return simulate_policy(
        experiment.policy(name),
        rate,
        workload=experiment.workload.with_rate(rate),
        time=experiment.plan.setting.time,
        config=experiment.config,
        requests=experiment.requests,
        seed=seed,
    )


def _capacity_of_run(experiment: Experiment, run: Run) -> float:
    """Return lambda* of the lengths that were drawn, on one replica."""
    from tileq_theory.capacity import capacity
    from tileq_theory.lengths import Pairs

    limits = experiment.plan.tile.capacity.limits.with_(nodes=1)
    drawn = Pairs(run.requests["prompt_tokens"], run.requests["output_tokens"])
    demand = drawn.demand(chunk_tokens=limits.max_batch_tokens, convention=experiment.plan.convention, counting="least")
    return capacity(experiment.plan.setting.time, demand, limits).rate_per_s


def _judged(run: Run, capacity: float) -> dict[str, Any]:
    from tileq_engine.capacity_search_saturated import saturated_throughput
    from tileq_theory.errors import InputError

    try:
        interval = saturated_throughput(run)
    except InputError as error:
        return {"rate_per_s": None, "ci95": None, "of_capacity": None, "reason": str(error)}
    middle = (interval.low + interval.high) / 2
    return {
        "rate_per_s": middle,
        "ci95": [interval.low, interval.high],
        "of_capacity": middle / capacity,
        "reason": None,
    }
