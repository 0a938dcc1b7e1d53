"""A plan for a person: what to set, what it carries, why, and where the numbers come from."""

from __future__ import annotations

__all__ = ["render_plan"]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tileq.cli.split_text import render_split
from tileq.cli.text import facts, paragraph, table, title
from tileq.words import lever, number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

Document = Mapping[str, Any]
_WORTH_TELLING = 0.02  # an elasticity below 2 % per percent is noise to a reader


def render_plan(document: Document, console: Console) -> None:
    """Write the plan in `document` (`Plan.to_dict()`) to `console`."""
    _heading(document, console)
    _flags(document, console)
    _capacity(document, console)
    if document["prefix_cache"] is not None:
        _cache(document, console)
    if document["disaggregation"] is not None:
        render_split(document["disaggregation"], document["offered_rate_per_s"], console)
    _why(document, console)
    _levels(document, console)
    if "check" in document:
        _check(document["check"], console)
    _trust(document, console)


def _heading(d: Document, console: Console) -> None:
    asked = d["question"]
    where = f"{asked['tp']} x {asked['gpu']}" if asked["tp"] > 1 else asked["gpu"]
    nodes = f", {asked['nodes']} replicas" if asked["nodes"] > 1 else ""
    console.print(f"{asked['model']} on {where}{nodes}, {d['workload']['name']}", markup=False, style="bold")
    console.print(d["workload"]["description"], markup=False, style="dim")


def _flags(d: Document, console: Console) -> None:
    title(console, f"Set on {d['engine']}")
    # to be pasted: never wrapped by the terminal's width
    console.print("  " + " \\\n      ".join(_lines(d["engine_command"], 72)), markup=False, soft_wrap=True)
    console.print()
    facts(console, [(flag, why) for flag, why in d["engine_flag_reasons"].items() if why != "as planned for"])


def _lines(command: str, width: int) -> list[str]:
    """Return the command in lines of at most `width`, never between a flag and its value."""
    lines = [""]
    for part in command.replace(" --", "\n--").split("\n"):
        if lines[-1] and len(lines[-1]) + 1 + len(part) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {part}".strip()
    return lines


def _capacity(d: Document, console: Console) -> None:
    title(console, "Capacity")
    band, demand = d["error_band"], d["workload"]["demand"]
    rate, budget, tile = d["rate_per_s"], d["budget"], d["tile"]
    rows = [("no policy exceeds", f"{number(rate)} requests/s")]
    if band["low"] != band["high"]:
        rows.append(("", f"{number(band['low'])} to {number(band['high'])} by the error band of the times"))
    loss = f"{percent(budget['loss'])} less" if budget["loss"] >= 5e-4 else "the optimum"
    rows.append(("this budget reaches", f"{number(budget['rate_per_s'])} requests/s, {loss}"))
    if budget["attainable_rate_per_s"] < 0.995 * budget["rate_per_s"]:
        few = f"{number(d['residents'])} residents never fill the batch and the rest at once"
        rows.append(("a mix attains about", f"{number(budget['attainable_rate_per_s'])} requests/s: {few}"))
    prefill, decode = rate * demand["prefill_tokens"], rate * demand["decode_tokens"]
    rows.append(("tokens", f"{number(prefill)} prefill and {number(decode)} decode tokens/s"))
    split = f"{number(tile['prefill_tokens'])} prefill + {number(tile['decode_tokens'])} decode tokens"
    rows.append(("an iteration", f"{split}, {seconds(budget['iteration_s'])}"))
    h, k = d["tile_ratio"]
    rows.append(("not mixed", f"{h} prefill iterations to {k} of decode"))
    rows.append(("in a batch", f"{number(d['residents'])} requests on average"))
    rows.append(("first token", f"{seconds(d['ttft_floor_s'])} for a mean prompt, nobody else there"))
    if d["offered_rate_per_s"] is not None:
        rows.append(("at the trace's rate" if d["question"]["rate"] is None else "at the rate asked", _offered(d)))
    facts(console, rows)


def _cache(d: Document, console: Console) -> None:
    cache = d["prefix_cache"]
    before = cache["without"]
    title(console, f"Prefix cache: {cache['cache']}")
    rows = [
        ("found", f"{percent(cache['hit_share'])} of prompt tokens, {number(cache['hit_tokens'])} of a mean prompt")
    ]
    if cache["cache_tokens"] is not None:
        reach = (
            "everything" if cache["reach_requests"] is None else f"the last {number(cache['reach_requests'])} requests"
        )
        rows.append(("remembers", f"{reach}, in {number(cache['cache_tokens'])} tokens a replica"))
    if cache["shared_tokens"] >= 1:
        rows.append(("held once", f"{number(cache['shared_tokens'])} tokens of it, shared with other residents"))
    rows.append(
        ("rate", f"{number(before['rate_per_s'])} without, {number(d['rate_per_s'])} with: {cache['rate_gain']:+.1%}")
    )
    rows.append(("binds", f"{before['binding']} without, {d['binding']} with".replace("_", " ")))
    rows.append(("token budget", f"{number(before['token_budget'])} without, {number(d['token_budget'])} with"))
    facts(console, rows)


def _offered(d: Document) -> str:
    rate, load, replicas = d["offered_rate_per_s"], d["utilisation"], d["replicas"]
    room = f"{percent(1 - load)} is free" if load < 1 else "no policy is stable"
    carry = "1 replica carries it" if replicas == 1 else f"{replicas} replicas carry it"
    return f"{number(rate)} requests/s, {percent(load)} of capacity: {room}; {carry} at 90% load"


def _why(d: Document, console: Console) -> None:
    title(console, f"Why: {d['binding'].replace('_', ' ')} binds")
    paragraph(console, d["binding_reason"])
    ranked = sorted(d["elasticities"].items(), key=lambda item: -abs(item[1]))
    rows = [
        (f"1% {lever(name)}", f"+{number(abs(value), 2)}% rate")
        for name, value in ranked
        if abs(value) >= _WORTH_TELLING
    ]
    rows.append(("in use", ", ".join(f"{name} {percent(share)}" for name, share in d["usage"].items())))
    prices = d["prices"]
    rows.append(("a prefill token costs", f"{seconds(prices['prefill_token_s'])} of a node"))
    rows.append(("a decode token costs", f"{seconds(prices['decode_token_s'])}, and {_reads(d)} for its reads"))
    facts(console, rows)


def _reads(d: Document) -> str:
    """Return what a decode step pays for the KV it reads and holds, at the mean context."""
    demand, prices = d["workload"]["demand"], d["prices"]
    steps = demand["decode_tokens"]
    if not steps:
        return seconds(0.0)
    held = prices["kv_read_token_s"] * demand["kv_read_tokens"]
    return seconds(held / steps)


def _levels(d: Document, console: Console) -> None:
    title(console, "The optimum, batch by batch")
    names = ("tokens", "prefill", "decode", "lasts", "per second", "of time")
    rows = [
        (
            number(level["tokens"]),
            number(level["prefill_tokens"]),
            number(level["decode_tokens"]),
            seconds(level["iteration_s"]),
            number(level["iterations_per_s"]),
            percent(level["time_share"]),
        )
        for level in d["levels"]
    ]
    table(console, names, rows)


def _check(check: Mapping[str, Any], console: Console) -> None:
    title(console, f"Simulated, saturated, {number(check['requests'])} requests")
    rows = [("expected", f"{number(check['expected_rate_per_s'])} requests/s a replica with this budget")]
    for name, found in check["policies"].items():
        if found["rate_per_s"] is None:
            rows.append((name, found["reason"]))
            continue
        low, high = found["ci95"]
        between = f"{number(low)} to {number(high)} at 95%"
        rate = f"{number(found['rate_per_s'])} requests/s ({between})"
        rows.append((name, f"{rate}, {percent(found['of_capacity'])} of these requests' capacity"))
    facts(console, rows)


def _trust(d: Document, console: Console) -> None:
    title(console, "How far to trust it")
    times = d["provenance"]["iteration_time"]
    rows = [
        ("error band", d["error_band"]["basis"]),
        ("times", "; ".join(times["notes"]) or times["source"]),
        ("GPU", d["provenance"]["gpu"]["source"]),
        ("model", d["provenance"]["model"]["source"]),
        ("requests", d["provenance"]["workload"]),
        ("optimality", _proof(d)),
    ]
    rows += [("note", warning) for warning in d["warnings"]]
    facts(console, rows)


def _proof(d: Document) -> str:
    worst = max(value for value in d["kkt"].values() if not isinstance(value, bool))
    most = number(d["question"]["max_tokens"])
    return f"its conditions hold to {worst:.0e}, and no batch size up to {most} would do better"
