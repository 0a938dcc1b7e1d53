"""SLO sizing by a state-dependent M/M/1/K: the largest rate under a TTFT limit, and the chain played out."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, digits, within
from tileq_engine.intervals import student_interval

_MODEL = (12, 0.05, 0.0005, 128, 512, 48, 128)  # alpha, beta, gamma (ms), n, m, B_max, Q
_TTFT_MS = 60.0
_PRINTED = {"rate_per_s": "2.94946 /s", "waiting_ms": "14.219 ms", "in_batch": "30.136", "itl_ms": "19.905 ms"}
_NAMES = {
    "rate_per_s": "largest rate with TTFT within 60 ms",
    "waiting_ms": "mean wait there, W",
    "in_batch": "mean batch there, X",
    "itl_ms": "mean time between tokens there, ITL",
}


def _model() -> Any:
    from tileq_theory.latency import SizingModel

    return SizingModel(*_MODEL)


def pieces(settings: Any) -> list[dict[str, Any]]:
    """Formula, and replications of the chain at the rate found."""
    return [{"kind": "formula"}, *({"kind": "run", "replication": r} for r in range(settings["replications"]))]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return the sizing point and a curve, or time averages of one path of the chain."""
    model = _model()
    best = model.largest_rate(ttft_ms=_TTFT_MS)
    if piece["kind"] == "formula":
        rates = np.linspace(0.05, 1.2, settings["points"]) * best.rate_per_s
        curve = [model.at(float(x)) for x in rates]
        return {
            **{name: getattr(best, name) for name in _PRINTED},
            "rates": rates,
            "ttft_ms": [p.ttft_ms for p in curve],
            "itl_curve_ms": [p.itl_ms for p in curve],
        }
    rng = np.random.default_rng([seed, piece["replication"]])
    return _path(model.service_rates_per_ms(), best.rate_per_s / 1000, settings["events"], rng)


def _path(service: Any, arrival: float, events: int, rng: np.random.Generator) -> dict[str, Any]:
    """Play the birth-death chain: mean number in batch, and mean wait by Little's law."""
    top, most = len(service), len(service) + _MODEL[-1]
    rates = [0.0, *(float(service[min(k, top) - 1]) for k in range(1, most + 1))]
    times, choices = rng.exponential(1.0, events).tolist(), rng.random(events).tolist()
    n, span, in_batch, waiting, served = 0, 0.0, 0.0, 0.0, 0
    for exponential, choice in zip(times, choices, strict=True):
        total = arrival + rates[n]
        dt = exponential / total
        span, in_batch, waiting = span + dt, in_batch + min(n, top) * dt, waiting + max(n - top, 0) * dt
        if choice * total < arrival:
            n = min(n + 1, most)
        else:
            n, served = n - 1, served + 1
    return {"in_batch": in_batch / span, "waiting_ms": waiting / served}


def rows(data: Data) -> list[Row]:
    """The printed point, and the chain's own averages."""
    d = data.one(kind="formula")
    found = [digits(_NAMES[name], printed, d[name]) for name, printed in _PRINTED.items()]
    for name in ("in_batch", "waiting_ms"):
        seen = student_interval([r[name] for r in data.where(kind="run")], 0.99)
        why = "chance beyond 99 %, or the start from an empty system"
        found.append(within(f"{_NAMES[name]}, played out", _PRINTED[name], seen, reason=why, tell=0.35))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw TTFT and ITL against the rate."""
    d = data.one(kind="formula")
    figure, axes = plt.subplots()
    axes.plot(d["rates"], d["ttft_ms"], label="TTFT")
    axes.plot(d["rates"], d["itl_curve_ms"], "--", label="ITL")
    axes.axhline(_TTFT_MS, color="#6b6b6b", linewidth=1.0, linestyle=":")
    rate = float(_PRINTED["rate_per_s"].split()[0])
    axes.plot([rate, rate], [_TTFT_MS, float(_PRINTED["itl_ms"].split()[0])], "*", markersize=13, label="published")
    axes.set(xlabel="requests per second", ylabel="ms", ylim=(0, 150), title="The largest rate under TTFT 60 ms")
    axes.legend(loc="upper left")
    return figure


ITEM = Item(
    name="slo-sizing",
    paper="Ramani and Tantawi, state-dependent M/M/1/K of llm-d queue-analysis",
    where="sizing example",
    claim="A replica with batches up to 48 carries 2.94946 requests/s with TTFT within 60 ms.",
    simulated="the closed form, and the birth-death chain played out.",
    smoke={"points": 24, "replications": 10, "events": 200_000},
    full={"points": 60, "replications": 10, "events": 1_000_000},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
