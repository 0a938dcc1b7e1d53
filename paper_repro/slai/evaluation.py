"""The evaluation's curves: TTFT and p99 TBT of each tier against the rate, eight policies, two metric conventions."""

from __future__ import annotations

__all__ = ["ITEM"]

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.statistics import rounded
from paper_repro.framework.verdict import Row, claim, shape
from paper_repro.slai.gains import log_ratio, percent
from paper_repro.slai.serving import LIMITS_S, POLICIES, SARATHI, SLAI, TTFT_MEDIAN_S, lengths_at_hand, serve
from paper_repro.slai.setting import PAPER
from paper_repro.slai.variants import AUTHORS, ENGINE, variants

_CONVENTIONS = (AUTHORS, ENGINE)
_PAYING = "paying_ttft_p50_s"
_PRINTED_DROP = -53.0
_TELL = 0.02  # a median that differs by less is neither lower nor higher
_FIXED = ("SLAI SPF, fixed", "SLAI FCFS, fixed")
_PANELS = {
    "ttft_p50_s": "median TTFT, s",
    "ttft_p99_s": "p99 TTFT, s",
    "ttft_mean_s": "mean TTFT, s",
    "paying": "p99 TBT, paying, s",
    "standard": "p99 TBT, others, s",
}
_STYLES = {
    "vLLM": ("#6b6b6b", ":"),
    "Orca": ("#b08900", (0, (1, 3))),
    "Sarathi-Serve FCFS": ("#c8553d", "-"),
    "Sarathi-Serve SPF": ("#c8553d", "--"),
    "SLAI FCFS, fixed": ("#588b8b", (0, (8, 2))),
    "SLAI SPF, fixed": ("#588b8b", "-."),
    "SLAI SPF, dynamic": ("#0b3954", "-"),
    "SLAI SPF, dynamic, user priority": ("#8f6c9f", (0, (5, 1, 1, 1))),
}


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a convention, policy and rate; the lengths are named, so that pieces of others are not taken up."""
    return [
        {"convention": c, "policy": p, "rate": r, "lengths": lengths_at_hand()}
        for c in _CONVENTIONS
        for p in POLICIES
        for r in settings["rates"]
    ]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Serve every replication; each number is a list over replications, null where nothing was measured."""
    setting = {**variants()["convention"][piece["convention"]], "lengths": piece["lengths"]}
    found: dict[str, list[float | None]] = {}
    for replication in range(settings["replications"]):
        run = asdict(serve(piece["policy"], piece["rate"], settings["horizon_s"], setting, seed, replication))
        for name, value in {**run, **run["tbt_p99_s"]}.items():
            if name != "tbt_p99_s":
                found.setdefault(name, []).append(rounded(value) if math.isfinite(value) else None)
    return found


def _values(data: Data, convention: str, policy: str, rate: float, name: str) -> list[float]:
    found = data.one(convention=convention, policy=policy, rate=rate)[name]
    return [math.nan if v is None else float(v) for v in found]


def _gain(data: Data, policy: str, other: str, rate: float, name: str = "ttft_p50_s") -> Any:
    return log_ratio(_values(data, AUTHORS, policy, rate, name), _values(data, AUTHORS, other, rate, name))


def _less_row(data: Data, quantity: str, policy: str, other: str, name: str = "ttft_p50_s") -> Row:
    """Hold that a policy's median TTFT is below another's wherever it can be told; say where it is and is not."""
    gains = {rate: _gain(data, policy, other, rate, name) for rate in data.settings["rates"]}
    shown = ", ".join(f"{percent(g).estimate:+.0f} % at {rate:g}" for rate, g in gains.items())
    higher = [f"{rate:g}" for rate, g in gains.items() if g.low > 0.0 and g.estimate > _TELL]
    lower = [f"{rate:g}" for rate, g in gains.items() if g.high < 0.0 and g.estimate < -_TELL]
    reason = f"higher at {', '.join(higher)}/s" if higher else "no rate at which the two can be told apart"
    return claim(quantity, "lower", bool(lower) and not higher, shown, reason=reason)


def _crossing_row(data: Data) -> Row:
    """Find the rate at which SLAI's median TTFT is lower by the printed share, between rates of the grid."""
    rates = sorted(data.settings["rates"])
    drops = [percent(_gain(data, SLAI, SARATHI, rate)).estimate for rate in rates]
    place = next((k for k, d in enumerate(drops) if d <= _PRINTED_DROP), -1)
    quantity = "rate from which on median TTFT falls by the printed share"
    if place < 0:
        deepest = f"{min(drops):+.0f} % at most, up to {rates[-1]:g}/s"
        return claim(quantity, "-53 % at a rate not named", False, deepest, reason="no rate of the range goes so far")
    low = max(place - 1, 0)
    at = float(np.interp(-_PRINTED_DROP, [-drops[low], -drops[place]], [rates[low], rates[place]]))
    shown = f"{at:.2f}/s ({drops[low]:+.0f} % at {rates[low]:g}/s, {drops[place]:+.0f} % at {rates[place]:g}/s)"
    reason = "the source names no rate, and near overload any drop is reached somewhere: the rate is what is new here"
    return shape(quantity, "-53 % at a rate not named", True, shown, reason=reason)


def _last_within(data: Data, policy: str, tier: str) -> float:
    """Return the largest rate up to which the mean over replications of a tier's p99 TBT is within its limit."""
    last = 0.0
    for rate in sorted(data.settings["rates"]):
        if not np.nanmean(_values(data, AUTHORS, policy, rate, tier)) <= LIMITS_S[tier]:
            break
        last = rate
    return last


def _tbt_row(data: Data) -> Row:
    lasts = {p: {tier: _last_within(data, p, tier) for tier in LIMITS_S} for p in (SLAI, SARATHI, "vLLM", "Orca")}
    shown = "; ".join(f"{p}: paying to {d['paying']:g}/s, others to {d['standard']:g}/s" for p, d in lasts.items())
    whole = max(min(lasts[p].values()) for p in ("vLLM", "Orca"))
    title = "rates up to which p99 TBT is within 0.1 s (paying) and 0.5 s (others)"
    published = "SLAI meets tail TBT constraints"
    if min(lasts[SLAI].values()) >= max(data.settings["rates"]):
        return claim(title, published, True, shown)
    holds = min(lasts[SLAI].values()) > whole
    reason = (
        f"beyond {min(lasts[SLAI].values()):g}/s one tier's limit is passed; policies with whole prompts pass one "
        f"beyond {whole:g}/s"
    )
    return shape(title, published, holds, shown, reason=reason)


def rows(data: Data) -> list[Row]:
    """Median TTFT of one policy against another at every rate, the tiers' TBT, the paying users' TTFT."""
    spf, fcfs = _FIXED
    pay = f"{SLAI}, user priority"
    return [
        _less_row(data, f"median TTFT, {SLAI} against {SARATHI}", SLAI, SARATHI),
        _less_row(data, "median TTFT, shortest prompt first against FCFS (fixed offset)", spf, fcfs),
        _less_row(data, "median TTFT, dynamic offset against fixed (SPF)", SLAI, spf),
        _less_row(data, "median TTFT of paying users, with user priority against without", pay, SLAI, _PAYING),
        _crossing_row(data),
        _tbt_row(data),
    ]


def plot(data: Data, plt: Any) -> Any:
    """Draw every measure against the rate, one row a measure and one column a convention."""
    figure, grid = plt.subplots(len(_PANELS), 2, figsize=(9.6, 14.0), sharex=True, sharey="row", layout="constrained")
    rates = sorted(data.settings["rates"])
    for column, convention in enumerate(_CONVENTIONS):
        for line, (name, label) in enumerate(_PANELS.items()):
            axes = grid[line][column]
            for policy, (color, dash) in _STYLES.items():
                values = [_values(data, convention, policy, rate, name) for rate in rates]
                means = [float(np.nanmean(v)) if np.isfinite(v).any() else math.nan for v in values]
                axes.plot(rates, means, linestyle=dash, color=color, linewidth=1.6, label=policy)
            axes.set_yscale("log")
            if name in LIMITS_S:
                axes.axhline(LIMITS_S[name], color="black", linewidth=0.8, label="limit")
            if column == 0:
                axes.set_ylabel(label)
        grid[0][column].axhline(TTFT_MEDIAN_S, color="black", linewidth=0.8, label="limit")
        grid[0][column].set_title(convention)
        grid[-1][column].set_xlabel("requests per second")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3)
    return figure


ITEM = Item(
    name="slai-evaluation",
    paper=PAPER,
    where="evaluation: TTFT and TBT against the rate",
    claim="SLAI lowers median TTFT against Sarathi-Serve and keeps both tiers' tail TBT.",
    simulated=(
        "Mistral-7B on an RTX 6000 Ada calibrated from Figure 5a, ShareGPT lengths, 5 % paying (TBT 0.1 s, others "
        "0.5 s), 35 minutes of arrivals; the authors' metric convention in the table, both in the figure."
    ),
    smoke={"rates": [0.6, 1.8], "replications": 2, "horizon_s": 300.0},
    full={"rates": [round(0.2 * k, 1) for k in range(1, 11)], "replications": 6, "horizon_s": 2100.0},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
