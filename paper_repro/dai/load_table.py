"""Requests in system after 90 s at .75 of the boundary, by policy."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.dai.setting import BOUNDARY_TOKENS_PER_S, PAPER, POLICIES, TIME, settings_of, uniform_arrivals
from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import in_system, prediction_interval
from paper_repro.framework.verdict import Row, claim, within
from tileq_engine.intervals import paired_interval

_PRINTED = {"FasterTransformer": "941", "vLLM v0": "557", "Sarathi-Serve": "100", "Orca": "100"}
_LENGTHS = (129, 112)
_LOAD = 0.75


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a policy and replication."""
    return [{"policy": p, "replication": r} for p in _PRINTED for r in range(settings["replications"])]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Run one path and count who is in the system, over time."""
    from tileq_engine.registry import policy
    from tileq_engine.simulator import simulate

    horizon_s = settings["horizon_s"]
    rate = _LOAD * BOUNDARY_TOKENS_PER_S / sum(_LENGTHS)
    requests = uniform_arrivals(rate, horizon_s, _LENGTHS, np.random.default_rng([seed, piece["replication"]]))
    name, params = POLICIES[piece["policy"]]
    run = simulate(requests, policy(name, **params), TIME, settings_of(horizon_s))
    times = np.linspace(0.0, horizon_s, settings["points"])
    return {"arrivals": len(requests), "times_s": times, "in_system": in_system(run, times.tolist())}


def _last(data: Data, policy: str) -> list[float]:
    return [float(r["in_system"][-1]) for r in data.where(policy=policy)]


def rows(data: Data) -> list[Row]:
    """The printed run is one path: it must lie where one more path lies (99.9 %)."""
    found = []
    for name, printed in _PRINTED.items():
        interval = prediction_interval(_last(data, name), 0.999)
        reason = "more than 99.9 % of single paths lie elsewhere under these settings"
        found.append(
            within(
                f"in system after {data.settings['horizon_s']:g} s, {name}", printed, interval, reason=reason, tell=1.5
            )
        )
    gap = paired_interval(_last(data, "vLLM v0"), _last(data, "Sarathi-Serve"), 0.999)
    shown = f"{gap.estimate:.0f} more, [{gap.low:.0f}, {gap.high:.0f}] (99.9 %), same arrivals"
    found.append(
        claim(
            "vLLM v0 against Sarathi-Serve",
            "diverges where the other holds",
            gap.low > 0,
            shown,
            reason="too few paths to tell",
        )
    )
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw the mean and the range of all paths, with the printed numbers at the end."""
    figure, axes = plt.subplots()
    colours = dict(zip(_PRINTED, ("#c8553d", "#8f6c9f", "#0b3954", "#588b8b"), strict=True))
    dashes = dict(zip(_PRINTED, ("-", "-.", "-", "--"), strict=True))
    for name, printed in _PRINTED.items():
        runs = data.where(policy=name)
        times = runs[0]["times_s"]
        counts = np.array([run["in_system"] for run in runs])
        axes.fill_between(times, counts.min(axis=0), counts.max(axis=0), color=colours[name], alpha=0.15, linewidth=0)
        mean = counts.mean(axis=0)
        axes.plot(times, mean, color=colours[name], linestyle=dashes[name], label=name)
        axes.plot(times[-1], float(printed), marker="*", markersize=13, color=colours[name], clip_on=False, zorder=5)
    axes.plot([], [], "*", color="#6b6b6b", markersize=11, label="published")
    axes.set(xlabel="time, s", ylabel="requests in system", xlim=(0, times[-1]), ylim=(0, None))
    axes.set_title("Lengths (129, 112), arrivals at .75 of the boundary")
    axes.legend(loc="upper left")
    return figure


ITEM = Item(
    name="dai-load-table",
    paper=PAPER,
    where="section 5, load .75",
    claim="At .75 of the boundary FasterTransformer and vLLM (v0) are unstable where Orca and Sarathi-Serve hold.",
    simulated=(
        "the engine on the published batch time, Poisson arrivals, lengths (129, 112): two tiles a prompt. The printed "
        "numbers are of one path each, and are held against the interval in which one more path lies, not the mean's."
    ),
    smoke={"horizon_s": 90.0, "points": 31, "replications": 6},
    full={"horizon_s": 90.0, "points": 61, "replications": 20},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
