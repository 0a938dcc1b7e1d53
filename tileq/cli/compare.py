"""`tileq compare`: read the options, run every policy on the same requests, show one table."""

from __future__ import annotations

__all__ = ["EXAMPLE", "compare"]

from typing import TYPE_CHECKING, Annotated, Any

from tileq.cli import options as o
from tileq.cli.run_text import render_notes
from tileq.cli.sharing_text import share
from tileq.cli.show import show
from tileq.cli.text import facts, table, title
from tileq.words import number, percent, seconds

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq compare --policies sarathi,slai,rad --rates 8:20:4 --slo-ttft 0.5"

Policies = Annotated[str, o.option("With settings, commas between.", o.ENGINE)]
Rates = Annotated[str | None, o.option("Requests/s: 1,2,4 or first:last:step.", o.TRAFFIC, allow_leading_hyphen=True)]
SloTtft = Annotated[float | None, o.option("Median TTFT within, s: capacity.", o.LIMITS, converter=o.number)]
SloTbt = Annotated[float | None, o.option("p99 TBT within, s: capacity.", o.LIMITS, converter=o.number)]
Capacity = Annotated[bool, o.option("Search the stable capacities too.", o.LIMITS, show_default=False)]


def compare(
    *,
    policies: Policies = "sarathi,slai,rad",
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    trace: o.Trace = None,
    workload: o.Workload = None,
    conversations: o.Conversations = None,
    classes: o.Classes = None,
    rates: Rates = None,
    convention: o.Convention = "engine",
    tbt: o.Tbt = None,
    slo_ttft: SloTtft = None,
    slo_tbt: SloTbt = None,
    capacity: Capacity = False,
    token_budget: o.TokenBudget = None,
    max_num_seqs: o.MaxNumSeqs = None,
    kv_tokens: o.KvTokens = None,
    preemption: o.Preemption = "recompute",
    swap_gb_per_s: o.SwapGbPerS = 25.0,
    paying: o.Paying = None,
    tenants: o.Tenants = None,
    token_prices: o.TokenPrices = "1:2",
    reservation: o.Reservation = "policy",
    watermark: o.Watermark = 0.0,
    backpressure: o.Pressure = None,
    control_tbt: o.ControlTbt = None,
    prefix_cache: o.KeepPrefixes = False,
    requests: o.Requests = 4000,
    replications: o.Replications = 5,
    seed: o.Seed = 0,
    folder: o.Folder = None,
    plot: o.Plot = None,
    json: o.Json = False,
) -> None:
    """Compare policies on the same requests over rates, and their capacities under limits."""
    from tileq import comparing
    from tileq.plots import figure

    if plot is not None:
        figure.check(plot)
    answer = comparing.compare(
        policies,
        rates,
        slo_ttft=slo_ttft,
        slo_tbt=slo_tbt,
        capacity=capacity,
        requests=requests,
        replications=replications,
        seed=seed,
        token_budget=token_budget,
        seats=max_num_seqs,
        kv_tokens=kv_tokens,
        preemption=preemption,
        swap_gb_per_s=swap_gb_per_s,
        paying=paying,
        tenants=tenants,
        token_prices=token_prices,
        reservation=reservation,
        watermark=watermark,
        backpressure=backpressure,
        control_tbt=control_tbt,
        prefix_cache=prefix_cache,
        folder=folder,
        progress=False if json else None,
        gpu=gpu,
        model=model,
        tp=tp,
        dtype=dtype,
        kv_dtype=kv_dtype,
        memory_utilisation=memory_utilisation,
        times=times,
        calibration=calibration,
        trace=trace,
        workload=workload,
        conversations=conversations,
        classes=classes,
        convention=convention,
        tbt=tbt,
    )
    if plot is not None:
        answer.plot(plot)
    document = answer.to_dict()
    show(document, lambda console: _render(document, console), as_json=json)


def _render(d: dict[str, Any], console: Console) -> None:
    s = d["setting"]
    console.print(f"{s['model']} on {s['gpu']}, {s['workload']}", markup=False, style="bold")
    capacity = f"no policy exceeds {number(s['capacity_per_s'])} requests/s"
    console.print(f"budget {number(s['token_budget'])} tokens; {capacity}", markup=False, style="dim")
    for rate in d["rates_per_s"]:
        title(console, f"At {number(rate)} requests/s, {percent(rate / s['capacity_per_s'])} of capacity")
        found = [row for row in d["rows"] if row["rate_per_s"] == rate]
        kept = any("hit_rate" in row for row in found)
        names = ("policy", "", "TTFT p50", "p99", "TBT p50", "p99", "done/s", *(("prefixes",) if kept else ()))
        table(console, names, [_row(row, kept) for row in found], left=(0, 1))
        _tenants(found, console)
    for found in d["capacity"].values():
        if found:
            title(console, "Capacity: " + next(iter(found.values()))["criterion"])
            facts(console, [(name, _capacity(result)) for name, result in found.items()])
    render_notes(d["warnings"], console)


def _row(row: dict[str, Any], kept: bool) -> list[str]:
    times = [row[name] for name in ("ttft_p50_s", "ttft_p99_s", "tbt_p50_s", "tbt_p99_s")]
    found = [share(row["hit_rate"])] if kept else []
    return [row["policy"], row["stable"], *map(seconds, times), number(row["throughput_per_s"]), *found]


def _tenants(found: list[dict[str, Any]], console: Console) -> None:
    """Write what every tenant got under every policy, where there are tenants."""
    rows = []
    for row in found:
        told = [row["policy"], "-" if row.get("jain_index") is None else number(row["jain_index"])]
        for name, t in row.get("tenants", {}).items():
            shares = [share(t[key]) for key in ("service_share", "contended_share", "fair_share")]
            rows.append([*told, name, number(t["weight"]), *shares, seconds(t["starved_s"]), seconds(t["ttft_p99_s"])])
            told = ["", ""]
    if rows:
        console.print()
        names = ("policy", "Jain", "tenant", "weight", "service", "contended", "fair", "starved", "TTFT p99")
        table(console, names, rows, left=(0, 2))


def _capacity(result: dict[str, Any]) -> str:
    low, high = result["interval"]["low"], result["interval"]["high"]
    between = f", {number(low)} to {number(high)}" if low is not None and high is not None else ""
    found = result["rate_per_s"]
    return "none found" if found is None else f"{number(found)} requests/s{between}"
