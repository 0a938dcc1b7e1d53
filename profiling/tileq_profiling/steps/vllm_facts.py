"""What a vLLM log says about itself at start-up: version, model, dtype, tensor parallel degree, KV cache size."""

from __future__ import annotations

__all__ = ["kv_capacity", "vllm_conditions"]

import re

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.source import Source

_START = 1 << 23  # facts of start-up: no need to read a gigabyte for them
_TOKENS = re.compile(rb"GPU KV cache size: ([\d,]+) tokens")
_BLOCKS = re.compile(rb"# (?:GPU|cuda) blocks: (\d+)")
_BLOCK_SIZE = re.compile(rb"block_size[=:]\s*(\d+)")
_VERSION = re.compile(rb"\(v(\d+\.\d+[\w.+]*)\) with config|vLLM API server version v?(\d+\.\d+[\w.+]*)")
_MODEL = re.compile(rb"with config:?.{0,40}?model='([^'\n]+)'")
_DTYPE = re.compile(rb"\bdtype=torch\.(bfloat16|float16|float32)")
_TP = re.compile(rb"tensor_parallel_size=(\d+)")
_KV_DTYPE = re.compile(rb"kv_cache_dtype=([\w]+)")
_SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _start(source: Source) -> bytes:
    with source.open_bytes() as stream:
        return stream.read(_START)


def kv_capacity(source: Source) -> float | None:
    """Return the KV cache's size in tokens; None where the log does not tell it."""
    start = _start(source)
    tokens = _TOKENS.search(start)
    if tokens is not None:
        return float(tokens.group(1).replace(b",", b""))
    blocks = _BLOCKS.search(start)
    if blocks is None:
        return None
    size = _BLOCK_SIZE.search(start)
    return float(blocks.group(1)) * (float(size.group(1)) if size else 16.0)  # 16 is vLLM's default on GPUs


def vllm_conditions(source: Source) -> Conditions:
    """Return the conditions that the log's start tells; fields it does not tell keep their defaults."""
    start = _start(source)
    version, model, dtype, tp = (p.search(start) for p in (_VERSION, _MODEL, _DTYPE, _TP))
    kv = _KV_DTYPE.search(start)
    kv_name = kv.group(1).decode() if kv else "auto"
    return Conditions(
        model=model.group(1).decode("utf-8", "replace") if model else "",
        dtype=_SHORT[dtype.group(1).decode()] if dtype else "bf16",
        kv_dtype=None if kv_name in ("auto", "bfloat16", "float16") else kv_name.split("_")[0],
        tp=max(1, int(tp.group(1))) if tp else 1,
        libraries={"vllm": (version.group(1) or version.group(2)).decode()} if version else {},
        source=source.name,
    )
