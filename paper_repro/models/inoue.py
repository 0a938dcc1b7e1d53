"""Inoue: mean response of dynamic batching on a V100, exact, bounded and simulated."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, digits, within
from tileq_engine.intervals import student_interval

_ALPHA, _TAU0 = 0.1438, 1.8874  # ms a request and ms a batch
_PRINTED = {0.3: "4.2248", 0.5: "5.9019", 0.7: "9.8176"}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The exact chain and the engine at each load."""
    curve = [{"kind": "exact", "load": x} for x in sorted({*settings["loads"], *_PRINTED})]
    return curve + [{"kind": "run", "load": x} for x in _PRINTED]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return mean response and bounds, ms, or simulated means of replications."""
    rate = piece["load"] / _ALPHA
    if piece["kind"] == "exact":
        from tileq_theory.latency import batch_queue, batch_response_bounds

        queue = batch_queue(rate_per_s=rate, service=(_ALPHA, _TAU0))
        bounds = batch_response_bounds(rate_per_s=rate, alpha_s=_ALPHA, tau0_s=_TAU0)
        return {"response_ms": queue.response_s, "mean_batch": queue.mean_batch, "bounds_ms": list(bounds)}
    from tileq_engine.queues import dynamic_batching

    means = []
    for r in range(settings["replications"]):
        rng = np.random.default_rng([seed, r, int(100 * piece["load"])])
        arrival_s = 1e-3 * np.cumsum(rng.exponential(1 / rate, settings["customers"]))
        run = dynamic_batching(arrival_s, alpha_s=1e-3 * _ALPHA, tau0_s=1e-3 * _TAU0).run()
        warm = settings["customers"] // 20
        means.append(float((run.finish_ps - run.arrival_ps)[warm:].mean() * 1e-9))
    return {"response_ms": means}


def rows(data: Data) -> list[Row]:
    """The printed means, exact and simulated, below the printed bound."""
    found = []
    for load, printed in _PRINTED.items():
        d = data.one(kind="exact", load=load)
        found.append(digits(f"mean response at load {load}", f"{printed} ms", d["response_ms"]))
        seen = student_interval(data.one(kind="run", load=load)["response_ms"], 0.99)
        why = "chance beyond 99 %, or the start of the run"
        found.append(within(f"simulated, load {load}", f"{printed} ms", seen, reason=why, tell=0.1))
        bound = min(d["bounds_ms"])
        good = d["response_ms"] <= bound
        found.append(claim(f"upper bound min(phi0, phi1) at load {load}", "above the mean", good, f"{bound:.4f} ms"))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw the mean and both bounds against the load."""
    loads = sorted({*data.settings["loads"], *_PRINTED})
    found = [data.one(kind="exact", load=x) for x in loads]
    figure, axes = plt.subplots()
    axes.plot(loads, [d["response_ms"] for d in found], label="exact")
    axes.plot(loads, [d["bounds_ms"][0] for d in found], "--", label="φ0")
    axes.plot(loads, [d["bounds_ms"][1] for d in found], "-.", label="φ1")
    axes.plot(list(_PRINTED), [float(p) for p in _PRINTED.values()], "*", markersize=13, label="published")
    for load in _PRINTED:
        seen = student_interval(data.one(kind="run", load=load)["response_ms"], 0.99)
        axes.errorbar(load, seen.estimate, yerr=seen.half_width, color="#6b6b6b", capsize=4)
    axes.set(xlabel="load λα", ylabel="mean response, ms", yscale="log", title="Dynamic batching, V100")
    axes.legend()
    return figure


ITEM = Item(
    name="inoue-batching",
    paper="Inoue, arXiv 1912.06322",
    where="mean response of the V100 example and its bound",
    claim="A server that takes all that wait, B of them in alpha B + tau0, responds in 4.2248 ms at load .3.",
    simulated="the exact chain, and the engine as that queue.",
    smoke={"loads": [0.1, 0.9], "customers": 30_000, "replications": 6},
    full={"loads": [round(0.05 * k, 2) for k in range(1, 19)], "customers": 200_000, "replications": 10},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
