"""Theorem 2: work-conserving policies carry b_max/t(b_max) tokens, and beyond it work grows by the difference."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.dai.setting import BATCH, BOUNDARY_TOKENS_PER_S, PAPER, POLICIES, TIME, settings_of, uniform_arrivals
from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import rounded
from paper_repro.framework.verdict import Row, claim, digits, within
from tileq_engine.intervals import student_interval

_CONSERVING = ("Sarathi-Serve", "Orca", "vLLM v1")
_PRINTED = {1.1: "0.3343", 1.2: "0.6686"}
_LENGTHS = (100, 100)
_IDLE = "not every batch was full yet: the run is too short for its backlog"


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a policy and load."""
    return [{"policy": p, "load": load} for p in settings["policies"] for load in settings["loads"]]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Replicate one policy at one load: slope of the work left, and what was served, over the second part of a run."""
    paths = [_path(settings, piece, [seed, r]) for r in range(settings["replications"])]
    return {name: rounded([p[name] for p in paths], 12) for name in paths[0]}


def _path(settings: Any, piece: Any, seed: list[int]) -> dict[str, float]:
    from tileq_engine.registry import policy
    from tileq_engine.simulator import simulate

    begin_s, end_s = settings["begin_s"], settings["end_s"]
    rate = piece["load"] * BOUNDARY_TOKENS_PER_S / sum(_LENGTHS)
    requests = uniform_arrivals(rate, end_s, _LENGTHS, np.random.default_rng(seed))
    name, params = POLICIES[piece["policy"]]
    slots = BATCH if name == "vllm_v1" else 100_000
    config = settings_of(end_s, sample_limit=1_000_000, max_num_seqs=slots)
    samples = simulate(requests, policy(name, **params), TIME, config).samples
    start = samples.start_ps * 1e-12
    inside = np.flatnonzero((start >= begin_s) & (start < end_s))
    begin, end = inside[[0, -1]]
    span_ms = 1000 * (start[end] - start[begin])
    arrival_s = requests.arrival_ps * 1e-12
    arrived = int(((arrival_s > start[begin]) & (arrival_s <= start[end])).sum()) * sum(_LENGTHS)
    growth = int(samples.work_tokens[end] - samples.work_tokens[begin])
    return {
        "slope_per_ms": growth / span_ms,
        "arrived_per_ms": arrived / span_ms,
        "served_per_ms": (arrived - growth) / span_ms,
    }


def rows(data: Data) -> list[Row]:
    """Slope on average, slope of each path given its arrivals, throughput of a policy that is not work-conserving."""
    found: list[Row] = []
    level = 1 - 0.01 / (len(_PRINTED) * len(_CONSERVING))  # all slopes hold at once in 99 sets of 100
    for load, printed in _PRINTED.items():
        nominal = load * BOUNDARY_TOKENS_PER_S / 1000
        for name in _CONSERVING:
            d = data.one(policy=name, load=load)
            title = f"growth of work at load {load}, {name}, tokens/ms"
            interval = student_interval(d["slope_per_ms"], level)
            found.append(within(title, printed, interval, reason="chance of the arrivals, beyond the stated level"))
            given = [s + nominal - a for s, a in zip(d["slope_per_ms"], d["arrived_per_ms"], strict=True)]
            worst = max(given, key=lambda g: abs(g - float(printed)))
            found.append(digits(f"{title}, at exactly the nominal arrivals, worst path", printed, worst, reason=_IDLE))
    found.extend(_others(data))
    return found


def _others(data: Data) -> list[Row]:
    full = BOUNDARY_TOKENS_PER_S / 1000
    top = max(data.settings["loads"])
    found = []
    for name in data.settings["policies"]:
        served = student_interval(data.one(policy=name, load=top)["served_per_ms"], 0.99)
        share = 100 * served.estimate / full
        shown = f"{share:.2f} % of b_max/t(b_max) served at load {top}"
        if name in _CONSERVING:
            found.append(claim(f"{name} is throughput-optimal", "yes", abs(share - 100) < 0.01, shown, reason=_IDLE))
        else:
            found.append(
                claim(
                    f"{name} is throughput-optimal",
                    "no",
                    100 * served.high / full < 99,
                    shown,
                    reason="too few paths to tell",
                )
            )
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw what is served against the load offered, policy by policy."""
    figure, axes = plt.subplots()
    loads = data.settings["loads"]
    marks = dict(zip(data.settings["policies"], "o^Ds*v", strict=False))
    for name in data.settings["policies"]:
        served = [student_interval(data.one(policy=name, load=x)["served_per_ms"]) for x in loads]
        full = BOUNDARY_TOKENS_PER_S / 1000
        axes.plot(loads, [s.estimate / full for s in served], marker=marks[name], label=name, alpha=0.85)
    axes.plot([min(loads), 1, max(loads)], [min(loads), 1, 1], color="#6b6b6b", linestyle="--", linewidth=1.2, zorder=0)
    axes.set(xlabel="offered load λ(m_p + m_d) t/b_max", ylabel="served, share of b_max/t(b_max)")
    axes.set_title("Work-conserving policies serve all that can be served")
    axes.legend(loc="center left", bbox_to_anchor=(0.0, 0.3))
    return figure


_POLICIES = ["Sarathi-Serve", "Orca", "vLLM v1", "vLLM v0", "FasterTransformer"]
ITEM = Item(
    name="dai-throughput",
    paper=PAPER,
    where="Theorem 2, section 5",
    claim="Orca and Sarathi-Serve are throughput-optimal; vLLM (v0) and FasterTransformer are not.",
    simulated="the engine on the published batch time, Poisson arrivals, lengths (100, 100).",
    smoke={"policies": _POLICIES, "loads": [1.1, 1.2], "begin_s": 150.0, "end_s": 200.0, "replications": 3},
    full={
        "policies": _POLICIES,
        "loads": [0.5, 0.7, 0.9, 1.0, 1.1, 1.2],
        "begin_s": 200.0,
        "end_s": 500.0,
        "replications": 20,
    },
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
