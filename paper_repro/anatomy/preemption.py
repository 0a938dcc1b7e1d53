"""Recompute against swap: the gap that an eviction leaves, tokens computed twice, bytes moved."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.anatomy.setting import LAWS, SOURCE, config, draw, measures, run
from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, shape

_BYTES_PER_TOKEN = 131_072  # Llama-3.1-8B: 2 x 32 layers x 8 heads x 128 x 2 bytes


def pieces(settings: Any) -> list[dict[str, Any]]:
    """Recompute, and swap at several bandwidths."""
    modes = [{"mode": "recompute", "gbytes_per_s": 0.0}]
    modes += [{"mode": "swap", "gbytes_per_s": g} for g in settings["gbytes_per_s"]]
    return [{**m, "law": law, "replication": r} for m in modes for law in LAWS for r in range(settings["replications"])]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Return the gaps of requests that were preempted and of those that were not, and the two costs."""
    rng = np.random.default_rng([seed, piece["replication"]])
    requests = draw(piece["law"], 4.0, settings["requests"], rng)
    token_s = _BYTES_PER_TOKEN / (1e9 * piece["gbytes_per_s"]) if piece["mode"] == "swap" else 0.0
    done = run(requests, "vllm_v1", {}, config(piece["law"], preemption=piece["mode"], swap_token_s=token_s))
    hit = done.preemptions > 0
    gap = 1e-9 * done.max_gap_ps
    whole = float((requests.prompt_tokens + requests.output_tokens).sum())
    return {
        "preempted": float(hit.mean()),
        "gap_ms": [float(np.quantile(gap[hit], q)) for q in (0.5, 0.9)] if hit.any() else [0.0, 0.0],
        "usual_gap_ms": float(np.median(gap[~hit])),
        "tpot_p99_ms": 1e3 * measures(requests, done).tpot_p99_s,
        "computed_twice": float(done.recomputed_tokens.sum()) / whole,
        "gbytes_moved": float(done.swapped_tokens.sum()) * _BYTES_PER_TOKEN * 1e-9,
    }


def _mean(data: Data, law: str, mode: str, g: float, name: str) -> float:
    values = [
        r[name][0] if isinstance(r[name], list) else r[name] for r in data.where(law=law, mode=mode, gbytes_per_s=g)
    ]
    return float(np.mean(values))


def rows(data: Data) -> list[Row]:
    """An eviction shows as a gap many times the usual one; swap and recompute against each other."""
    found = []
    usual = min(data.settings["gbytes_per_s"], key=lambda g: abs(g - 25.0))
    for law in LAWS:
        again, before = (_mean(data, law, "recompute", 0.0, n) for n in ("gap_ms", "usual_gap_ms"))
        times = f"{before:.0f} ms of the others: {again / before:.1f} times"
        ours = f"median largest gap {again:.0f} ms of those preempted, {times}"
        # iterations and arrivals stretched together stretch every gap by the same factor: no second run is needed
        stretched = 40 * again / before
        why = f"shorter iterations here; all times stretched to the source's 40 ms, the gap is {stretched:.0f} ms"
        title = f"gap after an eviction, {law} lengths"
        found.append(shape(title, "40 ms become over 200 ms", again > 3 * before, ours, reason=why))
        moved = _mean(data, law, "swap", usual, "gap_ms")
        least = min(data.settings["gbytes_per_s"])
        slow = _mean(data, law, "swap", least, "gap_ms")
        ours = f"recompute {again:.0f} ms, swap {moved:.0f} ms at {usual:g} GB/s, {slow:.0f} ms at {least:g} GB/s"
        wider = [g for g in data.settings["gbytes_per_s"] if _mean(data, law, "swap", g, "gap_ms") > again]
        where = f"wider up to {max(wider):g} GB/s" if wider else "not wider at any tried"
        why = (
            f"bandwidth decides: {where}; a KV token moves in "
            f"{1e6 * _BYTES_PER_TOKEN / (1e9 * usual):.1f} us at {usual:g} GB/s, less than computing it again"
        )
        found.append(
            claim(f"gap under swap, {law} lengths", "wider than under recompute", moved > again, ours, reason=why)
        )
        twice = 100 * _mean(data, law, "recompute", 0.0, "computed_twice")
        bytes_moved = _mean(data, law, "swap", usual, "gbytes_moved")
        ours = f"{twice:.1f} % of all tokens computed twice; {bytes_moved:.0f} GB moved"
        found.append(
            claim(f"cost of either, {law} lengths", "computing twice, or bytes", twice > 0 and bytes_moved > 0, ours)
        )
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw the median gap after an eviction against the bandwidth of swapping."""
    figure, axes = plt.subplots()
    for law, colour in zip(LAWS, ("#0b3954", "#c8553d"), strict=True):
        speeds = data.settings["gbytes_per_s"]
        axes.plot(
            speeds, [_mean(data, law, "swap", g, "gap_ms") for g in speeds], "o-", color=colour, label=f"swap, {law}"
        )
        level = _mean(data, law, "recompute", 0.0, "gap_ms")
        axes.axhline(level, color=colour, linestyle="--", linewidth=1.3, label=f"recompute, {law}")
    axes.set(
        xlabel="bandwidth to the host, GB/s",
        ylabel="median largest gap of those preempted, ms",
        xscale="log",
        yscale="log",
    )
    axes.set_title("What an eviction costs")
    axes.legend()
    return figure


ITEM = Item(
    name="anatomy-preemption",
    paper=SOURCE,
    where="preemption: recompute against swap",
    claim="A preempted decode's next gap grows from 40 ms to beyond 200 ms, and further when its KV is swapped.",
    simulated="vLLM v1's loop, Llama-3.1-8B on an A100, KV memory nearly full; iterations are far shorter than 40 ms.",
    smoke={"requests": 500, "replications": 2, "gbytes_per_s": [1.0, 25.0]},
    full={"requests": 5000, "replications": 6, "gbytes_per_s": [0.5, 1.0, 2.0, 5.0, 10.0, 25.0, 50.0]},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
