"""Section 5.4: two engines, two opposite agent routes; serving the long exit steps first starves both in turn."""

from __future__ import annotations

__all__ = ["ITEM", "simulate_path"]

from typing import Any

import numpy as np

from paper_repro.dai.setting import PAPER
from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import prediction_interval, rounded, thinned
from paper_repro.framework.verdict import Row, claim, within

_BATCH, _FIRST, _EXIT = 768, 64, 544  # tokens of a batch of 1 s; prompt and output of the first and the last step
_RATE = 0.9 * _BATCH / (_FIRST + _EXIT)
_START = 20_000.0
_STEPS = ("ab.1", "ab.2", "ba.1", "ba.2")
_ORDERS = {"exit first": ["ab.2", "ba.2", "ab.1", "ba.1"], "entry first": ["ab.1", "ba.1", "ab.2", "ba.2"]}
_PEAKS = ("85,000", "340,000", "1,400,000")


def pieces(settings: Any) -> list[dict[str, Any]]:
    """The fluid once an order, and simulated paths one by one."""
    fluid = [{"order": order, "kind": "fluid"} for order in _ORDERS]
    paths = [
        {"order": order, "kind": "path", "replication": r} for order in _ORDERS for r in range(settings["replications"])
    ]
    return fluid + paths


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return total and waiting queues over time."""
    if piece["kind"] == "fluid":
        return _fluid(settings, piece["order"])
    rng = np.random.default_rng([seed, piece["replication"]])
    seconds = settings["seconds"][piece["order"]]
    queues, times = simulate_path(rng, seconds, exit_first=piece["order"] == "exit first")
    peaks = _cycle_peaks(queues[:, 0], queues[:, 2])
    keep = thinned(len(times), settings["points"])
    return {
        "times_s": times[keep],
        "entry": queues[keep][:, [0, 2]].T,
        "peaks": peaks,
        "most": int(queues.sum(1).max()),
    }


def _fluid(settings: Any, order: str) -> dict[str, Any]:
    from tileq_theory.networks import fluid_path, rybko_stolyar

    network = rybko_stolyar(rate_per_s=_RATE)
    path = fluid_path(network, _ORDERS[order], {"ab.1": _START}, growth_limit=80)
    peaks = sorted(np.concatenate([path.peaks(0), path.peaks(2)]).tolist())
    most = float(path.total.max())
    entry = path.queues[:, [0, 2]].T
    return {
        "times_s": rounded(path.times_s),
        "entry": rounded(entry),
        "peaks": peaks[:3],
        "most": most,
        "end": path.end,
    }


def simulate_path(rng: np.random.Generator, seconds: int, *, exit_first: bool) -> tuple[Any, Any]:
    """Serve 768 tokens an engine and second by priority; sizes geometric, so that a token ends its step w.p. 1/mean.

    Returns the queues of ab.1, ab.2, ba.1, ba.2 after each 64 seconds, and those times.
    """
    block = 64
    # by engine: first steps of its own route, exit steps of the other's; engine A serves ab.1 and ba.2
    first, last = [int(_START), 0], [0, 0]
    kept = [(first[0], last[1], first[1], last[0])]
    for _ in range(seconds // block):
        come = rng.poisson(_RATE, (block, 2)).tolist()
        ends_first = rng.binomial(_BATCH, 1 / _FIRST, (block, 2)).tolist()
        ends_exit = rng.binomial(_BATCH, 1 / _EXIT, (block, 2)).tolist()
        for new, of_first, of_exit in zip(come, ends_first, ends_exit, strict=True):
            done = [0, 0]
            for e in (0, 1):
                # the class ahead gets the batch up to its queue, the other the share of it that is left
                ahead, most = (last[e], of_exit[e]) if exit_first else (first[e], of_first[e])
                served = ahead if ahead < most else most
                left = 1.0 - served / most if most else 0.0 if ahead else 1.0
                if exit_first:
                    done[e], gone = min(first[e], round(left * of_first[e])), served
                else:
                    done[e], gone = served, min(last[e], round(left * of_exit[e]))
                last[e] -= gone
            for e in (0, 1):
                first[e] += new[e] - done[e]
                last[1 - e] += done[e]
        kept.append((first[0], last[1], first[1], last[0]))
    return np.array(kept), np.arange(len(kept)) * float(block)


def _cycle_peaks(first: Any, second: Any) -> list[int]:
    """Return the largest entry queue of each half-cycle: between two moments at which the other one takes over."""
    leader = first >= second
    turns = np.flatnonzero(leader[1:] != leader[:-1]) + 1
    parts = np.split(np.maximum(first, second), turns)
    peaks = [int(p.max()) for p in parts if p.size > 8]
    grown = [p for p in peaks[1:] if p > 1.5 * _START]
    return grown[:3]


def rows(data: Data) -> list[Row]:
    """Peaks of the fluid to two digits, paths against printed peaks, and the other order."""
    bad, good = (data.one(kind="fluid", order=o) for o in _ORDERS)
    paths = data.where(kind="path", order="exit first")
    found: list[Row] = []
    for k, printed in enumerate(_PEAKS):
        value = float(printed.replace(",", ""))
        ratio = bad["peaks"][k] / value
        found.append(
            claim(f"peak {k + 1} of the fluid", f"near {printed}", abs(ratio - 1) < 0.04, f"{bad['peaks'][k]:,.0f}")
        )
        seen = [float(p["peaks"][k]) for p in paths if len(p["peaks"]) > k]
        if len(seen) >= 3:
            row = within(f"peak {k + 1} of simulated paths", printed.replace(",", ""), prediction_interval(seen, 0.99))
            found.append(Row(row.quantity, f"near {printed}", row.ours, *_near(row, value)))
    most = max(p["most"] for p in data.where(kind="path", order="entry first"))
    found.append(
        claim(
            "entry first, fluid",
            "stays near 22,000",
            abs(good["most"] / 22e3 - 1) < 0.01,
            f"{good['most']:,.0f} at most, then {good['end']}",
        )
    )
    found.append(
        claim(
            "entry first, simulated", "stays near 22,000", abs(most / 22e3 - 1) < 0.03, f"{most:,} at most in all paths"
        )
    )
    return found


def _near(row: Row, value: float) -> tuple[str, str]:
    """A peak "near" a rounded number: within 4 % of it, as for the fluid."""
    good = row.value is not None and abs(row.value / value - 1) < 0.04
    return ("reproduced", "") if good else ("not reproduced", "the paths' mean is further than 4 % off")


def plot(data: Data, plt: Any) -> Any:
    """Draw the entry queues under both orders: fluid lines, simulated paths thin."""
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.8))
    for axes, order in zip(panels, _ORDERS, strict=True):
        fluid = data.one(kind="fluid", order=order)
        for k, (name, colour, dash) in enumerate((("ab.1", "#0b3954", "-"), ("ba.1", "#c8553d", "--"))):
            for path in data.where(kind="path", order=order):
                axes.plot(path["times_s"], path["entry"][k], color=colour, linewidth=0.8, alpha=0.35)
            axes.plot(fluid["times_s"], fluid["entry"][k], color=colour, linestyle=dash, label=f"waiting at {name}")
        last = max(p["times_s"][-1] for p in data.where(kind="path", order=order))
        top = max(max(max(e) for e in p["entry"]) for p in data.where(kind="path", order=order))
        axes.set(title=f"{order} (thick: fluid)", xlabel="time, s", xlim=(0, last), ylim=(0, 1.15 * top))
        axes.ticklabel_format(axis="both", style="sci", scilimits=(0, 4))
    for axes in panels:
        axes.set_ylabel("requests waiting")
    panels[0].legend(loc="upper left")
    return figure


ITEM = Item(
    name="dai-rybko-stolyar",
    paper=PAPER,
    where="section 5.4",
    claim="Work-conserving engines in a network at load .9 diverge when exit steps go first, not when entry steps do.",
    simulated=(
        "the exact fluid, and paths of 768 tokens an engine and second with geometric sizes; 20,000 requests wait "
        "at the start."
    ),
    smoke={"replications": 3, "points": 60, "seconds": {"exit first": 400_000, "entry first": 8_000}},
    full={"replications": 6, "points": 160, "seconds": {"exit first": 1_700_000, "entry first": 8_000}},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
