"""A cluster's runs for a person: verdict, nodes, pools, transfers, times."""

from __future__ import annotations

__all__ = ["render_cluster", "render_cluster_plan"]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tileq.cli.run_text import cache_line, render_notes, render_times
from tileq.cli.sharing_text import render_cluster_bottlenecks, render_tenants
from tileq.cli.text import facts, table, title
from tileq.words import number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

_ROWS = 16
_WHY = {
    "node failed": "off a node that failed",
    "node full": "past a node that was full",
    "rebalanced": "waiting, to a shorter queue",
}


def render_cluster(d: Mapping[str, Any], console: Console) -> None:
    """Write the document of `tileq simulate --cluster`."""
    s, capacity = d["setting"], d["capacity"]
    c = s["cluster"]
    heading = f"{c['label']}: router {c['router']['name']}, {s['workload']} at {number(d['rate_per_s'])} requests/s"
    console.print(heading, markup=False, style="bold")
    for node in c["nodes"]:
        console.print(_node_line(node), markup=False, style="dim")
    title(console, f"{d['stable'].capitalize()}, at {percent(d['utilisation'])} of capacity")
    binding = " and ".join(capacity["binding"]) or "nothing"
    blind = capacity["same_mix_rate_per_s"]
    rows = [
        ("no router exceeds", f"{number(capacity['rate_per_s'])} requests/s: {binding} would be full"),
        ("throughput", f"{number(d['throughput_per_s'])} requests/s"),
        ("from", f"{d['replications']} runs of {number(s['requests'])} requests, seed {d['seed']}"),
    ]
    if blind is not None and blind < 0.999 * capacity["rate_per_s"]:
        rows.insert(1, ("same mix everywhere", f"{number(blind)} requests/s at most"))
    if d["requests"]["rejected"]:
        rejected = f"{number(d['requests']['rejected'])} of {number(d['requests']['offered'])} requests"
        rows.append(("rejected", rejected))
    if d["transfers"]["count"]:
        moved = d["transfers"]
        rows.append(("KV transfers", f"{seconds(moved['mean_s'])} each, {seconds(moved['mean_wait_s'])} of it waiting"))
    if d["prefix_cache"] is not None and "hit_rate" in d["prefix_cache"]:
        rows.append(("prefix caches", cache_line(d["prefix_cache"])))
    moves = {why: count for why, count in d["moves"].items() if count}
    if moves:
        rows.append(("moved", "; ".join(f"{number(count)} {_WHY.get(why, why)}" for why, count in moves.items())))
    facts(console, rows)
    _nodes(d, console)
    render_times(dict(d), console)
    render_tenants(dict(d), console)
    render_cluster_bottlenecks(d["bottlenecks"], console)
    render_notes(d["warnings"], console)


def _node_line(node: Mapping[str, Any]) -> str:
    where = f", {node['model']} on {node['gpu']}" if "gpu" in node else ""
    role = "" if node["role"] == "both" else f", {node['role']}"
    kv = "unbounded" if node["kv_tokens"] is None else number(node["kv_tokens"])
    return (
        f"{node['count']} x {node['name']}{where}{role}, {node['policy']}: budget {number(node['token_budget'])}, "
        f"{number(node['max_num_seqs'])} sequences, {kv} KV tokens"
    )


def _nodes(d: Mapping[str, Any], console: Console) -> None:
    title(console, "Nodes (not empty: share of the time; load: of capacity, by theory)")
    loads = {group["name"]: group["load"] for group in d["capacity"]["groups"]}
    names = ("node", "role", "given", "not empty", "KV", "in system", "waiting", "tokens/s", "load")
    rows = []
    for node in d["nodes"][:_ROWS]:
        group = node["name"] if node["name"] in loads else node["name"].rsplit("-", 1)[0]
        full = loads.get(group)
        rows.append(
            (
                node["name"],
                node["role"],
                number(node["routed"]),
                percent(node["busy_share"]),
                percent(node["kv_share"]),
                number(node["mean_in_system"]),
                number(node["mean_waiting"]),
                number(node["tokens_per_s"]),
                "-" if full is None else percent(full * d["utilisation"]),
            )
        )
    table(console, names, rows, left=(0, 1))
    if len(d["nodes"]) > _ROWS:
        facts(console, [("", f"{len(d['nodes']) - _ROWS} more with --json")])


def _cache_row(cache: Mapping[str, Any]) -> tuple[str, str]:
    found = sum(node["share"] * node["hit_share"] for node in cache["nodes"]) / sum(n["share"] for n in cache["nodes"])
    kept = "kept together" if cache["conversations_together"] else "split"
    without = f"{number(cache['rate_without_per_s'])} requests/s without caches"
    return ("prefix caches", f"find {percent(found)} of the prompts, {kept} by router {cache['router']}; {without}")


def render_cluster_plan(d: Mapping[str, Any], console: Console) -> None:
    """Write the document of `tileq plan --cluster`."""
    c = d["cluster"]
    console.print(f"{c['label']}, {d['workload']}", markup=False, style="bold")
    for node in c["nodes"]:
        console.print(_node_line(node), markup=False, style="dim")
    title(console, "Capacity")
    band, binding = d["error_band"], " and ".join(d["binding"]) or "nothing"
    rows = [("no router exceeds", f"{number(d['rate_per_s'])} requests/s")]
    if band["low"] != band["high"]:
        rows.append(("", f"{number(band['low'])} to {number(band['high'])} by the error bands of the times"))
    rows.append(("full then", binding))
    if d["same_mix_rate_per_s"] is not None:
        rows.append(("blind to classes", f"{number(d['same_mix_rate_per_s'])} requests/s with the best weights"))
        rows.append(("without weights", f"{number(d['equal_shares_rate_per_s'])} requests/s in equal shares"))
    if d["fabric_use"] is not None:
        rows.append(("fabric", f"{percent(d['fabric_use'])} used"))
    if d["prefix_cache"] is not None:
        rows.append(_cache_row(d["prefix_cache"]))
    if d["offered_rate_per_s"] is not None:
        rows.append(("at the rate asked", f"{number(d['offered_rate_per_s'])} requests/s, {percent(d['utilisation'])}"))
    facts(console, rows)
    title(console, "Who serves what at capacity, requests/s")
    ports = any(group["link_use"] is not None for group in d["groups"])
    names = ("nodes", "role", *d["classes"], "load", "binds", "one more node", *(("ports",) if ports else ()))
    body = [
        (
            f"{group['count']} x {group['name']}",
            group["role"],
            *(number(rate) for rate in group["rates_per_s"]),
            percent(group["load"]),
            group["binding"].replace("_", " "),
            f"+{number(group['node_price_per_s'])}/s",
            *((percent(group["link_use"]),) if ports else ()),
        )
        for group in d["groups"]
    ]
    table(console, names, body, left=(0, 1))
    render_notes(d["warnings"], console)
