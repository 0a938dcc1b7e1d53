"""Eq. (4) and Theorem 2: batch time by tokens, and what it says of capacity and of tiles per batch."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.dai.setting import BATCH, DAI, PAPER, TIME
from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, digits

_LENGTHS = ((100, 100), (129, 112))


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece: closed forms."""
    return [{"part": "closed forms"}]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Batch times, token rates by tiles, capacities."""
    from tileq_theory.closed_forms import closed_form
    from tileq_theory.closed_forms.dai import best_tiles

    capacity = closed_form("dai_capacity")
    tokens = np.arange(1, settings["largest"] + 1, settings["step"])
    choice = best_tiles(launch_s=0.01128, tile_s=0.03547, tile_tokens=128, max_batch_tokens=BATCH)
    rate = closed_form("dai_tile_rate")
    return {
        "tokens": tokens,
        "times_ms": np.round(1e3 * np.asarray(TIME(tokens)), 6),
        "time_ms": {
            str(n): 1e3 * closed_form("dai_iteration_time").evaluate(**DAI, batch_tokens=n) for n in (128, 512)
        },
        "capacity_per_s": {
            f"{p}:{d}": capacity.evaluate(nodes=1, prefill_tokens=p, decode_tokens=d, **DAI, batch_tokens=BATCH)
            for p, d in _LENGTHS
        },
        "tile_rates_per_ms": [rate.evaluate(**DAI, tiles=j) / 1e3 for j in range(1, 9)],
        "limit_per_ms": closed_form("dai_best_rate").evaluate(tile_s=DAI["tile_s"], tile_tokens=128) / 1e3,
        "best_tiles": choice.tiles,
        "loss_percent": 100 * choice.loss_of_one_tile,
        "gain_percent": 100 * choice.gain_over_one_tile,
    }


def rows(data: Data) -> list[Row]:
    """Every printed number of the model."""
    d = data.results[0]
    gain = f"four tiles bring {d['gain_percent']:.1f} % over one; {d['loss_percent']:.1f} % is what one tile loses"
    return [
        digits("time of a batch of 512 tokens", "153.16 ms", d["time_ms"]["512"]),
        digits("time of a batch of 128 tokens", "46.75 ms", d["time_ms"]["128"]),
        digits("capacity at lengths (100, 100)", "16.7145 /s", d["capacity_per_s"]["100:100"]),
        digits("capacity at lengths (129, 112)", "13.8710 /s", d["capacity_per_s"]["129:112"]),
        digits("tokens per ms, one tile a batch", "2.738", d["tile_rates_per_ms"][0]),
        digits("tokens per ms, four tiles a batch", "3.343", d["tile_rates_per_ms"][3]),
        digits("one tile a batch against four", "18.1 %", d["loss_percent"], also=gain),
    ]


def plot(data: Data, plt: Any) -> Any:
    """Draw the staircase, and the token rate by tiles."""
    d = data.results[0]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.2, 3.6))
    left.step(d["tokens"], d["times_ms"], where="post", linewidth=1.6)
    left.set(
        xlabel="tokens in the batch", ylabel="batch time, ms", title="c + a ⌈n/128⌉", xlim=(0, None), ylim=(0, None)
    )
    tiles = range(1, len(d["tile_rates_per_ms"]) + 1)
    right.plot(tiles, d["tile_rates_per_ms"], "o-")
    right.axhline(d["limit_per_ms"], linestyle="--", color="#6b6b6b", linewidth=1.2)
    right.annotate("128/a", (8, d["limit_per_ms"]), textcoords="offset points", xytext=(0, -14), ha="right")
    right.set(xlabel="tiles per batch", ylabel="tokens per ms", title="A launch constant rewards larger batches")
    return figure


ITEM = Item(
    name="dai-batch-time",
    paper=PAPER,
    where="eq. (4), Theorem 2",
    claim="A batch costs a launch constant and a time per started tile of 128 tokens; capacity is b_max/t(b_max).",
    simulated="closed forms with the published constants; the batch times behind them are not public.",
    smoke={"largest": 1024, "step": 1},
    full={"largest": 1024, "step": 1},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
