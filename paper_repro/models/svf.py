"""Kong et al.: smallest volume first on bursts, against its guarantee, other orders and a lower bound."""

from __future__ import annotations

__all__ = ["ITEM", "burst_latency"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, digits

_ORDERS = ("smallest volume", "shortest output", "shortest prompt", "as they come")


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a largest share of memory that a request may need."""
    return [{"alpha": alpha} for alpha in settings["alphas"]]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return guarantee and total latencies over the lower bound, for random bursts."""
    from tileq_theory.svf import competitive_ratio, svf_bounds, volume

    ratios: dict[str, list[float]] = {name: [] for name in _ORDERS}
    upper = []
    for burst in range(settings["bursts"]):
        rng = np.random.default_rng([seed, burst, int(100 * piece["alpha"])])
        p, o = _lengths(settings["requests"], piece["alpha"] * settings["memory"], rng)
        bounds = svf_bounds(p, o, kv_capacity_tokens=settings["memory"])
        keys = (volume(p, o), o, p, np.arange(p.size))
        for name, key in zip(_ORDERS, keys, strict=True):
            total = burst_latency(np.argsort(key, kind="stable"), p, o, settings["memory"])
            ratios[name].append(total / bounds.lower_steps)
        upper.append(bounds.svf_upper_steps / bounds.lower_steps)
    return {"guarantee": competitive_ratio(piece["alpha"]), "upper": upper, "ratios": ratios}


def _lengths(count: int, largest: float, rng: np.random.Generator) -> tuple[Any, Any]:
    """Lognormal prompts and outputs, cut so that no request needs more than the share of memory."""
    p = np.clip(rng.lognormal(4.0, 1.2, count), 1, 0.6 * largest).astype(np.int64)
    o = np.clip(rng.lognormal(4.0, 1.2, count), 1, 0.4 * largest).astype(np.int64)
    return p, o


def burst_latency(order: Any, prompts: Any, outputs: Any, memory: int) -> int:
    """Return the summed completion steps when requests start in this order, each as soon as memory lasts to its end.

    Examples
    --------
    >>> burst_latency(np.array([0, 1]), np.array([2, 2]), np.array([3, 3]), 7)
    9
    """
    used = np.zeros(int(outputs.sum()) + 1, dtype=np.int64)  # KV tokens in each step, by those started
    now, total = 0, 0
    for i in order.tolist():
        need = prompts[i] + np.arange(1, outputs[i] + 1)
        while True:
            over = np.flatnonzero(used[now : now + need.size] + need > memory)
            if over.size == 0:
                break
            now += 1  # one step later; everybody behind waits too
        used[now : now + need.size] += need
        total += now + int(outputs[i])
    return total


def rows(data: Data) -> list[Row]:
    """The guarantee's value, and that it holds burst by burst."""
    found = [digits("guarantee 1 + 2/(1 - alpha) at alpha = .5", "5", data.one(alpha=0.5)["guarantee"])]
    for alpha in data.settings["alphas"]:
        d = data.one(alpha=alpha)
        worst = max(d["ratios"]["smallest volume"])
        mean = {name: float(np.mean(values)) for name, values in d["ratios"].items()}
        others = ", ".join(f"{name} {value:.3f}" for name, value in mean.items())
        ours = f"{worst:.3f} at worst over a lower bound in {len(d['upper'])} bursts; means: {others}"
        title = f"smallest volume first, alpha {alpha}"
        found.append(claim(title, f"within {d['guarantee']:.3f} of the optimum", worst <= d["guarantee"], ours))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw guarantee and realised ratios against alpha."""
    alphas = data.settings["alphas"]
    figure, axes = plt.subplots()
    axes.plot(
        alphas, [data.one(alpha=a)["guarantee"] for a in alphas], color="#6b6b6b", label="guarantee 1 + 2/(1 - α)"
    )
    for name, dash, mark in zip(_ORDERS, ("-", "--", "-.", ":"), "o^sv", strict=True):
        means = [float(np.mean(data.one(alpha=a)["ratios"][name])) for a in alphas]
        axes.plot(alphas, means, linestyle=dash, marker=mark, markersize=5, label=name)
    axes.set(
        xlabel="largest request over memory, α",
        ylabel="total latency over lower bound",
        yscale="log",
        ylim=(0.97, None),
    )
    axes.set_title("Bursts under a memory limit")
    axes.legend()
    return figure


ITEM = Item(
    name="svf-bursts",
    paper="Kong et al., arXiv 2606.22327",
    where="Theorem 3.2",
    claim="Smallest volume first is within 1 + 2/(1 - alpha) of the least total latency of any burst.",
    simulated="bursts with lognormal lengths scheduled step by step, decodes only, as in the source's model.",
    smoke={"alphas": [0.2, 0.5], "requests": 60, "bursts": 3, "memory": 4000},
    full={"alphas": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], "requests": 200, "bursts": 20, "memory": 4000},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
