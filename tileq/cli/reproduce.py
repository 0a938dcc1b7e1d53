"""`tileq reproduce`: published results, one command each."""

from __future__ import annotations

__all__ = ["EXAMPLE", "reproduce"]

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tileq.cli import options as o
from tileq.cli.show import show
from tileq.cli.text import paragraph, table, title

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLE = "Example: tileq reproduce dai-batch-time"
Name = Annotated[str, Parameter(help="Items (tileq reproduce --list).")]
List = Annotated[bool, o.option("Name the items.", o.RUNS, name="--list", show_default=False)]
All = Annotated[bool, o.option("Every item.", o.RUNS, name="--all", show_default=False)]
Smoke = Annotated[bool, o.option("Small settings, seconds.", o.RUNS, show_default=False)]
Jobs = Annotated[int | None, o.option("Processes; one a CPU.", o.RUNS, converter=o.whole)]
Fresh = Annotated[bool, o.option("Compute again what is there.", o.RUNS, show_default=False)]
Redraw = Annotated[bool, o.option("Compute nothing; judge and draw.", o.RUNS, show_default=False)]
Out = Annotated[Path, o.option("Folder; resumes from it.", o.OUTPUT)]
Report = Annotated[bool, o.option("Write REPORT.md there.", o.OUTPUT, show_default=False)]


def reproduce(
    *names: Name,
    list_: List = False,
    all_: All = False,
    smoke: Smoke = False,
    seed: o.Seed = 0,
    jobs: Jobs = None,
    fresh: Fresh = False,
    redraw: Redraw = False,
    out: Out = Path("reproduced"),
    report: Report = False,
    json: o.Json = False,
) -> None:
    """Reproduce published results: data, figure and verdict."""
    from tileq import reproducing

    if list_:
        items = reproducing.reproductions()
        show({"schema_version": 1, "items": items}, lambda console: _list(items, console), as_json=json)
        return
    if bool(names) == all_:
        from tileq_theory.errors import InputError

        raise InputError("name items, or ask for --all (tileq reproduce --list names them)")
    answer = reproducing.reproduce(
        None if all_ else names,
        smoke=smoke,
        folder=out,
        seed=seed,
        jobs=jobs,
        fresh=fresh,
        redraw=redraw,
        report=report,
        progress=False if json else None,
    )
    document = answer.to_dict()
    show(document, lambda console: _render(document, console), as_json=json)


def _list(items: list[dict[str, str]], console: Console) -> None:
    table(console, ("item", "source"), [(i["name"], f"{i['paper']}, {i['where']}") for i in items], left=(0, 1))


def _render(d: dict[str, Any], console: Console) -> None:
    for item in d["items"]:
        title(console, f"{item['name']}: {item['verdict']}")
        paragraph(console, item["claim"])
        rows = [(r["quantity"], r["published"], r["ours"], r["verdict"]) for r in item["rows"]]
        table(console, ("", "published", "ours", "verdict"), rows, left=(0, 1, 2, 3))
        for row in item["rows"]:
            if row["reason"]:
                paragraph(console, f"{row['quantity']}: {row['reason']}")
    console.print()
    paragraph(console, f"figures and data in {d['folder']}" + (f"; report {d['report']}" if d["report"] else ""))
