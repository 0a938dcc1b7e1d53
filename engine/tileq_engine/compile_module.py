"""A module of plain functions, compiled by numba: for kernels beside the simulator's, which have hooks and records.

As in `compile`, the functions' source goes without annotations into a file in the user's cache folder under a hash of
all of it, so that numba's own cache there never serves an older edit.
"""

from __future__ import annotations

__all__ = ["compiled_module", "prefetch"]

import ast
import functools
import hashlib
import importlib.util
import inspect
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tileq_engine.compile import cache_root

if TYPE_CHECKING:
    import numpy as np


def prefetch(array: np.ndarray, place: int) -> None:
    """Do nothing: in a module that is compiled, what `numba_prefetch` has under this name takes its place."""


@functools.cache
def compiled_module(module: ModuleType, name: str, options: str) -> dict[str, Callable[..., Any]]:
    """Return the functions of `module` compiled, by name; each for the types of its first call.

    Parameters
    ----------
    module
        Functions alone: they may call each other and use `np` and `prefetch`.
    name
        Of the folder in the cache.
    options
        Arguments of numba's `njit`, as they are written in a source.
    """
    text = _source(module, f"@njit(cache=True, nogil=True, error_model='numpy', {options})\n")
    import numba
    import numpy as np

    asked = Path(__file__).with_name("numba_prefetch.py").read_text(encoding="utf-8") if _prefetches(module) else ""
    stamp = "\n".join((text, asked, numba.__version__, np.__version__, platform.python_version(), platform.machine()))
    digest = hashlib.sha256(stamp.encode()).hexdigest()[:16]
    path = _written(cache_root() / f"{name}-{digest}", f"tileq_{name}.py", text)
    spec = importlib.util.spec_from_file_location(f"tileq_{name}_{digest}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load the {name} kernels from {path}")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded  # numba's cache looks the module up by name
    spec.loader.exec_module(loaded)
    return {key: value for key, value in vars(loaded).items() if key in vars(module) and callable(value)}


def _prefetches(module: ModuleType) -> bool:
    return vars(module).get("prefetch") is prefetch


def _source(module: ModuleType, decorator: str) -> str:
    """Return the functions without annotations and docstrings, each decorated for numba."""
    parts = ["from __future__ import annotations", "import numpy as np", "from numba import njit"]
    if _prefetches(module):
        parts.append("from tileq_engine.numba_prefetch import prefetch")
    functions = [n for n in ast.parse(inspect.getsource(module)).body if isinstance(n, ast.FunctionDef)]
    for node in functions:
        node.returns = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        for argument in node.args.args:
            argument.annotation = None
        parts.append(decorator + ast.unparse(node))
    return "\n\n".join(parts) + "\n"


def _written(folder: Path, file: str, text: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _put(folder, file, text)
    except OSError:  # a read-only home: compile for this process alone
        return _put(Path(tempfile.mkdtemp(prefix="tileq-")), file, text)


def _put(folder: Path, file: str, text: str) -> Path:
    path = folder / file
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(temporary).replace(path)
    return path
