"""Capacity against the token budget: the curve from which one budget is chosen."""

from __future__ import annotations

__all__ = ["BudgetCurve", "draw_budget", "plot_budget"]

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from tileq.plots.figure import DASHES, INK, binds, in_style, save

BAND = 0.01


@dataclass(frozen=True, slots=True)
class BudgetCurve:
    """One engine budget after the other, and what each could carry.

    Parameters
    ----------
    tokens, rate_per_s, binding
        Budget (tokens of an iteration), its capacity (requests/s) and what decides it, in ascending budget.
    chosen_tokens, chosen_per_s
        The budget of the plan and its capacity.
    optimum_per_s
        Capacity when the batch size may vary from iteration to iteration.
    longest_tokens
        Largest budget whose iteration may keep the TBT limit, if there is one.
    title
        One line: GPU, model, workload.
    """

    tokens: Sequence[float]
    rate_per_s: Sequence[float]
    binding: Sequence[str]
    chosen_tokens: int
    chosen_per_s: float
    optimum_per_s: float
    longest_tokens: int | None
    title: str


def plot_budget(curve: BudgetCurve, path: Path) -> None:
    """Draw the curve (see `draw_budget`) and write it to `path`."""
    save(draw_budget(curve), path)


def draw_budget(curve: BudgetCurve) -> Any:
    """Return a matplotlib figure: the curve with the budget chosen, the 1 % band it was chosen from, and the limits."""
    with in_style() as new_figure:
        figure = new_figure()
        axes = figure.subplots()
        best = max(curve.rate_per_s)
        axes.axhspan((1 - BAND) * best, best, color=INK[4], alpha=0.30, lw=0, label="within 1 % of the best budget")
        _draw_regimes(axes, curve)
        axes.axhline(curve.optimum_per_s, color=INK[5], lw=1.1, ls=(0, (1, 1)), label="optimum over all batch sizes")
        _draw_choice(axes, curve)
        if curve.longest_tokens is not None:
            axes.axvline(
                curve.longest_tokens, color=INK[3], lw=1.4, ls=(0, (6, 2)), label="longest batch under the TBT limit"
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.set_xlim(min(curve.tokens), max(max(curve.tokens), 1.15 * (curve.longest_tokens or 0)))
        axes.set_ylim(0, 1.12 * max(best, curve.optimum_per_s))
        axes.set_xlabel("token budget of an iteration (tokens)")
        axes.set_ylabel("capacity (requests/s)")
        axes.set_title(curve.title)
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def _draw_regimes(axes: Any, curve: BudgetCurve) -> None:
    """Draw each stretch of one binding constraint with its own dash, joined to the next."""
    named: set[str] = set()
    last = len(curve.tokens) - 1
    for cause, group in groupby(range(last + 1), key=lambda i: curve.binding[i]):
        indices = list(group)
        upto = min(indices[-1] + 1, last)
        stretch = [*indices, upto] if upto != indices[-1] else indices
        axes.plot(
            [curve.tokens[i] for i in stretch],
            [curve.rate_per_s[i] for i in stretch],
            color=INK[0],
            ls=DASHES.get(cause, "-"),
            lw=2.4,
            label=None if cause in named else binds(cause),
        )
        named.add(cause)


def _draw_choice(axes: Any, curve: BudgetCurve) -> None:
    height = curve.chosen_per_s
    axes.plot([curve.chosen_tokens] * 2, [0, height], color=INK[1], lw=1.2)
    axes.plot(curve.chosen_tokens, height, "o", color=INK[1], mec="white", mew=1.2, ms=9, zorder=5)
    # below the curve on its rising side there is room; at the left edge there is none
    right_half = curve.chosen_tokens**2 > min(curve.tokens) * max(curve.tokens)
    axes.annotate(
        f"{curve.chosen_tokens:,} tokens\n{height:.3g} requests/s",
        (curve.chosen_tokens, 0.06 * height),
        xytext=(-8 if right_half else 8, 0),
        textcoords="offset points",
        ha="right" if right_half else "left",
        color=INK[1],
    )
