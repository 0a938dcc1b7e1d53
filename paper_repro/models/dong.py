"""Dong and Cao: activation budgets per slot, their peak of KV memory, and the queues they leave."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import thinned
from paper_repro.framework.verdict import Row, claim, digits, within
from tileq_engine.intervals import student_interval

_CLASSES = ((10, 20), (10, 40), (10, 60))
_MEMORY, _BUDGET, _RATE = 16_492, 4, 3.0


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The formulas, and paths slot by slot at the printed rate and on either side of the capacity."""
    paths = [
        {"kind": "path", "rate": x, "replication": r}
        for x in settings["rates"]
        for r in range(settings["replications"])
    ]
    return [{"kind": "formula"}, *paths]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return the guarantees, or mean queue and peak memory of one path."""
    if piece["kind"] == "formula":
        return _formula()
    rng = np.random.default_rng([seed, piece["replication"], int(100 * piece["rate"])])
    return _path(piece["rate"], settings, rng)


def _formula() -> dict[str, Any]:
    from tileq_theory.flow_control import FlowClass, capacity_per_slot, flow_control, mean_queue

    classes = [FlowClass(*pair) for pair in _CLASSES]
    plan = flow_control(classes, rates_per_slot=[_RATE] * 3, budgets=[_BUDGET] * 3, kv_capacity_tokens=_MEMORY)
    return {
        "workload": sum(plan.workloads),
        "peak": plan.peak_kv_tokens,
        "capacity": capacity_per_slot(classes, kv_capacity_tokens=_MEMORY),
        "mean_queue": plan.mean_queues[0],
        "curve": [[x, mean_queue(x, _BUDGET)] for x in np.linspace(0.2, 3.9, 38).tolist()],
    }


def _path(rate: float, settings: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Activate at most b of each class a slot, first come first served; an active request gains a token a slot."""
    slots = settings["slots"]
    memory, means, series = np.zeros(slots), [], []
    for prompt, output in _CLASSES:
        come = rng.poisson(rate, slots)
        queue, waiting, started = 0, np.zeros(slots), np.zeros(slots)
        for t, new in enumerate(come.tolist()):
            started[t] = min(queue + new, _BUDGET)
            queue += new - int(started[t])
            waiting[t] = queue
        held = np.concatenate([np.arange(1, output + 1) + prompt])
        memory += np.convolve(started, held)[:slots]
        means.append(float(waiting[slots // 20 :].mean()))
        series.append(waiting)
    keep = thinned(slots, 120)
    return {"mean_queue": float(np.mean(means)), "peak": int(memory.max()), "waiting": np.sum(series, axis=0)[keep]}


def rows(data: Data) -> list[Row]:
    """Printed numbers, and paths against them."""
    d = data.one(kind="formula")
    runs = data.where(kind="path", rate=_RATE)
    seen = student_interval([r["mean_queue"] for r in runs], 0.99)
    peak = max(r["peak"] for r in data.where(kind="path"))
    over = max(data.settings["rates"])
    grown = min(float(r["waiting"][-1]) for r in data.where(kind="path", rate=over))
    return [
        digits("sum of workloads w", "4060", d["workload"]),
        digits("peak of KV with budgets of 4", "16,240", d["peak"]),
        digits("capacity per class and slot at M = 16,492", "4.06207", d["capacity"]),
        digits("mean queue at 3 arrivals a slot", "0.801", d["mean_queue"]),
        within("mean queue at 3 arrivals a slot, played out", "0.801", seen, reason="chance beyond 99 %", tell=0.2),
        claim("KV in use, all paths", "never above 16,240", peak <= d["peak"], f"at most {peak:,}"),
        claim(f"queues at {over:g} arrivals a slot", "grow without bound", grown > 100, f"{grown:.0f} wait at the end"),
    ]


def plot(data: Data, plt: Any) -> Any:
    """Draw the mean queue against the rate, and paths below and above the budget."""
    d = data.one(kind="formula")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.7))
    left.plot(*zip(*d["curve"], strict=True), label="E[Q], formula")
    left.plot(_RATE, 0.801, "*", markersize=13, label="published")
    left.set(xlabel="arrivals of a class per slot", ylabel="mean queue of a class", yscale="log", ylim=(1e-4, 100))
    left.set_title("Mean queue under a budget of 4")
    left.legend(loc="upper left")
    looks = (("#0b3954", "-"), ("#588b8b", "--"), ("#c8553d", "-."))
    for rate, (colour, dash) in zip(data.settings["rates"], looks, strict=False):
        for k, r in enumerate(data.where(kind="path", rate=rate)):
            times = np.linspace(0, data.settings["slots"], len(r["waiting"]))
            label = f"{rate:g} a slot" if k == 0 else None
            right.plot(times, r["waiting"], color=colour, linestyle=dash, linewidth=0.9, label=label)
    right.set(xlabel="slot", ylabel="waiting, all classes", yscale="symlog", title="Budgets of 4 a slot")
    right.legend(loc=(0.45, 0.52), fontsize=9)
    return figure


ITEM = Item(
    name="dong-flow-control",
    paper="Dong, Cao, arXiv 2604.11001",
    where="Proposition 3.2, inequality (2), three-class example",
    claim="Budgets of 4 activations a slot hold at most 16,240 KV tokens and leave a mean queue of .801 at rate 3.",
    simulated="the formulas, and the slots played out with Poisson arrivals.",
    smoke={"rates": [3.0, 4.5], "slots": 6000, "replications": 6},
    full={"rates": [3.0, 3.9, 4.5], "slots": 60_000, "replications": 8},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
