"""`tileq validate --executor vllm`: what it does not take, and how its answer is shown."""

from __future__ import annotations

__all__ = ["refuse", "render_vllm"]

from typing import TYPE_CHECKING, Any

from tileq.cli.text import facts, table, title
from tileq.words import number, seconds
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


def refuse(**given: Any) -> None:
    """Raise `InputError` for the first option that has been given and that vLLM's validation does not take."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} is not taken with --executor vllm; use --json for the report")


def render_vllm(d: dict[str, Any], console: Console) -> None:
    """Show the document of `validate_vllm`."""
    s, c = d["summary"], d["conditions"]
    console.print(d["title"], style="bold", markup=False)
    over = s["rate_over_best_edge"]
    facts(
        console,
        [
            ("model", f"{c['model']} on {c['device']}, vLLM {c['vllm']}"),
            ("lambda*", f"{number(s['rate_per_s'])}/s from its own profile of {d['fit']['points']} iterations"),
            ("against the edge", "-" if over is None else f"{100 * over:+.1f} %"),
            ("token budget", number(d["plan"]["token_budget"])),
        ],
    )
    title(console, "Edge of stability, requests/s")
    edges = [
        (case["policy"], *(_rate(case[name]) for name in ("edge_per_s", "edge_simulated_per_s"))) for case in d["cases"]
    ]
    table(console, ("policy", "measured", "simulated"), edges, left=(0,))
    title(console, "Loads around it (measured, simulated)")
    rows = [
        (
            case["policy"],
            f"{load['fraction']:g}",
            *(seconds(load[side][name]) for name in ("ttft_p50_s", "tbt_p99_s") for side in ("measured", "simulated")),
        )
        for case in d["cases"]
        for load in case["loads"]
    ]
    table(console, ("policy", "of l*", "TTFT p50", "simulated", "TBT p99", "simulated"), rows, left=(0,))


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
