"""Tenants and bottlenecks of a run for a person."""

from __future__ import annotations

__all__ = ["render_bottlenecks", "render_cluster_bottlenecks", "render_tenants", "share"]

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tileq.cli.text import table, title
from tileq.words import number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

_ROWS = 12
_WORDS = {
    "slots": "no free slot (max_num_seqs)",
    "kv blocks": "no free KV blocks",
    "prefill burst": "budget spent on prefills",
    "decode pool": "budget spent on decodes",
    "transfer": "KV on the move",
    "quota": "tenants at their quota",
    "policy": "the policy held them back",
}


def render_tenants(d: dict[str, Any], console: Console) -> None:
    """Write a row a tenant, where there are tenants."""
    found = d.get("tenants")
    if not found:
        return
    title(console, "Tenants")
    rows = [
        [
            name,
            number(t["weight"]),
            share(t["service_share"]),
            share(t["contended_share"]),
            share(t["fair_share"]),
            seconds(t["starved_s"]),
            seconds(t["ttft_s"]["p50"]),
            seconds(t["ttft_s"]["p99"]),
            seconds(t["tbt_s"]["p99"]),
        ]
        for name, t in found["each"].items()
    ]
    heads = ("", "weight", "service", "contended", "fair", "starved", "TTFT p50", "TTFT p99", "TBT p99")
    table(console, heads, rows, left=(0,))
    if found["share_error"] is not None:
        told = f"share error {percent(found['share_error'])}, Jain's index {number(found['jain_index'])}"
        console.print(f"{told}, over {seconds(found['contended_s'])} in which tenants contended", markup=False)


def render_bottlenecks(d: dict[str, Any], console: Console) -> None:
    """Write a row a cause for which requests waited, where some did."""
    causes = d.get("bottlenecks", {}).get("causes")
    if not causes:
        return
    title(console, "Why requests waited (first run)")
    rows = [
        [
            _WORDS.get(cause, cause),
            share(c["share"]),
            number(c["intervals"]),
            seconds(c["first_s"]),
            f"{seconds(c['longest']['begin_s'])} to {seconds(c['longest']['end_s'])}",
            number(c["most_waiting"]),
        ]
        for cause, c in sorted(causes.items(), key=lambda item: -item[1]["seconds"])
    ]
    table(console, ("", "of the time", "intervals", "first at", "longest", "most waiting"), rows, left=(0,))


def render_cluster_bottlenecks(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Write a row for each group of nodes and cause for which requests waited there, where some did."""
    if not rows:
        return
    title(console, "Why requests waited (first run)")
    body = [
        [
            row["where"],
            _WORDS.get(row["cause"], row["cause"]),
            share(row["share"]),
            seconds(row["first_s"]),
            seconds(row["longest"]["end_s"] - row["longest"]["begin_s"]),
            number(row["most_waiting"]),
        ]
        for row in rows[:_ROWS]
    ]
    table(console, ("", "", "of the time", "first at", "longest", "most waiting"), body, left=(0, 1))
    if len(rows) > _ROWS:
        console.print(f"  {len(rows) - _ROWS} more with --json", markup=False)


def share(value: float | None) -> str:
    """Return a share in words; "-" for one that there is not."""
    return "-" if value is None else percent(value)
