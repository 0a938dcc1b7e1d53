"""`tileq profile`: measure this machine, say what was measured."""

from __future__ import annotations

__all__ = ["EXAMPLE", "profile"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tileq.cli import options as o
from tileq.cli.show import show
from tileq.cli.text import facts, title
from tileq.words import number, seconds

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq profile --device cuda --model llama-3.1-8b --out mine.csv"

Device = Annotated[str, o.option("cpu, cuda or cuda:NUMBER.", o.MACHINE)]
Shape = Annotated[str | None, o.option("Name or config.json; a small Llama.", o.MACHINE)]
Dtype = Annotated[str | None, o.option("fp32 (CPU), bf16 (CUDA) or fp16.", o.MACHINE)]
Threads = Annotated[int, o.option("Torch threads on a CPU.", o.MACHINE, converter=o.whole)]
Budget = Annotated[float, o.option("Seconds it may take.", o.RUNS, converter=o.number)]
Out = Annotated[Path, o.option("Profile to write: .csv or .parquet.", o.OUTPUT)]


def profile(
    *,
    out: Out,
    device: Device = "cpu",
    model: Shape = None,
    dtype: Dtype = None,
    threads: Threads = 1,
    budget: Budget = 120.0,
    json: o.Json = False,
) -> None:
    """Measure iteration times on this machine (needs the extra tileq[torch])."""
    from tileq import measuring

    answer = measuring.profile(
        device=device,
        model=model,
        dtype=dtype,
        threads=threads,
        budget=budget,
        out=out,
        progress=False if json else None,
    )
    document = answer.to_dict()
    show(document, lambda console: _render(document, console), as_json=json)


def _render(d: dict[str, Any], console: Console) -> None:
    c = d["conditions"]
    console.print(f"{c['model']} on {c['device']}, {c['dtype']}", markup=False, style="bold")
    phases = ", ".join(f"{number(count)} {name}" for name, count in d["phases"].items())
    facts(
        console,
        [
            ("iterations", f"{number(d['points'])} batches measured: {phases}"),
            ("up to", f"{number(d['most_tokens'])} tokens"),
            ("times", f"{seconds(d['shortest_s'])} to {seconds(d['longest_s'])}"),
            ("written to", str(d["file"])),
            ("next", f"tileq calibrate {d['file']} --out mine.json"),
        ],
    )
    if c["notes"]:
        title(console, "To know")
        facts(console, [("note", text) for text in c["notes"]])
