"""Prefill and decode pools for a person: the split, what binds it, and the other ways to use the nodes."""

from __future__ import annotations

__all__ = ["render_split"]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tileq.cli.text import facts, table, title
from tileq.words import number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console


def render_split(d: Mapping[str, Any], rate_per_s: float | None, console: Console) -> None:
    """Write the section `disaggregation` of a plan's document."""
    split, link, free = d["split"], d["link"], d["relaxed"]
    title(console, f"Disaggregated: {split['prefill']} prefill and {split['decode']} decode nodes")
    port = "no limit" if link["node_bytes_per_s"] is None else f"{number(link['node_bytes_per_s'] / 1e9)} GB/s a node"
    if link["fabric_bytes_per_s"] is not None:
        port += f", {number(link['fabric_bytes_per_s'] / 1e9)} GB/s in all"
    carries = {"mixed": d["mixed_rate_per_s"], "aggregated": d["aggregated_rate_per_s"], "apart": d["rate_per_s"]}
    rows = [
        ("carries", f"{number(d['rate_per_s'])} requests/s: the {d['binding']} binds"),
        ("same nodes", f"{number(carries['mixed'])} mixing, {number(carries['aggregated'])} taking turns: "
         f"{d['winner']} carries most"),
        ("split at will", f"{number(free['rate_per_s'])} requests/s, {number(free['prefill_nodes'])} prefill nodes; "
         f"a node more, {number(free['node_price_per_s'])}"),
        ("KV transfer", f"{seconds(link['transfer_s'])} a request, links {percent(link['use'])} used ({port})"),
    ]  # fmt: skip
    if d["nodes_needed"] is not None and rate_per_s is not None:
        need = d["nodes_needed"]
        rows.append(
            (f"for {number(rate_per_s)}/s", f"{need['prefill']} prefill and {need['decode']} decode nodes at 90% load")
        )
    facts(console, rows)
    console.print()
    names = ("pool", "nodes", "a node's rate", "binds", "load", "budget", "sequences", "one more node")
    table(
        console,
        names,
        [
            (
                name,
                number(pool["nodes"]),
                number(pool["node_rate_per_s"]),
                pool["binding"].replace("_", " "),
                percent(pool["load"]),
                number(pool["token_budget"]),
                number(pool["max_num_seqs"]),
                f"+{number(pool['one_more_per_s'])}/s",
            )
            for name, pool in d["pools"].items()
        ],
        left=(0,),
    )
