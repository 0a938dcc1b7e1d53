"""`tileq analyze modes`: the same nodes in three ways under one objective, by simulation beside their programs."""

from __future__ import annotations

__all__ = ["COMMANDS"]

from typing import TYPE_CHECKING, Annotated, Any

from tileq.cli import options as o
from tileq.cli.analyze_show import present

if TYPE_CHECKING:
    from tileq.analysis import Analysis

Ttft = Annotated[float, o.option("p90 of TTFT within, s.", o.LIMITS, converter=o.number)]
Tbt = Annotated[float, o.option("p99 of TBT within, s.", o.LIMITS, converter=o.number)]
Link = Annotated[float | None, o.option("GB/s of a node's port; 50.", o.MACHINE, converter=o.number)]
Poisson = Annotated[bool, o.option("Poisson instead of recorded arrivals.", o.TRAFFIC, show_default=False)]


def modes(
    *,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    nodes: o.Nodes = 8,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    link: Link = None,
    trace: o.Trace = None,
    workload: o.Workload = None,
    classes: o.Classes = None,
    poisson: Poisson = False,
    slo_ttft: Ttft = 2.0,
    slo_tbt: Tbt = 0.1,
    requests: o.Requests = 4000,
    replications: o.Replications = 3,
    seed: o.Seed = 0,
    folder: o.Folder = None,
    json: o.Json = False,
) -> None:
    """Mixing, taking turns, nodes apart: what each carries within one objective."""
    given: dict[str, Any] = {k: v for k, v in locals().items() if k != "json"}

    def make() -> Analysis:
        from tileq import analysis

        return analysis.modes(**given, progress=False if json else None)

    present(make, plot=None, json=json)


COMMANDS = ((modes, "Example: tileq analyze modes --class 2048:128 --nodes 4 --requests 400"),)
