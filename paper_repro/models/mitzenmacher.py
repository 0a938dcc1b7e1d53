"""Mitzenmacher and Shahout: mean response of M/M/1 under size-based policies."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, digits, within
from tileq_engine.intervals import student_interval

_PRINTED = {
    "fifo": {0.5: "2.0000", 0.7: "3.3333", 0.9: "10.0000"},
    "sjf": {0.5: "1.7127", 0.7: "2.3122", 0.9: "4.1969"},
    "psjf": {0.5: "1.5314", 0.7: "2.0839", 0.9: "4.0518"},
    "srpt": {0.5: "1.4254", 0.7: "1.8746", 0.9: "3.5521"},
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The formula over loads, and the engine at those of the settings."""
    formula = [{"kind": "formula", "policy": p, "loads": sorted({*settings["loads"], 0.5, 0.7, 0.9})} for p in _PRINTED]
    return formula + [{"kind": "run", "policy": p, "load": x} for p in _PRINTED for x in settings["simulated"]]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return mean responses by the formula, or simulated ones."""
    if piece["kind"] == "formula":
        from tileq_theory.latency import ServiceLaw, mg1

        law = ServiceLaw.exponential(1.0)
        means = [mg1(piece["policy"], rate_per_s=x, service=law).response_s for x in piece["loads"]]
        return {"loads": piece["loads"], "response": means}
    from tileq_engine.queues import single_server

    discipline = "fcfs" if piece["policy"] == "fifo" else piece["policy"]
    tick_s = 1e-3 if discipline in ("psjf", "srpt") else 1e-6  # preemption waits for the end of a tick
    means = []
    for r in range(settings["replications"]):
        rng = np.random.default_rng([seed, r, int(100 * piece["load"])])
        count = settings["customers"]
        arrival, service = np.cumsum(rng.exponential(1 / piece["load"], count)), rng.exponential(1.0, count)
        run = single_server(arrival, service, discipline=discipline, tick_s=tick_s).run()
        means.append(float((run.finish_ps - run.arrival_ps)[count // 20 :].mean() * 1e-12))
    return {"response": means}


def rows(data: Data) -> list[Row]:
    """The printed table, and the simulation against it."""
    found = []
    for policy, row in _PRINTED.items():
        d = data.one(kind="formula", policy=policy)
        for load, printed in row.items():
            value = d["response"][d["loads"].index(load)]
            found.append(digits(f"{policy.upper()}, load {load}", printed, value))
    for policy, row in _PRINTED.items():
        for load in data.settings["simulated"]:
            seen = student_interval(data.one(kind="run", policy=policy, load=load)["response"], 0.99)
            why = "chance beyond 99 %"
            found.append(within(f"simulated {policy.upper()}, load {load}", row[load], seen, reason=why, tell=0.2))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw mean response against load."""
    figure, axes = plt.subplots()
    for (policy, row), dash in zip(_PRINTED.items(), ("-", "--", "-.", ":"), strict=True):
        d = data.one(kind="formula", policy=policy)
        (line,) = axes.plot(d["loads"], d["response"], linestyle=dash, label=policy.upper())
        axes.plot(list(row), [float(p) for p in row.values()], "*", markersize=11, color=line.get_color())
        for load in data.settings["simulated"]:
            seen = student_interval(data.one(kind="run", policy=policy, load=load)["response"], 0.99)
            axes.errorbar(load, seen.estimate, yerr=seen.half_width, color=line.get_color(), capsize=4)
    axes.set(xlabel="load", ylabel="mean response, mean services", yscale="log", title="M/M/1 (stars: published)")
    axes.legend()
    return figure


ITEM = Item(
    name="mitzenmacher-shahout",
    paper="Mitzenmacher, Shahout, arXiv 2503.07545",
    where="table of mean response, exponential service",
    claim="At load .9 FIFO responds in 10, SJF in 4.1969, PSJF in 4.0518 and SRPT in 3.5521 mean services.",
    simulated="the formulas, and the engine as these queues.",
    smoke={"loads": [0.3], "simulated": [0.5], "customers": 20_000, "replications": 6},
    full={
        "loads": [round(0.05 * k, 2) for k in range(2, 19)],
        "simulated": [0.5, 0.7, 0.9],
        "customers": 100_000,
        "replications": 10,
    },
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
