"""`tileq plan`: read the options, make the plan, show it."""

from __future__ import annotations

__all__ = ["EXAMPLE", "plan"]

from typing import Annotated, Any

from tileq.cli import options as o
from tileq.cli.show import show

EXAMPLE = "Example: tileq plan --gpu a100-sxm-80gb --workload chat --tbt 0.05"

Rate = Annotated[float | None, o.option("Requests/s to serve: headroom, replicas.", o.TRAFFIC, converter=o.number)]
Check = Annotated[bool, o.option("Simulate the plan against its capacity.", o.OUTPUT, show_default=False)]
Cluster = Annotated[str | None, o.option("File of nodes and link: docs/howto/cluster.md.", o.MACHINE)]
Disaggregate = Annotated[bool, o.option("Also as prefill and decode pools.", o.MACHINE, show_default=False)]
Link = Annotated[float | None, o.option("With it: a node's port, GB/s; 50.", o.MACHINE, converter=o.number)]
Fabric = Annotated[float | None, o.option("With it: all transfers, GB/s; no limit.", o.MACHINE, converter=o.number)]
Router = Annotated[str | None, o.option("Who is sent where, with --prefix-cache.", o.MACHINE)]
Ttft = Annotated[float | None, o.option("First token wanted within, seconds.", o.LIMITS, converter=o.number)]


def plan(
    *,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    nodes: o.Nodes = 1,
    cluster: Cluster = None,
    disaggregate: Disaggregate = False,
    link: Link = None,
    fabric: Fabric = None,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    trace: o.Trace = None,
    workload: o.Workload = None,
    classes: o.Classes = None,
    conversations: o.Conversations = None,
    prefix_cache: o.PrefixCache = None,
    router: Router = None,
    rate: Rate = None,
    convention: o.Convention = "engine",
    tbt: o.Tbt = None,
    ttft: Ttft = None,
    max_num_seqs: o.MaxNumSeqs = None,
    max_tokens: o.MaxTokens = 8192,
    engine: o.Engine = "vllm",
    check: Check = False,
    plot: o.Plot = None,
    json: o.Json = False,
) -> None:
    """Find the throughput-optimal tile, what it carries and why, and the flags to set."""
    from tileq import planning
    from tileq.cli.plan_text import render_plan
    from tileq.plots import figure

    if cluster is not None:
        _of_cluster(locals())
        return
    if plot is not None:
        figure.check(plot)
    answer = planning.plan(
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
        classes=classes,
        rate=rate,
        convention=convention,
        tbt=tbt,
        ttft=ttft,
        max_num_seqs=max_num_seqs,
        max_tokens=max_tokens,
        engine=engine,
        conversations=conversations,
        prefix_cache=prefix_cache,
        router=router,
        disaggregate=disaggregate,
        link=link,
        fabric=fabric,
    )
    if plot is not None:
        answer.plot(plot)
    document = answer.to_dict()
    if check:
        document["check"] = answer.check()
    show(document, lambda console: render_plan(document, console), as_json=json)


_OF_ONE_KIND = {"gpu": "h100-sxm", "model": "llama-3.1-8b", "tp": 1, "nodes": 1, "disaggregate": False, "link": None,
                "fabric": None, "dtype": "bf16", "kv_dtype": None, "memory_utilisation": 0.9, "times": "corrected",
                "calibration": None, "prefix_cache": None, "router": None, "tbt": None, "ttft": None,
                "max_num_seqs": None, "max_tokens": 8192, "engine": "vllm", "check": False, "plot": None}  # fmt: skip


def _of_cluster(given: dict[str, Any]) -> None:
    from tileq.cli.cluster_text import render_cluster_plan
    from tileq.planning_cluster import plan_cluster
    from tileq_theory.errors import InputError

    for name, default in _OF_ONE_KIND.items():
        if given[name] != default:
            raise InputError(
                f"--{name.replace('_', '-')} beside --cluster, which is a question of its own; leave it out"
            )
    names = ("rate", "trace", "workload", "classes", "conversations", "convention")
    document = plan_cluster(given["cluster"], **{name: given[name] for name in names}).to_dict()
    show(document, lambda console: render_cluster_plan(document, console), as_json=given["json"])
