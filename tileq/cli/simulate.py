"""`tileq simulate`: read the options, run the engine, show what happened."""

from __future__ import annotations

__all__ = ["EXAMPLE", "simulate"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tileq.cli import options as o
from tileq.cli.run_text import cache_line, render_notes, render_times
from tileq.cli.sharing_text import render_bottlenecks, render_tenants
from tileq.cli.show import show
from tileq.cli.text import facts, title
from tileq.words import number, percent

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq simulate --policy slai:order=spf --load 0.9 --paying 0.05"

Save = Annotated[Path | None, o.option("Keep the first run (of a cluster all), losslessly (.npz).", o.OUTPUT)]
Export = Annotated[Path | None, o.option("A row per request: .csv or .parquet.", o.OUTPUT)]
Picture = Annotated[
    Literal["queues", "batches", "kv", "hits", "gantt", "nodes", "pools", "tenants"] | None,
    o.option("What to draw; queues (nodes of a cluster).", o.OUTPUT),
]
Cluster = Annotated[str | None, o.option("Nodes, router and link: a file (docs/howto/cluster.md).", o.MACHINE)]
Rate = Annotated[float | None, o.option("Requests/s over all nodes.", o.TRAFFIC, converter=o.number)]
Load = Annotated[float | None, o.option("Rate as a share of capacity.", o.TRAFFIC, converter=o.number)]


def simulate(
    *,
    policy: o.Policy = "sarathi",
    cluster: Cluster = None,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    nodes: o.Nodes = 1,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    trace: o.Trace = None,
    workload: o.Workload = None,
    conversations: o.Conversations = None,
    classes: o.Classes = None,
    rate: Rate = None,
    load: Load = None,
    convention: o.Convention = "engine",
    tbt: o.Tbt = None,
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
    requests: o.Requests = 4000,
    replications: o.Replications = 5,
    seed: o.Seed = 0,
    check: o.Check = False,
    prefix_cache: o.KeepPrefixes = False,
    folder: o.Folder = None,
    save: Save = None,
    export: Export = None,
    plot: o.Plot = None,
    picture: Picture = None,
    json: o.Json = False,
) -> None:
    """Run a policy on simulated time: TTFT, TBT, throughput, stability, with intervals."""
    from tileq import simulating
    from tileq.experiments import ready_file
    from tileq.plots import figure
    from tileq_theory.errors import InputError

    if plot is not None:
        figure.check(plot)
    elif picture is not None:
        raise InputError(f"--picture {picture} without --plot: nowhere to draw it; give --plot FILE")
    if save is not None:
        ready_file("--save", save, (".npz",))
    if export is not None:
        ready_file("--export", export, (".csv", ".parquet"))
    if cluster is not None:
        _of_cluster(locals())
        return
    if picture == "hits" and not prefix_cache:
        raise InputError("--picture hits without --prefix-cache: nothing is looked up; give --prefix-cache")
    answer = simulating.simulate(
        policy,
        rate=rate,
        load=load,
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
        check=check,
        prefix_cache=prefix_cache,
        folder=folder,
        progress=False if json else None,
        gpu=gpu,
        model=model,
        tp=tp,
        nodes=nodes,
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
    if save is not None:
        answer.save(save)
    if export is not None:
        (answer.run.to_csv if export.suffix == ".csv" else answer.run.to_parquet)(export)
    if plot is not None:
        answer.plot(plot, picture or "queues")
    document = answer.to_dict()
    show(document, lambda console: _render(document, console), as_json=json)


# what one replica is asked with, and a cluster's file says for each of its nodes
_OF_ONE_NODE = {"policy": "sarathi", "gpu": "h100-sxm", "model": "llama-3.1-8b", "tp": 1, "nodes": 1, "dtype": "bf16",
                "kv_dtype": None, "memory_utilisation": 0.9, "times": "corrected", "calibration": None, "tbt": None,
                "token_budget": None, "max_num_seqs": None, "kv_tokens": None, "preemption": "recompute",
                "swap_gb_per_s": 25.0, "paying": None, "check": False, "reservation": "policy", "watermark": 0.0,
                "backpressure": None, "control_tbt": None, "prefix_cache": False}  # fmt: skip


_NOWHERE = ("tbt", "paying", "check")
_SPOKEN = {"nodes": "replicas"}


def _of_cluster(given: dict[str, Any]) -> None:
    from tileq.cli.cluster_text import render_cluster
    from tileq.simulating_cluster import simulate_cluster
    from tileq_theory.errors import InputError

    for name, default in _OF_ONE_NODE.items():
        if given[name] != default:
            where = "the file says it for each of its nodes" if name not in _NOWHERE else "it is of a single engine"
            raise InputError(f"--{_SPOKEN.get(name, name.replace('_', '-'))} beside --cluster; {where}")
    names = ["rate", "load", "requests", "replications", "seed", "trace", "workload", "classes", "conversations"]
    names += ["convention", "folder", "tenants", "token_prices"]
    whole = given["save"] is not None or given["export"] is not None
    answer = simulate_cluster(
        given["cluster"],
        keep_runs=whole,
        progress=False if given["json"] else None,
        **{name: given[name] for name in names},
    )
    if given["save"] is not None:
        answer.save(given["save"])
    if given["export"] is not None:
        answer.export(given["export"])
    if given["plot"] is not None:
        answer.plot(given["plot"], given["picture"] or "nodes")
    document = answer.to_dict()
    show(document, lambda console: render_cluster(document, console), as_json=given["json"])


def _render(d: dict[str, Any], console: Console) -> None:
    s = d["setting"]
    heading = f"{d['policy']}: {s['model']} on {s['gpu']}, {s['workload']} at {number(d['rate_per_s'])} requests/s"
    console.print(heading, markup=False, style="bold")
    engine = f"budget {number(s['token_budget'])} tokens, {number(s['max_num_seqs'])} sequences"
    console.print(f"{engine}, {number(s['kv_tokens'])} KV tokens", markup=False, style="dim")
    title(console, f"{d['stable'].capitalize()}, at {percent(d['utilisation'])} of capacity")
    made = f"{d['replications']} runs of {number(s['requests'])} requests"
    lost = f"{number(d['preemptions'])} times, {number(d['recomputed_tokens'])} tokens computed twice"
    if d["swapped_tokens"]:
        lost += f", {number(d['swapped_tokens'])} moved to or from the host"
    rows = [
        ("throughput", f"{number(d['throughput_per_s'])} requests/s"),
        ("busy", percent(d["busy_share"])),
        ("preempted", lost),
        ("from", f"{made}, seed {d['seed']}"),
    ]
    if d["requests"]["rejected"]:
        rejected, offered = d["requests"]["rejected"], d["requests"]["offered"]
        rows.insert(2, ("rejected", f"{number(rejected)} of {number(offered)} requests, see below"))
    if "prefix_cache" in d:
        rows.insert(-1, ("prefix cache", cache_line(d["prefix_cache"])))
    facts(console, rows)
    render_times(d, console)
    render_tenants(d, console)
    render_bottlenecks(d, console)
    render_notes(d["warnings"], console)
