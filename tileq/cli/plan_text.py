"""A plan for a person: what to set, what it carries, why, and where the numbers come from; 80 columns."""

from __future__ import annotations

__all__ = ["render_plan"]

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileq.words import lever, number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

_WORTH_TELLING = 0.005  # an elasticity below half a percent per percent is noise to a reader


def render_plan(document: Mapping[str, Any], console: Console) -> None:
    """Write the plan in `document` (`Plan.to_dict()`) to `console`."""
    _heading(document, console)
    _flags(document, console)
    _capacity(document, console)
    _why(document, console)
    _levels(document, console)
    _sources(document, console)


def _title(console: Console, text: str) -> None:
    console.print(f"\n[bold]{text}[/bold]")


def _facts(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Write name and text in two columns; long texts wrap inside theirs."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    console.print(Padding(table, (0, 0, 0, 2)))


def _heading(d: Mapping[str, Any], console: Console) -> None:
    asked = d["question"]
    where = f"{asked['tp']} x {d['gpu']['name']}" if asked["tp"] > 1 else d["gpu"]["name"]
    nodes = f", {asked['nodes']} replicas" if asked["nodes"] > 1 else ""
    console.print(f"{d['model']['name']} on {where}{nodes}, {d['workload']['name']}", markup=False)
    console.print(d["workload"]["description"], markup=False, style="dim")


def _flags(d: Mapping[str, Any], console: Console) -> None:
    _title(console, f"Set on {d['engine']}")
    text = " \\\n      ".join(_lines(d["engine_command"], 72))
    # to be pasted: never wrapped by the terminal's width
    console.print(f"  {text}", markup=False, soft_wrap=True)
    console.print()
    _facts(console, [(flag, reason) for flag, reason in d["engine_flag_reasons"].items() if reason != "as planned for"])


def _lines(command: str, width: int) -> list[str]:
    """Return the command in lines of at most `width`, never between a flag and its value."""
    lines = [""]
    for part in command.replace(" --", "\n--").split("\n"):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {part}".strip()
    return lines


def _capacity(d: Mapping[str, Any], console: Console) -> None:
    _title(console, "Capacity")
    band, demand = d["error_band"], d["workload"]["demand"]
    rate, budget = d["rate_per_s"], d["budget"]
    rows = [("no policy exceeds", f"{number(rate)} requests/s")]
    if band["low"] != band["high"]:
        rows.append(("", f"{number(band['low'])} to {number(band['high'])} by the error band of the times"))
    rows.append(("this budget reaches", f"{number(budget['rate_per_s'])} requests/s, {percent(budget['loss'])} less"))
    tokens = f"{number(rate * demand['prefill_tokens'])} prefill and {number(rate * demand['decode_tokens'])} decode"
    rows.append(("tokens", f"{tokens} tokens/s"))
    rows.append(("an iteration", f"{_tile(d['tile'])}, lasts {seconds(budget['iteration_s'])}"))
    rows.append(("in a batch", f"{number(d['residents'])} requests on average"))
    rows.append(("first token", f"{seconds(d['ttft_floor_s'])} for a mean prompt with nobody else there"))
    if d["offered_rate_per_s"] is not None:
        rows.append(("asked for", _offered(d)))
    _facts(console, rows)


def _tile(tile: Mapping[str, Any]) -> str:
    return f"{number(tile['prefill_tokens'])} prefill + {number(tile['decode_tokens'])} decode tokens"


def _offered(d: Mapping[str, Any]) -> str:
    rate, load, replicas = d["offered_rate_per_s"], d["utilisation"], d["replicas"]
    each = "1 replica" if replicas == 1 else f"{replicas} replicas"
    room = f"{percent(1 - load)} is free" if load < 1 else "no policy is stable"
    return f"{number(rate)} requests/s is {percent(load)} of capacity, {room}; {each} at 90 % load carry it"


def _why(d: Mapping[str, Any], console: Console) -> None:
    _title(console, f"Why: {d['binding'].replace('_', ' ')} binds")
    rows = [("", d["binding_reason"])]
    ranked = sorted(d["elasticities"].items(), key=lambda item: -abs(item[1]))
    rows += [
        ("1 % " + lever(name), f"brings {number(abs(value), 2)} %")
        for name, value in ranked
        if abs(value) >= _WORTH_TELLING
    ]
    used = ", ".join(f"{name} {percent(share)}" for name, share in d["usage"].items())
    rows.append(("in use", used))
    prices = d["prices"]
    rows.append(("a prefill token", f"costs {seconds(prices['prefill_token_s'])} of a node"))
    rows.append(("a decode token", f"costs {seconds(prices['decode_token_s'])} of a node, its reads apart"))
    _facts(console, rows)


def _levels(d: Mapping[str, Any], console: Console) -> None:
    from rich.padding import Padding
    from rich.table import Table

    _title(console, "The optimum, batch by batch")
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name in ("batch", "prefill", "decode", "lasts", "per s", "of time"):
        table.add_column(name, justify="right")
    for level in d["levels"]:
        table.add_row(
            number(level["tokens"]),
            number(level["prefill_tokens"]),
            number(level["decode_tokens"]),
            seconds(level["iteration_s"]),
            number(level["iterations_per_s"]),
            percent(level["time_share"]),
        )
    console.print(Padding(table, (0, 0, 0, 2)))


def _sources(d: Mapping[str, Any], console: Console) -> None:
    _title(console, "How far to trust it")
    kinds = {"iteration_time": "times", "gpu": "GPU", "model": "model"}
    rows = [("error band", d["error_band"]["basis"])]
    rows += [(name, d["provenance"][key]["source"]) for key, name in kinds.items()]
    rows.append(("workload", d["provenance"]["workload"]))
    rows.append(("optimality", _proof(d)))
    rows += [("note", warning) for warning in d["warnings"]]
    _facts(console, rows)


def _proof(d: Mapping[str, Any]) -> str:
    worst = max(value for value in d["kkt"].values() if not isinstance(value, bool))
    most = number(d["question"]["max_tokens"])
    return f"optimality conditions hold to {worst:.0e}; every batch size up to {most} was priced"
