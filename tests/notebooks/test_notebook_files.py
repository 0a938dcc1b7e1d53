"""Notebooks as files: no stored output, nothing of the machine they were written on, cells that can be read."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
CLEAR = "run: jupyter nbconvert --clear-output --inplace notebooks/*.ipynb"
CODE_LINES, TEXT_LINES, TEXT_LETTERS, LINE = 26, 26, 1900, 140
ABSOLUTE = re.compile(r"""["'(`\s](?:/(?:home|root|tmp|work|usr|var|mnt|data|Users|opt)/|[A-Za-z]:\\)""")

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem[:2])


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def faults(notebook: dict[str, Any]) -> list[str]:
    """Return what is wrong with a notebook, one line each."""
    found = []
    for place, cell in enumerate(notebook["cells"], 1):
        text, where = source(cell), f"cell {place}"
        lines = text.splitlines()
        if cell["cell_type"] == "code":
            if cell["outputs"] or cell["execution_count"] is not None:
                found.append(f"{where} holds outputs or an execution count; {CLEAR}")
            if len(lines) > CODE_LINES:
                found.append(f"{where} has {len(lines)} lines of code; expected at most {CODE_LINES}")
        elif len(lines) > TEXT_LINES or len(text) > TEXT_LETTERS:
            found.append(
                f"{where} has {len(lines)} lines and {len(text)} letters; expected {TEXT_LINES}, {TEXT_LETTERS}"
            )
        if cell.get("attachments") or set(cell["metadata"]) - {"tags", "jupyter"}:
            found.append(f"{where} holds attachments or metadata of an editor: {sorted(cell['metadata'])}")
        if ABSOLUTE.search(text):
            found.append(f"{where} holds an absolute path")
        found += [f"{where} has a line of {len(line)} letters" for line in lines if len(line) > LINE]
    allowed = {"kernelspec", "language_info"}
    if set(notebook["metadata"]) - allowed:
        found.append(f"metadata {sorted(set(notebook['metadata']) - allowed)}; {CLEAR}")
    if notebook["metadata"]["language_info"] != {"name": "python"}:
        found.append("language_info tells whose Python it was; expected the name alone")
    return found


@each_notebook
def test_a_notebook_is_valid_and_clean(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    nbformat.validate(nbformat.reads(text, 4))
    assert faults(json.loads(text)) == []


def test_there_are_seven_in_order() -> None:
    assert [path.name[:3] for path in NOTEBOOKS] == [f"{i:02d}_" for i in range(1, 8)]


def good() -> dict[str, Any]:
    cells: list[dict[str, Any]] = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": ["x = 1"]},
        {"cell_type": "markdown", "metadata": {}, "source": ["$a/b$ and `docs/plan.md`"]},
    ]
    return {"cells": cells, "metadata": {"language_info": {"name": "python"}}}


@pytest.mark.parametrize(
    ("cell", "change", "said"),
    [
        (0, {"outputs": [{"output_type": "stream", "text": ["1"]}]}, "outputs"),
        (0, {"execution_count": 3}, "execution count"),
        (0, {"source": ["open('/home/me/trace.csv')"]}, "absolute path"),
        (0, {"source": [r'open("C:\traces\a.csv")']}, "absolute path"),
        (1, {"source": ["see /tmp/out.svg"]}, "absolute path"),
        (0, {"source": ["x = 1\n"] * (CODE_LINES + 1)}, "lines of code"),
        (1, {"source": ["word " * TEXT_LETTERS]}, "letters"),
        (0, {"metadata": {"vscode": {}}}, "editor"),
    ],
)
def test_a_fault_is_seen(cell: int, change: dict[str, Any], said: str) -> None:
    notebook = good()
    assert faults(notebook) == []
    notebook["cells"][cell].update(change)
    assert any(said in fault for fault in faults(notebook))


# ---------------------------------------------------------------------- what each notebook has


@each_notebook
def test_it_begins_and_ends_as_all_do(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = [source(cell) for cell in cells if cell["cell_type"] == "markdown"]
    code = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    number = int(path.name[:2])
    assert texts[0].startswith(f"# {number}. ")
    assert "size = start()" in code[0]
    assert any(text.startswith("## Look first") for text in texts[:3]), "plots before prose"
    assert sum("**Notice**" in text for text in texts) >= 2 and any("**Change**" in text for text in texts)
    assert "## To take away" in texts[-1]
    asked = [text for text in code if f"ex{number:02d}.exercise_" in text]
    assert [re.search(r"exercise_(\d)\(answer\)", text)[1] for text in asked] == ["1", "2", "3"]  # type: ignore[index]
    assert all("answer = ...\n" in text for text in asked), "answers are the reader's"


@each_notebook
def test_no_result_is_typed_in(path: Path) -> None:
    """Cells print what the library computes: no call of print with a decimal number written out in its text."""
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        for node in ast.walk(ast.parse(source(cell))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                formats = [part.format_spec for part in ast.walk(node) if isinstance(part, ast.FormattedValue)]
                allowed = {id(part) for spec in formats if spec for part in ast.walk(spec)}
                typed = [p.value for p in ast.walk(node) if isinstance(p, ast.Constant) and id(p) not in allowed]
                assert not [text for text in typed if isinstance(text, str) and re.search(r"\d[.,]\d", text)], typed


def test_links_between_notebooks_and_documents_lead_somewhere() -> None:
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", source(cell)):
                    assert "://" in target or (FOLDER / target).exists(), f"{path.name} links to {target}"
