"""`tileq analyze chain | fluid | certificate | disaggregate`: questions about nodes with an iteration time."""

from __future__ import annotations

__all__ = ["COMMANDS"]

from typing import Annotated, Any

from tileq.cli import options as o
from tileq.cli.analyze_show import present

Time = Annotated[str | None, o.option("Coefficients: launch_s=.01,token_s=5e-5.", o.MACHINE)]
Class = Annotated[str, o.option("P:O tokens.", o.TRAFFIC, name="--class")]
Rate = Annotated[float | None, o.option("Requests/s.", o.TRAFFIC, converter=o.number)]
OneRate = Annotated[float, o.option("Requests/s.", o.TRAFFIC, converter=o.number)]
Load = Annotated[float | None, o.option("Share of capacity; 0.8.", o.TRAFFIC, converter=o.number)]
Residents = Annotated[int, o.option("Most requests served at a time.", o.ENGINE, converter=o.whole)]
Budget = Annotated[int, o.option("Tokens of an iteration.", o.ENGINE, converter=o.whole)]
Tile = Annotated[int | None, o.option("rad: tokens of its tile.", o.ENGINE, converter=o.whole)]
FreeSlots = Annotated[int | None, o.option("theta, threshold: k.", o.ENGINE, converter=o.whole)]
Laws = Annotated[bool, o.option("Quantiles of waiting and TTFT.", o.OUTPUT, show_default=False)]
Rule = Annotated[str, o.option("decode-first, prefill-first, rad, theta, static.", o.ENGINE)]
FluidRule = Annotated[str, o.option("decode-first, prefill-first, prefills-mixed, rad, threshold.", o.ENGINE)]
Proof = Annotated[
    str, o.option("work-conserving, rad, exclusive, rybko-stolyar, rybko-stolyar-entry-first, lu-kumar.", o.ENGINE)
]
Services = Annotated[str | None, o.option("Network: four mean times, s, commas between.", o.TRAFFIC)]
Waiting = Annotated[float, o.option("Prefill tokens at time 0.", o.TRAFFIC, converter=o.number)]
Horizon = Annotated[float, o.option("Seconds looked ahead.", o.LIMITS, converter=o.number)]
Link = Annotated[float, o.option("Bytes/s of a node's link.", o.MACHINE, converter=o.number)]
KvBytes = Annotated[float | None, o.option("Bytes moved a token; the model's.", o.MACHINE, converter=o.number)]


def chain(
    *,
    time: Time = None,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    requests: Class = "512:64",
    rate: Rate = None,
    load: Load = None,
    convention: o.Convention = "engine",
    policy: Rule = "decode-first",
    residents: Residents = 8,
    token_budget: o.TokenBudget = None,
    tile_tokens: Tile = None,
    free_slots: FreeSlots = None,
    laws: Laws = False,
    json: o.Json = False,
) -> None:
    """Exact Markov chain of one replica: waiting, TTFT, number in system."""
    given = {k: v for k, v in locals().items() if k not in ("json", "requests")}
    present(lambda: _analysis("chain", requests, given), plot=None, json=json)


def fluid(
    *,
    time: Time = None,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    requests: Class = "512:64",
    rate: Rate = None,
    load: Load = None,
    convention: o.Convention = "engine",
    waiting_tokens: Waiting = 100_000.0,
    horizon: Horizon = 600.0,
    policy: FluidRule = "decode-first",
    token_budget: Budget = 512,
    residents: Residents = 128,
    free_slots: FreeSlots = None,
    plot: o.Plot = None,
    json: o.Json = False,
) -> None:
    """Fluid limit of one replica: rest, drain, slope under overload."""
    given = {k: v for k, v in locals().items() if k not in ("json", "plot", "requests")}
    present(lambda: _analysis("fluid", requests, given), plot=plot, json=json)


def certificate(
    *,
    time: Time = None,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    requests: Class = "512:64",
    rate: OneRate = 1.0,
    services: Services = None,
    convention: o.Convention = "engine",
    policy: Proof = "work-conserving",
    token_budget: Budget = 512,
    residents: Residents = 128,
    json: o.Json = False,
) -> None:
    """Proof of stability or growth, checked in exact arithmetic."""
    given = {k: v for k, v in locals().items() if k not in ("json", "requests", "services")}
    given["services"] = None if services is None else o.numbers("--services", services)
    present(lambda: _analysis("certificate", requests, given), plot=None, json=json)


def disaggregate(
    *,
    time: Time = None,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    nodes: o.Nodes = 8,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    link_bytes_per_s: Link = 50e9,
    kv_bytes_per_token: KvBytes = None,
    requests: Class = "2048:256",
    convention: o.Convention = "engine",
    tbt: o.Tbt = None,
    max_num_seqs: o.MaxNumSeqs = None,
    max_tokens: o.MaxTokens = 8192,
    plot: o.Plot = None,
    json: o.Json = False,
) -> None:
    """Prefill and decode nodes against mixing: which carries more."""
    given = {k: v for k, v in locals().items() if k not in ("json", "plot", "requests")}
    present(lambda: _analysis("disaggregate", requests, given), plot=plot, json=json)


def _analysis(what: str, requests: str, given: dict[str, Any]) -> Any:
    from tileq import analysis

    return getattr(analysis, what)(requests, **given)


COMMANDS = (
    (chain, "Example: tileq analyze chain --class 512:64 --residents 16 --load 0.9 --laws"),
    (fluid, "Example: tileq analyze fluid --load 0.9 --plot plane.svg"),
    (certificate, "Example: tileq analyze certificate --policy rybko-stolyar --rate 1"),
    (disaggregate, "Example: tileq analyze disaggregate --class 4096:128 --nodes 8 --tbt 0.05"),
)
