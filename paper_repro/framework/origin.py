"""What numbers were computed with: the commit, versions, and a digest of every source that could change them."""

from __future__ import annotations

__all__ = ["origin", "sources"]

import ast
import hashlib
import importlib.metadata
import importlib.util
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import tileq

_PACKAGES = ("tileq", "tileq_theory", "tileq_engine", "tileq_profiling")
_DEPENDENCIES = ("numpy", "scipy", "cvxpy", "numba", "matplotlib")
_SUFFIXES = (".py", ".toml", ".json", ".csv", ".npz")
_FRAMEWORK = "paper_repro.framework"


def _file(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin else None


@cache
def _library() -> str:
    """Return a digest of all files of the library, read once a process."""
    seen = hashlib.sha256()
    for package in _PACKAGES:
        root = _file(package)
        if root is None:
            continue
        for path in sorted(p for p in root.parent.rglob("*") if p.suffix in _SUFFIXES):
            seen.update(path.relative_to(root.parent).as_posix().encode())
            seen.update(path.read_bytes())
    return seen.hexdigest()


def _imported(path: Path) -> set[str]:
    """Return the modules of `paper_repro` that a file imports, the framework's apart."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.startswith("paper_repro.") and not name.startswith(_FRAMEWORK)}


def _module(name: str) -> Path | None:
    try:
        return _file(name)
    except (ModuleNotFoundError, ValueError):
        return None  # a name inside a module, not a module


@cache
def sources(module: str) -> str:
    """Return a digest of the library, of an item's module and of what that imports of this folder."""
    todo, seen = [module], {}
    while todo:
        name = todo.pop()
        path = _module(name)
        if name in seen or path is None:
            continue
        seen[name] = path.read_bytes()
        todo.extend(_imported(path))
    digest = hashlib.sha256(_library().encode())
    for name in sorted(seen):
        digest.update(name.encode() + seen[name])
    return digest.hexdigest()[:16]


@cache
def _commit() -> str:
    """Return the commit of the checkout, with "+" where a tracked file has been changed; "" outside of one."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
        state = ["git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)results"]
        changed = subprocess.run(state, cwd=here.parent, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    if head.returncode != 0:
        return ""
    return head.stdout.strip()[:12] + ("+" if changed.stdout.strip() else "")


@cache
def _versions() -> dict[str, str]:
    versions = {"tileq": tileq.__version__, "python": platform.python_version()}
    for name in _DEPENDENCIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = ""
    return versions


def origin(module: str) -> dict[str, Any]:
    """Return commit, versions and digest of the sources of an item's module."""
    return {"commit": _commit(), "versions": _versions(), "sources": sources(module)}
