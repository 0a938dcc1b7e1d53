"""p99 TPOT by policy and length law at 4 requests/s: the arrows of the table as numbers."""

from __future__ import annotations

__all__ = ["ITEM"]

from dataclasses import asdict
from typing import Any

import numpy as np

from paper_repro.anatomy.setting import LAWS, SOURCE, TABLE, config, draw, measures, run
from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim
from tileq_engine.intervals import Interval, paired_interval

# label -> policy, settings, share of urgent requests
_POLICIES: dict[str, tuple[str, dict[str, Any], float]] = {
    "FCFS": ("vllm_v1", {}, 0.0),
    "SJF, exact": ("sjf", {}, 0.0),
    "SJF, error 0.5": ("sjf", {"predictor": "noise", "sigma": 0.5}, 0.0),
    "SJF, error 1": ("sjf", {"predictor": "noise", "sigma": 1.0}, 0.0),
    "SJF, error 2": ("sjf", {"predictor": "noise", "sigma": 2.0}, 0.0),
    "aging": ("aging", {}, 0.0),
    "priority": ("priority", {}, 0.5),
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a law, policy and replication; all policies see the same arrivals and lengths."""
    return [
        {"law": law, "policy": p, "replication": r}
        for law in LAWS
        for p in _POLICIES
        for r in range(settings["replications"])
    ]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return the measures of all requests, of the longest tenth, and of each priority class."""
    name, params, share = _POLICIES[piece["policy"]]
    rng = np.random.default_rng([seed, piece["replication"]])
    requests = draw(piece["law"], settings["rate"], settings["requests"], rng, high_share=share)
    done = run(requests, name, params, config(piece["law"]))
    long = requests.output_tokens >= np.quantile(requests.output_tokens, 0.9)
    found = {"all": asdict(measures(requests, done)), "long": asdict(measures(requests, done, long))}
    if share:
        found["high"] = asdict(measures(requests, done, requests.priority == 0))
        found["low"] = asdict(measures(requests, done, requests.priority == 1))
    return found


def _values(data: Data, law: str, policy: str, group: str = "all", name: str = "tpot_p99_s") -> list[float]:
    return [float(r[group][name]) for r in data.where(law=law, policy=policy)]


def _against(data: Data, law: str, policy: str, group: str = "all", name: str = "tpot_p99_s") -> Interval:
    """Interval of the logarithm of a measure over that of FCFS, run by run."""
    ours = np.log(_values(data, law, policy, group, name))
    other = np.log(_values(data, law, "FCFS", "all" if group in ("high", "low") else group, name))
    return paired_interval(ours.tolist(), other.tolist(), 0.95)


def _factor(interval: Interval) -> str:
    low, middle, high = (float(np.exp(x)) for x in (interval.low, interval.estimate, interval.high))
    return f"{middle:.3f} [{low:.3f}, {high:.3f}] of FCFS (95 %)"


def rows(data: Data) -> list[Row]:
    """The table's arrows, one by one."""
    found = []
    even, heavy = LAWS
    for law in LAWS:
        for policy, group, says in (
            ("SJF, exact", "all", "a little below FCFS" if law == even else "-"),
            ("SJF, error 1", "all", "above FCFS when predictions err" if law == heavy else "-"),
            ("priority", "high", "below FCFS"),
            ("priority", "low", "far above FCFS"),
        ):
            if says != "-":
                found.append(_arrow(data, law, policy, group, says))
    rise = paired_interval(
        np.log(_values(data, heavy, "FCFS")).tolist(), np.log(_values(data, even, "FCFS")).tolist(), 0.95
    )
    few = "too few runs to tell"
    ours = f"{np.exp(rise.estimate):.2f} [{np.exp(rise.low):.2f}, {np.exp(rise.high):.2f}] of the even p99 (95 %)"
    found.append(
        claim("FCFS, heavy-tailed against even lengths", "much larger p99", rise.low > np.log(1.3), ours, reason=few)
    )
    return found + _starvation(data)


def _arrow(data: Data, law: str, policy: str, group: str, says: str) -> Row:
    interval = _against(data, law, policy, group)
    good = {
        "a little below FCFS": interval.high < 0 and interval.estimate > np.log(0.7),
        "above FCFS when predictions err": interval.low > 0,
        "below FCFS": interval.high < 0,
        "far above FCFS": interval.low > np.log(1.3),
    }[says]
    waits = float(np.exp(_against(data, law, policy, group, "ttft_p99_s").estimate))
    errors = [float(np.exp(_against(data, law, f"SJF, error {e}").estimate)) for e in ("0.5", "1", "2")]
    reason = (
        "an order of the waiting queue reaches those who decode only through eviction, and misjudged long requests get "
        f"in no more often than under FCFS: p99 TPOT at errors .5, 1, 2 is {errors[0]:.3f}, {errors[1]:.3f}, "
        f"{errors[2]:.3f} of FCFS; p99 TTFT of this group is {waits:.2f} of FCFS"
    )
    label = policy if group == "all" else f"{group} priority"
    return claim(f"p99 TPOT, {law} lengths, {label}", says, good, _factor(interval), reason=reason)


def _starvation(data: Data) -> list[Row]:
    """Risk of starvation as the p99 wait for a first token, in the overloaded memory of heavy tails."""
    _, heavy = LAWS
    fcfs = np.mean(_values(data, heavy, "FCFS", "all", "ttft_p99_s"))
    long = np.mean(_values(data, heavy, "SJF, exact", "long", "ttft_p99_s"))
    low = np.mean(_values(data, heavy, "priority", "low", "ttft_p99_s"))
    high = np.mean(_values(data, heavy, "priority", "high", "ttft_p99_s"))
    classes = f"low priority {low:.1f} s, high {high:.1f} s"
    ours = f"p99 TTFT: FCFS {fcfs:.1f} s, longest tenth under SJF {long:.1f} s, {classes}"
    why = "memory is not full enough in these runs"
    good = high < fcfs < long < low
    return [
        claim(
            "starvation",
            "low for FCFS, high for long requests under SJF, very high for low priority",
            good,
            ours,
            reason=why,
        )
    ]


def plot(data: Data, plt: Any) -> Any:
    """Draw p99 TPOT of every policy, both laws, with the spread over replications."""
    figure, axes = plt.subplots(figsize=(8.6, 4.2))
    groups = [(p, "all") for p in _POLICIES if p != "priority"] + [("priority", "high"), ("priority", "low")]
    labels = [p if g == "all" else f"{g} priority" for p, g in groups]
    for k, (law, hatch) in enumerate(zip(LAWS, ("", "//"), strict=True)):
        values = [1e3 * np.array(_values(data, law, p, g)) for p, g in groups]
        places = [i + (k - 0.5) * 0.38 for i in range(len(groups))]
        means = [float(v.mean()) for v in values]
        spread = [[m - float(v.min()) for m, v in zip(means, values, strict=True)]]
        spread.append([float(v.max()) - m for m, v in zip(means, values, strict=True)])
        axes.bar(
            places, means, width=0.36, yerr=spread, hatch=hatch, edgecolor="white", label=f"{law} lengths", capsize=2
        )
    axes.set_xticks(range(len(groups)), labels, rotation=20, ha="right")
    axes.set(ylabel="p99 TPOT, ms", yscale="log", title="4 requests/s, memory nearly full (bars: range of runs)")
    axes.legend(loc="upper left")
    axes.grid(axis="x", visible=False)
    return figure


ITEM = Item(
    name="anatomy-tpot",
    paper=SOURCE,
    where=TABLE,
    claim="Priority shields the urgent and hurts the others; SJF helps even lengths, but not mispredicted heavy tails.",
    simulated="vLLM v1's loop, Llama-3.1-8B on an A100, KV memory nearly full; the source has arrows, no numbers.",
    smoke={"rate": 4.0, "requests": 600, "replications": 3},
    full={"rate": 4.0, "requests": 6000, "replications": 12},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
