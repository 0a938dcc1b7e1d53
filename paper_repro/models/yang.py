"""Yang et al.: what cutting answers at n_max tokens does to load and waiting."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, digits, within
from tileq_engine.intervals import student_interval

_MU, _SIGMA, _SECONDS, _RATE = 7.0, 0.7, 0.0225, 1 / 40
_PRINTED = {800: ("0.4017", "5.650"), 1600: ("0.6091", "22.319"), 3000: ("0.7336", "55.286")}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The formula over limits, and the engine at the printed ones."""
    limits = sorted({*settings["limits"], *_PRINTED})
    return [{"kind": "formula", "limits": limits}, *({"kind": "run", "limit": n} for n in _PRINTED)]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return loads and waits by the formula, or simulated mean waits."""
    if piece["kind"] == "formula":
        from tileq_theory.latency import TokenClipping

        model = TokenClipping.lognormal(_MU, _SIGMA, seconds_per_token=_SECONDS, rate_per_s=_RATE)
        found = [model.at(n) for n in piece["limits"]]
        return {
            "limits": piece["limits"],
            "load": [q.load for q in found],
            "waiting_s": [q.waiting_s for q in found],
            "lost_share": [q.lost_share for q in found],
        }
    from tileq_engine.queues import single_server

    means = []
    for r in range(settings["replications"]):
        rng = np.random.default_rng([seed, r, piece["limit"]])
        count = settings["customers"]
        service = _SECONDS * np.minimum(rng.lognormal(_MU, _SIGMA, count), piece["limit"])
        arrival = np.cumsum(rng.exponential(1 / _RATE, count))
        run = single_server(arrival, service).run()
        # the record's service is in whole ticks; waiting is response less that
        response = (run.finish_ps - run.arrival_ps) * 1e-12
        means.append(float((response - service)[count // 20 :].mean()))
    return {"waiting_s": means}


def rows(data: Data) -> list[Row]:
    """Load and wait at each printed limit."""
    d = data.one(kind="formula")
    found = []
    for limit, (load, wait) in _PRINTED.items():
        k = d["limits"].index(limit)
        value = d["waiting_s"][k]
        why = f"closed form and quadrature both give {value:.5f} s: the last printed digit is off by one"
        found.append(digits(f"load at n_max {limit}", load, d["load"][k]))
        found.append(digits(f"mean wait at n_max {limit}", f"{wait} s", value, reason=why))
        seen = student_interval(data.one(kind="run", limit=limit)["waiting_s"], 0.99)
        why = "chance beyond 99 %"
        found.append(within(f"simulated wait at n_max {limit}", f"{wait} s", seen, reason=why, tell=0.2))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw wait and lost tokens against the limit."""
    d = data.one(kind="formula")
    figure, axes = plt.subplots()
    axes.plot(d["limits"], d["waiting_s"], label="mean wait, formula")
    axes.plot(list(_PRINTED), [float(w) for _, w in _PRINTED.values()], "*", markersize=13, label="published")
    for limit in _PRINTED:
        seen = student_interval(data.one(kind="run", limit=limit)["waiting_s"], 0.99)
        axes.errorbar(limit, seen.estimate, yerr=seen.half_width, color="#6b6b6b", capsize=4)
    axes.set(
        xlabel="limit n_max, tokens", ylabel="mean wait, s", ylim=(0, None), title="Cutting few answers cuts waiting"
    )
    other = axes.twinx()
    other.plot(d["limits"], [100 * x for x in d["lost_share"]], "--", color="#8f6c9f")
    other.set_ylabel("tokens lost, % (dashed)")
    other.grid(False)
    axes.legend(loc="center right")
    return figure


ITEM = Item(
    name="yang-clipping",
    paper="Yang et al., arXiv 2407.05347",
    where="M/G/1 with max-token clipping",
    claim="Limits of 800, 1600 and 3000 tokens give loads .4017, .6091, .7336 and waits 5.650, 22.319, 55.286 s.",
    simulated="the closed form, and the engine as an M/G/1 queue with lognormal outputs.",
    smoke={"limits": [400, 1200, 4000], "customers": 20_000, "replications": 6},
    full={"limits": list(range(200, 6001, 200)), "customers": 90_000, "replications": 10},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
