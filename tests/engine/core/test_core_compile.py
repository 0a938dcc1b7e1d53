"""The kernel module: names are unique, the cache moves with the source, an unwritable cache is no obstacle."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tileq_engine import compile as kernels


def test_no_two_kernels_or_constants_share_a_name() -> None:
    functions: dict[str, str] = {}
    constants: dict[str, str] = {}
    for node in ast.parse(kernels._sources()).body:
        if isinstance(node, ast.FunctionDef):
            assert node.name not in functions
            functions[node.name] = ""
        elif isinstance(node, ast.Assign):
            for name, value in _pairs(node):
                assert constants.setdefault(name, value) == value, name
    assert "run_until" in functions and "mix_chunked" in functions


def _pairs(node: ast.Assign) -> list[tuple[str, str]]:
    target = node.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return [(ast.unparse(t), ast.unparse(v)) for t, v in zip(target.elts, node.value.elts, strict=True)]
    return [(ast.unparse(target), ast.unparse(node.value))]


def test_plain_and_compiled_have_the_same_kernels() -> None:
    plain, compiled = kernels.plain_kernels(), kernels.compiled_kernels()
    names = {n.name for n in ast.parse(kernels._sources()).body if isinstance(n, ast.FunctionDef)}
    assert all(name in plain and name in compiled for name in names)


def test_an_edit_moves_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEQ_CACHE_DIR", str(tmp_path))
    one, same, other = (kernels._kernel_file(text) for text in ("a = 1\n", "a = 1\n", "a = 2\n"))
    assert one == same != other
    assert one.parent.parent == tmp_path


def test_an_unwritable_cache_falls_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("TILEQ_CACHE_DIR", str(blocked))
    path = kernels._kernel_file("a = 1\n")
    assert path.read_text() == "a = 1\n" and tmp_path not in path.parents


@pytest.mark.parametrize(("platform", "part"), [("linux", ".cache"), ("darwin", "Caches"), ("win32", "Local")])
def test_the_platforms_cache_folder(platform: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("TILEQ_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(kernels.sys, "platform", platform)
    folder: Any = kernels.cache_root()
    assert part in folder.parts and folder.name == "tileq"
