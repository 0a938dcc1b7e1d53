"""aiconfigurator's measured kernels: gemm, context and generation attention; Parquet, or the older *_perf.txt CSV; ms.

GeMM: (m x k) times (k x n). Context attention: `batch_size` prompts of `isl` tokens, `step` cached before. Generation
attention: `batch_size` sequences that read isl + step tokens each. A file holds many shapes and formats; each is an
operator entry, told apart by its shape. Other tables of that project (collectives, MoE) are refused by name. Source:
ai-dynamo/aiconfigurator.
"""

from __future__ import annotations

__all__ = ["READERS"]

from pathlib import Path
from typing import Any

import numpy as np

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.base import need_header
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import OperatorReader
from tileq_profiling.steps.columns import table_columns
from tileq_profiling.steps.operators import Operator, OperatorTable
from tileq_profiling.steps.place import Place
from tileq_theory.errors import InputError

_GEMM = ("m", "n", "k", "latency")
_ATTENTION = ("batch_size", "isl", "step", "latency")
_TEXT = ("framework", "version", "device", "op_name", "kernel_source", "gemm_dtype", "attn_dtype", "kv_cache_dtype")
_HEADS = ("num_heads", "num_key_value_heads", "head_dim", "window_size", "beam_width")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "fp8": "fp8"}

Table = dict[str, Any]


def _parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as problem:
        raise InputError(f"{path.name} cannot be read as Parquet: {str(problem).splitlines()[0][:160]}") from None
    found: Table = {}
    for name in table.column_names:
        values = table.column(name)
        if name in _TEXT:
            found[name] = np.array(values.cast(pa.string()).to_pylist(), dtype=object)
        elif name in (*_GEMM, *_ATTENTION, *_HEADS):
            found[name] = _numbers(path.name, name, values)
    return found


def _numbers(source: str, name: str, values: Any) -> np.ndarray:
    try:
        column = np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{source}, column {name}: not a column of numbers") from None
    bad = ~np.isfinite(column) | (column < 0)
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{source}, column {name}, row {row + 1}: {column[row]}; expected a finite number of 0 or more"
        )
    return column


def _csv(source: Source) -> Table:
    header = need_header(source)
    numeric = [name for name in dict.fromkeys((*_GEMM, *_ATTENTION, *_HEADS)) if header.find(name) is not None]
    text = [name for name in _TEXT if header.find(name) is not None]
    numbers, texts = table_columns(source, numeric, text)
    return {**numbers, **{name: np.array(values, dtype=object) for name, values in texts.items()}}


def _operators(name: str, table: Table) -> list[Operator]:
    if set(_GEMM) <= table.keys():
        facts = [str(key) for key in ("gemm_dtype", "kernel_source") if key in table]
        return [_gemm(table, which, shape) for shape, which in _shapes(table, facts)]
    if set(_ATTENTION) <= table.keys() and "num_heads" in table:
        facts = [str(key) for key in (*_HEADS, "attn_dtype", "kv_cache_dtype", "kernel_source") if key in table]
        return [_attention(name, table, which, shape) for shape, which in _shapes(table, facts)]
    raise InputError(f"{name}: of aiconfigurator's tables gemm and attention are read; it has {', '.join(table)}")


def _shapes(table: Table, facts: list[str]) -> list[tuple[dict[str, float | str], np.ndarray]]:
    if not facts:
        return [({}, np.arange(table["latency"].size))]
    rows: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(zip(*(table[fact].tolist() for fact in facts), strict=True)):
        rows.setdefault(key, []).append(row)
    return [(dict(zip(facts, key, strict=True)), np.array(where)) for key, where in rows.items()]


def _gemm(table: Table, which: np.ndarray, shape: dict[str, float | str]) -> Operator:
    sizes = np.column_stack([table[name][which] for name in ("m", "n", "k")])
    return Operator("gemm", "gemm", "call", sizes, table["latency"][which] / 1e3, shape)


def _attention(name: str, table: Table, which: np.ndarray, shape: dict[str, float | str]) -> Operator:
    batch, isl, step = (table[key][which] for key in _ATTENTION[:3])
    seconds = table["latency"][which] / 1e3
    operation = str(table["op_name"][which[0]]) if "op_name" in table else name
    if "generation" in operation:
        return Operator(
            "generation_attention", "decode attention", "layer", np.column_stack([batch, isl + step]), seconds, shape
        )
    return Operator(
        "context_attention", "prefill attention", "layer", np.column_stack([batch, isl, step]), seconds, shape
    )


def _tables(place: Place) -> list[tuple[str, Table]]:
    if place.is_folder:
        paths = sorted({*place.files("*.parquet"), *place.files("*_perf.txt")})
        return [(path.name, _parquet(path) if path.suffix == ".parquet" else _csv(Source(path))) for path in paths]
    return [(place.name, _parquet(place.path) if place.is_parquet else _csv(place.text()))]


def _read(place: Place) -> OperatorTable:
    tables = _tables(place)
    operators = [operator for name, table in tables for operator in _operators(name, table)]
    devices = {str(name) for _, table in tables for name in np.unique(table.get("device", np.empty(0)).astype(str))}
    if len(devices) > 1:
        raise InputError(f"{place.name} holds tables of {', '.join(sorted(devices))}; pass the folder of one device")
    device, versions = "".join(devices), dict[str, str]()
    for _, table in tables:
        if "framework" in table and "version" in table:
            versions[str(table["framework"][0]).lower()] = str(table["version"][0])
    dtypes = {str(operator.shape.get("gemm_dtype") or operator.shape.get("attn_dtype")) for operator in operators}
    warnings = []
    if len(dtypes) > 1:
        warnings.append(f"formats {', '.join(sorted(dtypes))} in one table")
    dtype = _DTYPES.get(dtypes.pop(), "bf16") if len(dtypes) == 1 else "bf16"
    conditions = Conditions(device=device, dtype=dtype, libraries=versions, source=place.name)
    return OperatorTable(tuple(operators), "aiconfigurator", conditions, tuple(warnings))


def _columns(path: Path) -> set[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return set(pq.read_schema(path).names)
    except (OSError, pa.ArrowException):
        return set()


def _sniff(place: Place) -> float:
    if place.is_folder:
        found = [*place.files("*.parquet"), *place.files("*_perf.txt")]
        return 3.0 if found else 0.0
    if place.is_parquet:
        names = _columns(place.path)
    elif place.source is not None and place.source.header is not None:
        names = set(place.source.header.columns)
    else:
        return 0.0
    return 5.0 if set(_GEMM) <= names or ({*_ATTENTION, "num_heads"} <= names) else 0.0


READERS = (
    OperatorReader(
        "aiconfigurator", "aiconfigurator gemm and attention tables (Parquet or CSV; milliseconds)", _sniff, _read
    ),
)
