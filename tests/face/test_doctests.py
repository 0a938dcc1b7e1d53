"""Every example in a docstring runs.

Examples are taken from the source, not from the imported objects: under the shape-checking hook a function is a
wrapper, and doctest's own finder would pass over it in silence.
"""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "tileq": ROOT / "tileq",
    "tileq_theory": ROOT / "theory" / "tileq_theory",
    "tileq_engine": ROOT / "engine" / "tileq_engine",
    "tileq_profiling": ROOT / "profiling" / "tileq_profiling",
    "paper_repro": ROOT / "paper_repro",
}
OPTIONAL = ("torch", "triton", "marimo")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> Iterator[tuple[str, Path]]:
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[-1] != "__main__":
                yield ".".join((package, *(p for p in parts if p != "__init__"))), path


def examples(name: str, path: Path) -> Iterator[doctest.DocTest]:
    parser = doctest.DocTestParser()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, DOCUMENTED) else None
        if text and ">>>" in text:
            scope = dict(vars(importlib.import_module(name)))
            line = getattr(node, "lineno", 1)
            yield parser.get_doctest(text, scope, f"{name}:{getattr(node, 'name', '')}", str(path), line)


def missing(name: str) -> str | None:
    """Import the module; return the package it lacks, if that is one which only an extra or a GPU's torch brings."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name in OPTIONAL:
            return error.name
        raise
    return None


@pytest.mark.parametrize(("name", "path"), list(sources()), ids=lambda value: value if isinstance(value, str) else "")
def test_docstring_examples(name: str, path: Path) -> None:
    if lacks := missing(name):
        pytest.skip(f"{name} needs {lacks}, which is not installed")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
    report: list[str] = []
    for example in examples(name, path):
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


def test_the_examples_are_found() -> None:
    """A change of layout must not make this file test nothing."""
    assert sum(1 for name, path in sources() if not missing(name) for _ in examples(name, path)) >= 1
