"""`tileq region`: read the options, find the region, show it."""

from __future__ import annotations

__all__ = ["EXAMPLE", "region"]

from typing import TYPE_CHECKING, Annotated, Any

from tileq.cli import options as o
from tileq.cli.show import show
from tileq.cli.text import facts, paragraph, table, title
from tileq.words import number, percent

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq region --class 1024:256 --class 8192:32 --at 5,1"

At = Annotated[str | None, o.option("Rates to judge, one a class: r1,r2,...", o.TRAFFIC, allow_leading_hyphen=True)]


def region(
    *,
    gpu: o.Gpu = "h100-sxm",
    model: o.Model = "llama-3.1-8b",
    tp: o.Tp = 1,
    nodes: o.Nodes = 1,
    dtype: o.Dtype = "bf16",
    kv_dtype: o.KvDtype = None,
    memory_utilisation: o.MemoryUtilisation = 0.9,
    times: o.TimesOf = "corrected",
    calibration: o.Calibration = None,
    classes: o.Classes = None,
    at: At = None,
    convention: o.Convention = "engine",
    tbt: o.Tbt = None,
    max_num_seqs: o.MaxNumSeqs = None,
    max_tokens: o.MaxTokens = 8192,
    plot: o.Plot = None,
    json: o.Json = False,
) -> None:
    """Find the rates of several request classes beyond which no policy is stable."""
    from tileq import regions
    from tileq.plots import figure

    if plot is not None:
        figure.check(plot)
    answer = regions.region(
        classes,
        gpu=gpu,
        model=model,
        tp=tp,
        nodes=nodes,
        dtype=dtype,
        kv_dtype=kv_dtype,
        memory_utilisation=memory_utilisation,
        times=times,
        calibration=calibration,
        at=None if at is None else _rates(at),
        convention=convention,
        tbt=tbt,
        max_num_seqs=max_num_seqs,
        max_tokens=max_tokens,
    )
    if plot is not None:
        answer.plot(plot)
    document = answer.to_dict()
    show(document, lambda console: _render(document, console), as_json=json)


def _rates(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        from tileq_theory.errors import InputError

        raise InputError(f"--at is {text!r}; expected numbers with commas between them, one a class") from None


def _render(d: dict[str, Any], console: Console) -> None:
    names = [c["name"] for c in d["classes"]]
    console.print(
        f"{d['model']['name']} on {d['gpu']['name']}: rates beyond which no policy is stable",
        markup=False,
        style="bold",
    )
    facts(console, [(c["name"], c["lengths"]) for c in d["classes"]])
    if d["at"] is not None:
        _judge(d["at"], console)
    title(console, "Facets: the sum over classes of load x rate stays at most 1")
    rows = [(*(percent(price) for price in f["prices"]), f["binding"].replace("_", " ")) for f in d["facets"]]
    table(console, (*names, "binds"), rows, left=(len(names),))
    title(console, "Corners, requests/s" if d["complete"] else "Points of the boundary, requests/s")
    table(console, names, [[number(rate) for rate in corner] for corner in d["vertices"]])
    if not d["complete"]:
        paragraph(console, "More classes than facets are listed for: --at judges any rates exactly.")
    title(console, "How far to trust it")
    low, high = d["error_band"]["low"], d["error_band"]["high"]
    band = d["error_band"]["basis"]
    scale = "" if low == high else f"; all rates times {number(low)} to {number(high)}"
    facts(console, [("error band", band + scale), *(("note", warning) for warning in d["warnings"])])


def _judge(at: dict[str, Any], console: Console) -> None:
    title(console, f"At {', '.join(number(rate) for rate in at['rates_per_s'])} requests/s")
    rows = [("", "inside: no bound rules it out" if at["inside"] else "outside: no policy serves it")]
    rows.append(("load", percent(at["utilisation"])))
    if at["headroom"] is not None:
        rows.append(("all rates times", f"{number(at['headroom'])} reach the boundary"))
    if at["distance_per_s"] is not None:
        rows.append(("distance", f"{number(abs(at['distance_per_s']))} requests/s to the boundary"))
    facts(console, rows)
