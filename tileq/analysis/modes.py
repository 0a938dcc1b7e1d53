"""Mixing, taking turns and nodes apart on one trace under one objective: by their programs and by simulation."""

from __future__ import annotations

__all__ = ["modes"]

from os import PathLike
from typing import Any

from tileq.analysis.answer import Analysis, analysis
from tileq.words import number, seconds
from tileq_theory.errors import InputError


def modes(
    *,
    trace: str | PathLike[str] | Any | None = None,
    workload: Any = None,
    classes: Any = None,
    nodes: int = 8,
    link: float | None = None,
    slo_ttft: float = 2.0,
    slo_tbt: float = 0.1,
    poisson: bool = False,
    requests: int = 4000,
    replications: int = 3,
    seed: int = 0,
    folder: str | PathLike[str] | None = None,
    progress: bool | None = None,
    **of_machine: Any,
) -> Analysis:
    """Return the largest rate of the same nodes in each mode within one objective.

    Parameters
    ----------
    trace, workload, classes
        The requests, as in `plan`; a trace's recorded gaps come on the clock of each rate.
    nodes, link
        Nodes in all, 2 or more; 10^9 bytes a second of a node's port (None: 50).
    slo_ttft, slo_tbt
        Limits on the 90 % quantile of TTFT and on the 99 % quantile of TBT, seconds.
    poisson
        Poisson arrivals instead of the recorded ones.
    requests, replications, seed, folder, progress
        Of the simulations; searches kept in `folder` are taken up again.
    of_machine
        `gpu`, `model`, `tp`, `calibration`, ... of `plan`.

    Raises
    ------
    InputError
        Fewer than two nodes, limits that are not above 0 or that no iteration meets, or what `plan` refuses.
    """
    from dataclasses import replace

    from tileq.experiments import count_up_to, ready_folder, replication_count
    from tileq.mode_search import Objective, mode_rates
    from tileq.planning import plan
    from tileq.traffic import make_traffic

    objective = Objective(slo_ttft, slo_tbt)
    if nodes < 2:
        raise InputError(f"nodes is {nodes!r}; expected 2 or more: one node cannot be apart from itself")
    count, repeated = count_up_to("requests", requests, 1_000_000), replication_count(replications)
    kept = ready_folder(folder)
    traffic = make_traffic(trace, workload, classes)
    if poisson:
        traffic = replace(traffic, workload=traffic.workload.with_arrivals(None))
    asked = plan(workload=traffic.workload, nodes=nodes, link=link, tbt=slo_tbt, disaggregate=True, **of_machine)
    found = mode_rates(
        asked, traffic, objective, requests=count, replications=repeated, seed=seed, folder=kept, progress=progress
    )
    assert asked.split is not None
    winner = max(found, key=lambda one: one.found.rate_per_s)
    by_program = asked.split.comparison.winner
    rows = [(one.mode, _words(one)) for one in found]
    answer = {
        "winner": winner.mode if winner.found.rate_per_s > 0 else None,
        "winner_by_program": by_program,
        "objective": {"ttft_p90_s": slo_ttft, "tbt_p99_s": slo_tbt},
        "modes": {one.mode: one.to_dict() for one in found},
    }
    setting = asked.setting
    where = f"{nodes} x {setting.model.name} on {setting.gpu.name}"
    notes = list(dict.fromkeys((*traffic.warnings, *asked.warnings, *(n for one in found for n in one.found.notes))))
    return analysis(
        "modes",
        question={"traffic": traffic.label, "arrivals": "poisson" if poisson else "recorded", "nodes": nodes,
                  "requests": count, "replications": repeated, "seed": seed, **setting.to_dict()},
        answer=answer,
        headline=f"{traffic.label} on {where}: " + (
            f"{winner.mode} carries most within the objective" if winner.found.rate_per_s > 0
            else "no mode meets the objective at any rate tried"),
        sections=[(f"TTFT p90 within {seconds(slo_ttft)}, TBT p99 within {seconds(slo_tbt)}", rows)],
        provenance={"iteration_time": setting.time.provenance, "gpu": setting.gpu.provenance,
                    "model": setting.model.provenance},
        warnings=notes,
    )  # fmt: skip


def _words(one: Any) -> str:
    ends = one.found.interval
    between = f" ({number(ends.low)} to {number(ends.high)})" if one.found.rate_per_s > 0 else ""
    return f"{number(one.found.rate_per_s)}/s{between}, program {number(one.program_per_s)}/s; {one.setting}"
