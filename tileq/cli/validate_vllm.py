"""`tileq validate --executor vllm`: what it does not take, and how its answer is shown."""

from __future__ import annotations

__all__ = ["refuse", "render_vllm"]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tileq.cli.text import facts, paragraph, table, title
from tileq.words import number, seconds
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console


def refuse(executor: str, of_torch: Mapping[str, Any], changed: Mapping[str, bool], server: bool | None) -> None:
    """Raise `InputError` for the first option that has been given and that the other executor alone takes."""
    if executor != "vllm":
        if server is not None:
            raise InputError(f"--{'' if server else 'no-'}server is not taken with --executor {executor}; use vllm")
        return
    for name, value in {**of_torch, **{name: given or None for name, given in changed.items()}}.items():
        if value is not None:
            raise InputError(f"--{name.replace('_', '-')} is not taken with --executor vllm; leave it out")


def render_vllm(d: dict[str, Any], console: Console) -> None:
    """Show the document of `validate_vllm`."""
    from tileq.validation_vllm_text import over_words, replay_words

    s, c = d["summary"], d["conditions"]
    console.print(d["title"], style="bold", markup=False)
    facts(
        console,
        [
            ("model", f"{c['model']} on {c['device']}, vLLM {c['vllm']}"),
            ("lambda*", f"{number(s['rate_per_s'])}/s from its own profile of {d['fit']['points']} iterations"),
            ("against the edge", over_words(d)),
            ("token budget", number(d["plan"]["token_budget"])),
        ],
    )
    _edges(d["cases"], console)
    _loads(d["cases"], console)
    if d["server"] is not None:
        server = d["server"]
        title(console, f"A server on the loopback, driven by {server['client']}")
        facts(
            console,
            [
                ("lambda*", f"{number(server['rate_per_s'])}/s from what its scheduler recorded"),
                ("against the edge", over_words(server)),
                ("logs", server["logs"]),
            ],
        )
        _edges(server["cases"], console)
        _loads(server["cases"], console)
    paragraph(console, replay_words(d))


def _edges(cases: list[dict[str, Any]], console: Console) -> None:
    from tileq.validation_vllm_text import half_words

    title(console, "Edge of stability, requests/s")
    rows = [
        (case["policy"], _rate(case["edge_per_s"]), half_words(case), _rate(case["edge_simulated_per_s"]))
        for case in cases
    ]
    table(console, ("policy", "measured", "+-", "simulated"), rows, left=(0,))


def _loads(cases: list[dict[str, Any]], console: Console) -> None:
    title(console, "Loads around it (measured, simulated)")
    names = ("ttft_p50_s", "tbt_mean_s", "tbt_p99_s")
    rows = [
        (
            case["policy"],
            f"{load['fraction']:g}",
            *(_seconds(load[side][name]) for name in names for side in ("measured", "simulated")),
        )
        for case in cases
        for load in case["loads"]
    ]
    heads = ("policy", "of l*", "TTFT p50", "simulated", "TBT mean", "simulated", "TBT p99", "simulated")
    table(console, heads, rows, left=(0,))


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else seconds(value)
