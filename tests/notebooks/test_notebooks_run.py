"""Every notebook runs from top to bottom at smoke size, with solved exercises, in a kernel of its own."""

from __future__ import annotations

import json
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from notebook_solutions import SOLUTIONS

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
BEFORE = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import watch_figures"
MOST_CPU_S = 60.0
SMALLEST_POINTS = 8.0

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])


@cache
def run(path: Path, size: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the cells after the run, and what `watch_figures` saw."""
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        asked = re.search(r"ex(\d\d)\.exercise_(\d)\(answer\)", cell.source)
        if cell.cell_type == "code" and asked:
            cell.source = cell.source.replace("answer = ...", SOLUTIONS[int(asked[1]), int(asked[2])])
    cells = [nbformat.v4.new_code_cell(BEFORE), *notebook.cells, nbformat.v4.new_code_cell("watch_figures.report()")]
    notebook.cells = cells
    environment = {
        **os.environ,
        "TILEQ_NOTEBOOK_SIZE": size,
        "PYTHONPATH": os.pathsep.join(part for part in sys.path if part),
        "IPYTHONDIR": os.environ.get("IPYTHONDIR", str(Path.home() / ".ipython")),
    }
    client = NotebookClient(
        notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute(env=environment)
    seen = json.loads(eval(notebook.cells[-1].outputs[0].data["text/plain"]))
    return notebook.cells[1:-1], seen


def outputs(cells: list[Any]) -> str:
    found = []
    for cell in cells:
        for output in cell.get("outputs", []):
            found.append(output.get("text", "") or output.get("data", {}).get("text/plain", ""))
    return "\n".join(found)


@each_notebook
def test_it_runs_and_the_solutions_are_right(path: Path) -> None:
    cells, _ = run(path, "smoke")
    verdicts = re.findall(r"^(Right|Not yet|No answer yet): (.*)", outputs(cells), flags=re.MULTILINE)
    assert [kind for kind, _ in verdicts] == ["Right"] * 3, verdicts


@each_notebook
def test_it_is_quick_at_smoke_size(path: Path) -> None:
    """CPU seconds of the kernel: a busy machine stretches the wall clock, not these."""
    _, seen = run(path, "smoke")
    assert seen["cpu_s"] < MOST_CPU_S


@each_notebook
def test_its_figures_say_what_their_axes_are(path: Path) -> None:
    _, seen = run(path, "smoke")
    assert len(seen["figures"]) >= 3
    for axes in seen["figures"]:
        assert axes["named"], axes
        assert axes["small"] >= SMALLEST_POINTS, axes


@each_notebook
def test_nothing_is_left_behind(path: Path) -> None:
    """No warning on the error stream, and no file beside the notebooks."""
    before = {file.name for file in FOLDER.iterdir()} - {"__pycache__", ".ipynb_checkpoints"}
    cells, _ = run(path, "smoke")
    stderr = [o.text for c in cells for o in c.get("outputs", []) if o.output_type == "stream" and o.name == "stderr"]
    assert stderr == []
    assert {file.name for file in FOLDER.iterdir()} - {"__pycache__", ".ipynb_checkpoints"} == before


@pytest.mark.campaign
@each_notebook
def test_the_full_size_runs_too(path: Path) -> None:
    cells, seen = run(path, "full")
    assert outputs(cells).count("Right: ") == 3
    assert seen["cpu_s"] < 300
