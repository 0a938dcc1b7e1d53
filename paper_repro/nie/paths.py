"""Fig. 2: the waiting queue over time at rates below and above the service rate, prompt:output 1:1."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import rounded, thinned
from paper_repro.framework.verdict import Row, claim
from paper_repro.nie.setting import KV_TOKENS, PAPER, ROWS, config, draw, policy_of

_BOUNDED, _GROWING = (1.0, 3.0), (5.0, 20.0, 50.0)
_FEW = 40  # requests; at .92 of the rate a burst may wait for a moment
_SLOW = "evicted requests are computed again, so that this policy carries less than the formula says"
_SHORT = "too short for the excess to show in every path"


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a rate and replication; the printed rates and two close to the boundary."""
    near = [f * settings["boundary"] for f in settings["near"]]
    return [
        {"rate": round(x, 4), "replication": r} for x in (*_BOUNDED, *near, *_GROWING) for r in range(settings["runs"])
    ]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return waiting requests over time and what was served in the second half."""
    from tileq_engine.simulator import simulate
    from tileq_theory.iteration_time import IterationTime

    horizon_s, rate = settings["horizon_s"], piece["rate"]
    count = int(rate * horizon_s * 1.2) + 50
    requests = draw("1:1", count, np.random.default_rng([seed, piece["replication"], int(1e4 * rate)]), rate)
    time = IterationTime.constant(float(ROWS["1:1"]["batch_s"]))
    run = simulate(requests, policy_of("sarathi"), time, config(stop_time_s=horizon_s, sample_limit=200_000))
    at = run.samples.start_ps * 1e-12
    keep = thinned(len(at), settings["points"])
    late = (run.finish_ps >= 0) & (run.finish_ps * 1e-12 > horizon_s / 2)
    half = at >= horizon_s / 2
    slope = float(np.polyfit(at[half], run.samples.waiting[half], 1)[0])
    return {
        "times_s": rounded(at[keep], 5),
        "waiting": run.samples.waiting[keep],
        "served_per_s": int(late.sum()) / (horizon_s / 2),
        "slope_per_s": slope,
        "memory_share": float(run.samples.kv_blocks_used[half].mean()) / KV_TOKENS,
    }


def rows(data: Data) -> list[Row]:
    """Every path at a bounded rate ends with next to nobody waiting, at the others grows by what is not served."""
    found = []
    boundary = data.settings["boundary"]
    for rate in sorted({p["rate"] for p in data.pieces}):
        seen = data.where(rate=rate)
        slopes, last = [r["slope_per_s"] for r in seen], [r["waiting"][-1] for r in seen]
        served = np.mean([r["served_per_s"] for r in seen])
        title = f"queue at {rate:g}/s ({rate / boundary:.2f} of the formula's rate)"
        ours = (
            f"growth {min(slopes):.3f} to {max(slopes):.3f}/s in {len(seen)} paths, at most {max(last)} wait at the end"
        )
        if rate <= boundary:
            found.append(claim(title, "bounded", max(last) < _FEW, ours, reason=_SLOW))
        else:
            ours += f"; {served:.2f}/s served"
            found.append(claim(title, "grows linearly", min(slopes) > 0.5 * (rate - boundary), ours, reason=_SHORT))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw the waiting queue of every path, one panel below and one above the service rate."""
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 3.8))
    rates = sorted({p["rate"] for p in data.pieces})
    dashes = ("-", "--", "-.", ":", (0, (5, 1, 1, 1)), (0, (1, 1)), "-")
    for axes, above in zip(panels, (False, True), strict=True):
        shown = [x for x in rates if (x > data.settings["boundary"]) == above]
        for rate, dash, colour in zip(shown, dashes, ("#0b3954", "#c8553d", "#588b8b", "#8f6c9f"), strict=False):
            for k, r in enumerate(data.where(rate=rate)):
                label = f"{rate:g}/s" if k == 0 else None
                axes.plot(
                    r["times_s"], r["waiting"], linestyle=dash, color=colour, linewidth=1.2, alpha=0.7, label=label
                )
        axes.set(
            xlabel="time, s", title="above the service rate" if above else "below the service rate", ylim=(0, None)
        )
        axes.legend()
    panels[1].set_yscale("symlog", linthresh=100)
    for axes in panels:
        axes.set_ylabel("requests waiting")
    return figure


ITEM = Item(
    name="nie-paths",
    paper=PAPER,
    where="Figure 2",
    claim="At 1 and 3 requests/s the queue stays bounded, at 5, 20 and 50 it grows linearly.",
    simulated="chunked prefill mixed with decodes, constant batch time, 131,000 KV tokens; an A100 in the source.",
    smoke={"horizon_s": 400.0, "runs": 2, "points": 60, "boundary": 3.2632, "near": [1.25]},
    full={"horizon_s": 3000.0, "runs": 5, "points": 100, "boundary": 3.2632, "near": [0.95, 1.05]},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
