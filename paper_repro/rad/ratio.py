"""Off the optimal tile ratio one queue grows without bound, or the GPU runs half-empty tiles."""

from __future__ import annotations

__all__ = ["ITEM", "fixed_ratio_path"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim
from paper_repro.rad.setting import MEAN_PROMPT, PAPER, TILE, TIME, capacity_per_s, mean_output


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a ratio, relative to the optimum."""
    return [{"factor": f} for f in settings["factors"]]


def _optimum() -> float:
    return MEAN_PROMPT / mean_output()


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Serve in a fixed ratio at a rate close to lambda*; nothing adapts to the queues."""
    ratio = piece["factor"] * _optimum()
    share = ratio / (1 + ratio)
    rate = settings["load"] * capacity_per_s()
    found = [
        fixed_ratio_path(share, rate, settings["slots"], np.random.default_rng([seed, r]))
        for r in range(settings["replications"])
    ]
    return {name: [f[name] for f in found] for name in found[0]} | {"ratio": ratio, "fluid": _fluid(ratio)}


def _fluid(ratio: float) -> float:
    """Return requests per second that both stages can carry at a fixed ratio of prefill to decode tiles."""
    tiles_per_s = 1 / float(TIME(TILE))
    prefill, decode = tiles_per_s * ratio / (1 + ratio), tiles_per_s / (1 + ratio)
    return min(prefill * TILE / MEAN_PROMPT, decode * TILE / mean_output())


def fixed_ratio_path(share: float, rate_per_s: float, slots: int, rng: np.random.Generator) -> dict[str, Any]:
    """Play tiles: a share of them takes 128 prompt tokens of the oldest, the others give a token to 128 decodes.

    Returns, of the second half, what was served, how both queues grew, and the share of token places left empty.
    """
    slot_s = float(TIME(TILE))
    come = rng.poisson(rate_per_s * slot_s, slots).tolist()
    chunks = rng.integers(1, 9, int(slots * rate_per_s * slot_s * 1.3) + 100).tolist()
    outputs = np.minimum(np.floor(rng.exponential(200.0, len(chunks))) + 1, 512).astype(np.int64)
    left = np.zeros(4 * TILE, dtype=np.int64)  # tokens left of the decodes; grows when it must
    active, waiting, head, credit, finished, served, early = 0, 0, 0, 0.0, 0, 0, 0
    paths = []
    for t, new in enumerate(come):
        waiting += new
        credit += share
        if credit >= 1:
            credit -= 1
            if waiting:
                chunks[head] -= 1
                served += TILE
                if chunks[head] == 0:
                    if active == left.size:
                        left = np.concatenate([left, np.zeros_like(left)])
                    left[active] = outputs[head]
                    active, waiting, head = active + 1, waiting - 1, head + 1
        elif active:
            turn = min(active, TILE)
            left[:turn] -= 1
            served += turn
            keep = left[:active][left[:active] > 0]
            finished += active - keep.size
            # those served go to the end: everybody has his turn
            ends = int((left[:turn] > 0).sum())
            left[: keep.size] = np.concatenate([keep[ends:], keep[:ends]])
            active = keep.size
        if t == slots // 2:
            early, served = finished, 0
        if t % max(1, slots // 64) == 0:
            paths.append((waiting, active))
    half = len(paths) // 2
    span = slots / 2 * slot_s
    return {
        "served_per_s": (finished - early) / span,
        "prefill_growth_per_s": (paths[-1][0] - paths[half][0]) / span,
        "decode_growth_per_s": (paths[-1][1] - paths[half][1]) / span,
        "empty": 1 - served / (slots / 2 * TILE),
    }


def rows(data: Data) -> list[Row]:
    """At the optimum nothing grows; below it prompts wait, above it decodes pile up; throughput follows the fluid."""
    found = []
    rate = data.settings["load"] * capacity_per_s()
    for factor in data.settings["factors"]:
        d = data.one(factor=factor)
        prefill, decode = float(np.mean(d["prefill_growth_per_s"])), float(np.mean(d["decode_growth_per_s"]))
        served, empty = float(np.mean(d["served_per_s"])), 100 * float(np.mean(d["empty"]))
        carried = min(d["fluid"], rate)
        says = "both queues hold" if d["fluid"] > rate else "prompts pile up" if factor < 1 else "decodes pile up"
        grows = {"both queues hold": max(prefill, decode) < 0.03 * rate}
        grows |= {
            "prompts pile up": prefill > 0.4 * (rate - carried),
            "decodes pile up": decode > 0.4 * (rate - carried),
        }
        ours = (
            f"prompts {prefill:+.2f}/s, decodes {decode:+.2f}/s; {served:.2f}/s of {rate:.2f}/s served (fluid "
            f"{carried:.2f}); {empty:.1f} % of token places empty"
        )
        why = "too few tiles for the drift to show"
        good = grows[says] and abs(served - carried) < 0.06 * rate
        found.append(claim(f"ratio at {factor:g} of the optimum", says, good, ours, reason=why))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw throughput and growth against the ratio."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.4, 3.8))
    ratios = np.geomspace(0.15, 7.0, 200) * _optimum()
    left.plot(ratios, [_fluid(float(r)) for r in ratios], label="fluid: the slower stage")
    found = [data.one(factor=f) for f in data.settings["factors"]]
    left.plot([d["ratio"] for d in found], [np.mean(d["served_per_s"]) for d in found], "o", label="served")
    rate = data.settings["load"] * capacity_per_s()
    left.axhline(rate, color="#6b6b6b", linestyle="--", linewidth=1.2, label="offered")
    left.axvline(_optimum(), color="#c8553d", linestyle=":", label="optimal ratio")
    left.set(xscale="log", xlabel="prefill tiles per decode tile", ylabel="requests per second", ylim=(0, None))
    left.legend(fontsize=8.5, loc="lower center")
    for name, label, dash in (("prefill", "waiting for prefill", "o-"), ("decode", "decoding", "s--")):
        values = [np.mean(d[f"{name}_growth_per_s"]) for d in found]
        right.plot([d["ratio"] for d in found], values, dash, markersize=5, label=label)
    right.axvline(_optimum(), color="#c8553d", linestyle=":")
    right.set(xscale="log", xlabel="prefill tiles per decode tile", ylabel="growth, requests per second")
    right.legend()
    return figure


ITEM = Item(
    name="rad-ratio",
    paper=PAPER,
    where="optimal tiling: ratio of prefill to decode iterations",
    claim="Off the optimal ratio one queue grows without bound while the other stage's tiles run empty.",
    simulated="tiles of 128 tokens served in a fixed ratio on the reference instance; nothing adapts.",
    smoke={"factors": [0.5, 1.0, 2.0], "load": 0.9, "slots": 30_000, "replications": 1},
    full={
        "factors": [0.25, 0.4, 0.6, 0.8, 1.0, 1.25, 1.6, 2.5, 4.0],
        "load": 0.9,
        "slots": 150_000,
        "replications": 2,
    },
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
