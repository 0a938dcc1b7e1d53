"""The times of a run for a person: TTFT, TBT, TPOT and end to end, of all requests and of each tier."""

from __future__ import annotations

__all__ = ["cache_line", "render_notes", "render_times"]

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileq.cli.text import facts, table, title
from tileq.words import counted, number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

_TIMES = (("ttft_s", "TTFT"), ("tbt_s", "TBT"), ("tpot_s", "TPOT"), ("e2e_s", "end to end"))
_COLUMNS = ("mean", "p50", "p90", "p99", "max")


_NOTES = 6


def render_notes(warnings: Sequence[str], console: Console) -> None:
    """Write the notes of a run; those that differ in their numbers only are written once."""
    alike: dict[str, list[str]] = {}
    for text in warnings:
        alike.setdefault(re.sub(r"\d[\d.,]*", "#", text), []).append(text)
    if not alike:
        return
    title(console, "To know")
    shown = [group[0] + (f" (and {len(group) - 1} more like it)" if group[1:] else "") for group in alike.values()]
    facts(console, [("note", text) for text in shown[:_NOTES]])
    if len(shown) > _NOTES:
        facts(console, [("", f"{counted(len(shown) - _NOTES, 'more kind')} of note with --json")])


def render_times(d: dict[str, Any], console: Console) -> None:
    """Write one table for all requests and, where there are several tiers, one for each."""
    groups = {"Times": d}
    if len(d.get("tiers", {})) > 1:
        groups.update({f"Times of tier {name}": group for name, group in d["tiers"].items()})
    for heading, group in groups.items():
        title(console, heading)
        rows = [
            [word, *(seconds(group[key][column]) for column in _COLUMNS), _interval(d, group, key)]
            for key, word in _TIMES
        ]
        table(console, ("", *_COLUMNS, "95% of the mean"), rows, left=(0,))


def _interval(d: dict[str, Any], group: dict[str, Any], key: str) -> str:
    if group is not d:
        return ""
    pair = d["ci95"].get(key, {}).get("mean")
    return f"{seconds(pair[0])} to {seconds(pair[1])}" if pair and None not in pair else ""


def cache_line(c: Mapping[str, Any]) -> str:
    """Return how much of the prompts was found, and what was given up for want of blocks."""
    if c["hit_rate"] is None:
        return "nothing was looked up"
    steady = "" if c["steady_hit_rate"] is None else f" ({percent(c['steady_hit_rate'])} once it is warm)"
    given_up = f"{number(c['evicted_blocks'])} blocks given up"
    return f"{percent(c['hit_rate'])} of prompt tokens found{steady}, {given_up}"
