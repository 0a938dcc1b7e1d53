"""REPORT.md, all of it from data: no number in it is typed by hand."""

from __future__ import annotations

__all__ = ["report_text", "write_report"]

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paper_repro.framework.verdict import Row
from tileq_engine.run_io import atomic_write

if TYPE_CHECKING:
    from paper_repro.framework.run import ItemResult

_HEAD = """# Published results, reproduced

Written by `tileq reproduce --all --report`; every number comes from the data beside this file. A number without
chance in it is reproduced when it rounds to the printed digits (or is within 1e-9 of them, relatively), an estimate
when the printed number lies in its interval (level in brackets), a statement when it holds. Where the source prints a
formula, "published" is its value. "Shape only": the direction or order holds, the number does not or was never
printed, for the reason given. Each item runs alone by its command, resumes after a kill, and gives the same numbers
for the same seed.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _wall(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def _command(found: ItemResult) -> str:
    data = found.data
    size = " --smoke" if data.size == "smoke" else ""
    seed = f" --seed {data.seed}" if data.seed else ""
    return f"tileq reproduce {data.item}{size}{seed}"


def _row(row: Row) -> list[str]:
    verdict = f"**{row.verdict}**" if row.verdict == "not reproduced" else row.verdict
    return [row.quantity, row.published, row.ours, verdict, row.reason]


def _section(found: ItemResult) -> str:
    item, data = found.item, found.data
    rows = _table(["quantity", "published", "ours", "verdict", "why, or a remark"], [_row(r) for r in found.rows])
    commit = data.origin.get("commit") or "unknown"
    facts = (
        f"`{_command(found)}`: {_wall(data.wall_s)} of one core, commit {commit}.\n\n"
        f"Source: {item.paper}, {item.where}. Here: {item.simulated}\n"
    )
    picture = f"![{item.name}]({found.figure.name})\n"
    return f"## {item.name}\n\n{item.claim}\n\n{facts}\n{rows}\n{picture}"


def report_text(results: Sequence[ItemResult]) -> str:
    """Return the report on these items."""
    lines = [
        [f"[{r.item.name}](#{r.item.name})", f"{r.item.paper}, {r.item.where}", r.verdict, _wall(r.data.wall_s)]
        for r in results
    ]
    total = sum(r.data.wall_s for r in results)
    counts = [row.verdict for r in results for row in r.rows]
    tally = ", ".join(f"{counts.count(v)} {v}" for v in ("reproduced", "shape only", "not reproduced"))
    overview = _table(["item", "source", "rows", "time of one core"], lines)
    versions = dict(results[0].data.origin.get("versions", {})) if results else {}
    made = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    head = (
        f"{_HEAD}\n{len(results)} items, {len(counts)} rows: {tally}. Computing: {_wall(total)} of one core. {made}.\n"
    )
    return "\n".join([head, overview, *(_section(r) for r in results)])


def write_report(results: Sequence[ItemResult], path: Path) -> Path:
    """Write the report and return its path."""
    text = report_text(results)
    atomic_write(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path
