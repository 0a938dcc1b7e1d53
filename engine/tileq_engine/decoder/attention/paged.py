"""Paged attention on the CPU: the kernels of `paged_kernel`, compiled by numba."""

from __future__ import annotations

__all__ = ["PagedAttention", "compiled_attention"]

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
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int

from tileq_engine.compile import cache_root
from tileq_engine.decoder.attention import paged_kernel
from tileq_engine.decoder.batch import FlatBatch
from tileq_engine.decoder.pool import KvPool

_DECORATOR = "@njit(cache=True, nogil=True, error_model='numpy', fastmath={'reassoc', 'contract', 'nsz', 'arcp'})\n"


@dataclass(frozen=True, slots=True)
class _Plan:
    query_start: Int[np.ndarray, "start"]
    context: Int[np.ndarray, "seq"]
    table: Int[np.ndarray, "seq block"]
    scores: Float[np.ndarray, "head room"]
    bits: Int[np.ndarray, "room"]


class PagedAttention:
    """Every query row in one fixed order of additions: batch, chunks and block layout leave no trace in its bits."""

    name = "paged"
    graphable = False

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self._kernel = compiled_attention()
        self._room = 0

    def plan(self, batch: FlatBatch, pool: KvPool) -> _Plan:
        """Return the batch as numpy sees it, with scratch for its longest context."""
        longest = batch.max_context_tokens
        if longest > self._room:
            self._room = max(2 * self._room, longest)
            self._scores = np.empty((self.heads, self._room), dtype=np.float32)
            self._bits = np.empty(self._room, dtype=np.int32)
        starts, contexts = batch.host_query_start, batch.host_context_tokens
        return _Plan(starts, contexts, batch.block_table.numpy(), self._scores, self._bits)

    def __call__(
        self,
        layer: int,
        query: Float[torch.Tensor, "token head dim"],
        pool: KvPool,
        plan: _Plan,
        window: int | None,
    ) -> Float[torch.Tensor, "token head dim"]:
        """Return the attended values of `layer`."""
        out = torch.empty_like(query, memory_format=torch.contiguous_format)
        self._kernel(
            query.contiguous().numpy(),
            pool.keys[layer].numpy(),
            pool.values[layer].numpy(),
            plan.table,
            plan.query_start,
            plan.context,
            query.shape[-1] ** -0.5,
            window or 0,
            plan.scores,
            plan.bits,
            out.numpy(),
        )
        return out


@functools.cache
def compiled_attention() -> Callable[..., None]:
    """Return `paged_attention` compiled; the code lies in the user's cache folder under a hash of its source."""
    text = _source()
    import numba

    stamp = "\n".join((text, numba.__version__, np.__version__, platform.python_version(), platform.machine()))
    digest = hashlib.sha256(stamp.encode()).hexdigest()[:16]
    path = _written(cache_root() / f"attention-{digest}", text)
    spec = importlib.util.spec_from_file_location(f"tileq_attention_{digest}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load the attention kernel from {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba's cache looks the module up by name
    spec.loader.exec_module(module)
    kernel: Callable[..., None] = vars(module)["paged_attention"]
    return kernel


def _source() -> str:
    """Return the kernels without annotations, each decorated for numba."""
    parts = ["from __future__ import annotations", "import numpy as np", "from numba import njit"]
    functions = [n for n in ast.parse(inspect.getsource(paged_kernel)).body if isinstance(n, ast.FunctionDef)]
    for node in functions:
        node.returns = None
        node.body = node.body[1:]  # the docstring
        for argument in node.args.args:
            argument.annotation = None
        parts.append(_DECORATOR + ast.unparse(node))
    return "\n\n".join(parts) + "\n"


def _written(folder: Path, text: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _put(folder, text)
    except OSError:  # a read-only home: compile for this process alone
        return _put(Path(tempfile.mkdtemp(prefix="tileq-")), text)


def _put(folder: Path, text: str) -> Path:
    path = folder / "tileq_attention.py"
    if not path.exists():
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
        Path(temporary).replace(path)
    return path
