"""Fig. 5a: TTFT and batch time of a lone prompt against the token budget."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, claim, within
from paper_repro.slai.setting import CALIBRATION, FIG_5A, PAPER
from tileq_engine.intervals import Interval


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a token budget."""
    return [{"budget": b} for b in sorted({*FIG_5A, *settings["budgets"]})]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Serve one prompt of 2048 tokens and one decode step in chunks of the budget, on the fitted iteration time."""
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.requests import Requests
    from tileq_engine.simulator import simulate

    asked = Requests.from_arrays(prompt_tokens=[2048], output_tokens=[1], arrival_s=[0.0])
    config = EngineConfig(token_budget=piece["budget"], convention="paper", trace_limit=1000)
    run = simulate(asked, policy("sarathi"), CALIBRATION.time, config)
    first = np.unique(run.trace.iteration, return_index=True)[1]
    durations = run.trace.duration_ps[first] * 1e-9
    return {"ttft_ms": float(run.prefill_end_ps[0]) * 1e-9, "batch_ms": float(durations.mean()), "batches": len(first)}


def rows(data: Data) -> list[Row]:
    """Every measured point against the prediction and the calibration's error band."""
    band = CALIBRATION.time.error_band
    basis = f"outside the band {band.low:.3f} to {band.high:.3f} of the fitted time"
    found = []
    for place, (name, unit) in enumerate((("batch_ms", "mean batch"), ("ttft_ms", "median TTFT"))):
        for budget, printed in FIG_5A.items():
            value = float(data.one(budget=budget)[name])
            seen = Interval(value, value * band.low, value * band.high, band.coverage, "error band", 8)
            error = 100 * (value / float(printed[place]) - 1)
            reason = f"{basis}: {error:+.1f} % off"
            row = within(f"{unit} at budget {budget}", f"{printed[place]} ms", seen, reason=reason, close=0.15)
            ours = f"{value:.2f} [{seen.low:.2f}, {seen.high:.2f}] ms (error band), {error:+.1f} %"
            found.append(Row(row.quantity, row.published, ours, row.verdict, row.reason, value, seen.low, seen.high))
    gain = data.one(budget=64)["ttft_ms"] / data.one(budget=512)["ttft_ms"]
    late = data.one(budget=512)["ttft_ms"] / data.one(budget=1024)["ttft_ms"]
    ours = f"64 to 512: {gain:.2f} times less; 512 to 1024: {late:.2f} times"
    title = "TTFT falls steeply to a budget of 512, hardly beyond"
    good = gain > 2 and late < 1.2
    found.append(claim(title, "3.41 and 1.05 times", good, ours, reason="more than 2 and less than 1.2 times expected"))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw TTFT and batch time against the budget, predicted and measured."""
    budgets = sorted(p["budget"] for p in data.pieces)
    figure, axes = plt.subplots()
    axes.plot(budgets, [data.one(budget=b)["ttft_ms"] for b in budgets], label="TTFT, fitted")
    axes.plot(list(FIG_5A), [float(t) for _, t in FIG_5A.values()], "o", color="#0b3954", label="TTFT, published")
    axes.set(xlabel="token budget, tokens", ylabel="TTFT of a 2048-token prompt, ms", ylim=(0, 800))
    other = axes.twinx()
    other.plot(budgets, [data.one(budget=b)["batch_ms"] for b in budgets], "--", color="#c8553d", label="batch, fitted")
    other.plot(list(FIG_5A), [float(b) for b, _ in FIG_5A.values()], "s", color="#c8553d", label="batch, published")
    other.set(ylabel="mean batch time, ms", ylim=(0, 100))
    other.grid(False)
    handles = [*axes.get_lines(), *other.get_lines()]
    axes.legend(handles, [h.get_label() for h in handles], loc="upper center")
    axes.set_title("Mistral-7B on an RTX 6000 Ada")
    return figure


ITEM = Item(
    name="slai-fig5a",
    paper=PAPER,
    where="Figure 5a",
    claim="A larger token budget lowers TTFT until about 512 tokens and lengthens every batch.",
    simulated="the engine on an iteration time fitted to these very measurements: a check of the fit, not a forecast.",
    smoke={"budgets": [192]},
    full={"budgets": list(range(64, 1025, 32))},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
