"""`tileq validate`: real runs around lambda*, predicted against measured."""

from __future__ import annotations

__all__ = ["EXAMPLE", "validate"]

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tileq.cli import options as o
from tileq.cli.show import show
from tileq.cli.text import facts, paragraph, table, title
from tileq.words import number, seconds

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq validate --folder mine --report mine.html    (ten minutes)"

Runner = Annotated[str, o.option("torch, or vllm (where it is installed).", o.MACHINE)]
Shape = Annotated[str, o.option("small, a folder, or a name.", o.MACHINE)]
Device = Annotated[str, o.option("cpu, cuda or cuda:NUMBER.", o.MACHINE)]
Dtype = Annotated[str | None, o.option("fp32 (CPU), bf16 (CUDA) or fp16.", o.MACHINE)]
Threads = Annotated[int, o.option("Torch threads on a CPU.", o.MACHINE, converter=o.whole)]
CalibrationFile = Annotated[str | None, o.option("Fit to judge; None: its own profile.", o.MACHINE)]
Policies = Annotated[str, o.option("Comma-separated, as --policy takes them.", o.ENGINE)]
Fractions = Annotated[str | None, o.option("Of lambda*, as 0.7,0.9,1.1.", o.ENGINE)]
MaxTokens = Annotated[int | None, o.option("Largest batch considered, tokens.", o.LIMITS, converter=o.whole)]
Seats = Annotated[int, o.option("Most sequences in a batch.", o.LIMITS, converter=o.whole)]
Requests = Annotated[int, o.option("Requests of a case.", o.RUNS, converter=o.whole)]
Budget = Annotated[float, o.option("Seconds it may take.", o.RUNS, converter=o.number)]
Clock = Annotated[str | None, o.option("steady, cpu, busy or wall.", o.RUNS)]
Anew = Annotated[bool, o.option("Begin anew in --folder.", o.RUNS, show_default=False)]
Smoke = Annotated[bool, o.option("Tiny: shows that it runs.", o.RUNS, show_default=False)]
Server = Annotated[
    bool | None,
    Parameter(
        help="vLLM: a server too, or only offline.",
        group=o.RUNS,
        name="--server",
        negative="--no-server",
        show_default=False,
    ),
]
Out = Annotated[Path | None, o.option("Write the report as Markdown.", o.OUTPUT)]
Report = Annotated[Path | None, o.option("Write the report as HTML.", o.OUTPUT)]


def validate(
    *,
    executor: Runner = "torch",
    model: Shape = "small",
    device: Device = "cpu",
    dtype: Dtype = None,
    threads: Threads = 1,
    calibration: CalibrationFile = None,
    classes: o.Classes = None,
    workload: o.Workload = None,
    trace: o.Trace = None,
    policies: Policies = "rad_general,sarathi,slai",
    fractions: Fractions = None,
    requests: Requests = 800,
    max_num_seqs: Seats = 64,
    token_budget: o.TokenBudget = None,
    max_tokens: MaxTokens = None,
    kv_tokens: o.KvTokens = None,
    preemption: o.Preemption = "recompute",
    clock: Clock = None,
    budget: Budget = 600.0,
    seed: o.Seed = 0,
    folder: o.Folder = None,
    anew: Anew = False,
    smoke: Smoke = False,
    server: Server = None,
    out: Out = None,
    report: Report = None,
    json: o.Json = False,
) -> None:
    """Run the real executor around lambda*, predicted against measured (needs the extra tileq[torch])."""
    from tileq import validating
    from tileq.calibrating import writable
    from tileq.cli.validate_vllm import refuse, render_vllm
    from tileq.experiments import parse_rates
    from tileq_theory.errors import InputError

    if executor not in ("torch", "vllm"):
        raise InputError(f"executor is {executor!r}; expected torch or vllm")
    refuse(
        executor,
        {"calibration": calibration, "dtype": dtype, "smoke": smoke or None},
        {"threads": threads != 1, "preemption": preemption != "recompute", "budget": budget != 600.0},
        server,
    )
    for path in (out, report):
        if path is not None:
            writable(path)
    common: dict[str, Any] = {
        "model": model,
        "device": device,
        "classes": classes,
        "workload": workload,
        "trace": trace,
        "policies": [name.strip() for name in policies.split(",")],
        "fractions": None if fractions is None else parse_rates(fractions),
        "requests": requests,
        "max_num_seqs": max_num_seqs,
        "token_budget": token_budget,
        "max_tokens": max_tokens,
        "kv_tokens": kv_tokens,
        "clock": clock,
        "seed": seed,
        "folder": folder,
        "resume": not anew,
        "say": _say,
    }
    if executor == "vllm":
        from tileq.validating_vllm import validate_vllm

        answer = validate_vllm(**common, server=server is not False)
    else:
        answer = validating.validate(
            **common,
            dtype=dtype,
            threads=threads,
            calibration=calibration,
            preemption=preemption,
            budget=budget,
            smoke=smoke,
            live=False if json else None,
        )
    if out is not None:
        out.write_text(answer.text(), encoding="utf-8")
    if report is not None:
        answer.report(report)
    document = answer.to_dict()
    render = render_vllm if executor == "vllm" else _render
    show(document, lambda console: render(document, console), as_json=json)
    if json:
        return
    for name, path in (("Report", out), ("Page", report)):
        if path is not None:
            sys.stdout.write(f"{name} written to {path}\n")
    if not answer.complete:
        sys.stdout.write("Not complete: run again with the same --folder to go on.\n")


def _render(d: dict[str, Any], console: Console) -> None:
    s = d["summary"]
    console.print(d["title"], style="bold", markup=False)
    facts(
        console,
        [
            ("model", d["conditions"]["model"]),
            ("engine", d["conditions"]["engine"]),
            ("lambda*", f"{number(s['rate_per_s'])}/s from its own profile of {d['fit']['points']} batches"),
            ("against the edge", _percent(s["rate_over_best_edge"])),
            ("iterations", f"off by {_percent(s['iteration_error']['median'])} in the median"),
            ("replayed", "to the picosecond" if s["replays_same"] else "NOT the same"),
        ],
    )
    title(console, "Edge of stability, requests/s")
    rows = [
        (n, _rate(e["measured_per_s"]), _rate(e["simulated_per_s"]), _percent(e["rate_over_measured"]))
        for n, e in s["edges"].items()
    ]
    table(console, ("policy", "measured", "simulated", "lambda* over it"), rows, left=(0,))
    title(console, "Loads around it (simulated over measured)")
    loads = [
        (
            row["policy"],
            f"{row['fraction']:g}",
            "-" if row["load"] is None else f"{row['load']:.3f}",
            row["verdict"],
            "-" if row["ttft_p50_s"] is None else seconds(row["ttft_p50_s"]),
            _percent(row["ttft_p50_simulated_over_measured"]),
            "-" if row["tbt_p99_s"] is None else seconds(row["tbt_p99_s"]),
            _percent(row["tbt_p99_simulated_over_measured"]),
        )
        for row in sorted(s["loads"], key=lambda r: (r["policy"], r["fraction"]))
    ]
    table(console, ("policy", "of l*", "load", "verdict", "TTFT p50", "", "TBT p99", ""), loads, left=(0, 3))
    for text in d["warnings"]:
        paragraph(console, text)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.1f} %"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
