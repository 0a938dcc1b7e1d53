"""Vidur's operator profiles: mlp.csv, attention.csv, all_reduce.csv; milliseconds, one layer.

Each operator has time_stats.<op>.{min,max,mean,median,std}; the median is taken. A file may hold several tensor
parallel degrees, and attention several backends: each is an operator entry of its own, told apart by its shape.
`emb` runs once an iteration, all else once a layer; `add` runs twice a layer and is listed with `times` 2. Source:
microsoft/vidur, profiling of MLSys 2024.
"""

from __future__ import annotations

__all__ = ["READERS"]

import re
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.base import need_header
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import OperatorReader
from tileq_profiling.steps.columns import table_columns
from tileq_profiling.steps.operators import Operator, OperatorTable, Per
from tileq_profiling.steps.place import Place
from tileq_theory.errors import InputError

_STAT = re.compile(r"time_stats\.(\w+)\.median")
_SHAPE = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd", "vocab_size", "num_tensor_parallel_workers")
_FILES = ("mlp.csv", "attention.csv", "all_reduce.csv")
_ONCE = ("emb",)  # the embedding runs once an iteration, all else in every layer
_ATTENTION = ("batch_size", "prefill_chunk_size", "kv_cache_size", "is_prefill")
_TRUE = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}

Columns = dict[str, Float[np.ndarray, "row"]]


def _operators(source: Source) -> list[Operator]:
    header = need_header(source)
    stats = [match.group(1) for name in header.columns if (match := _STAT.fullmatch(name))]
    if header.has(*_ATTENTION):
        return _attention(source, stats)
    if header.has("num_workers", "size"):
        return _all_reduce(source, stats)
    return _mlp(source, stats)


def _numbers(source: Source, names: list[str], stats: list[str]) -> Columns:
    columns, _ = table_columns(source, [*names, *(f"time_stats.{op}.median" for op in stats)])
    return columns


def _shapes(columns: Columns, names: list[str]) -> list[tuple[dict[str, float | str], Bool[np.ndarray, "row"]]]:
    """Return each combination of shape facts with the mask of its rows."""
    table = np.column_stack([columns[name] for name in names])
    found, where = np.unique(table, axis=0, return_inverse=True)
    facts: list[tuple[dict[str, float | str], Bool[np.ndarray, "row"]]] = []
    for number, values in enumerate(found):
        named = {_fact(name): float(value) for name, value in zip(names, values, strict=True)}
        facts.append((dict(named), where.reshape(-1) == number))
    return facts


def _fact(name: str) -> str:
    return "tp" if name == "num_tensor_parallel_workers" else name


def _mlp(source: Source, stats: list[str]) -> list[Operator]:
    header = need_header(source)
    names = [name for name in _SHAPE if header.find(name) is not None]
    columns = _numbers(source, ["num_tokens", *names], stats)
    found = []
    for shape, which in _shapes(columns, names):
        for op in stats:
            per: Per = "model" if op in _ONCE else "layer"
            facts = {**shape, "times": 2.0} if op == "add" else shape
            seconds = columns[f"time_stats.{op}.median"][which] / 1e3
            found.append(Operator(op, "tokens", per, columns["num_tokens"][which][:, None], seconds, facts))
    return found


def _attention(source: Source, stats: list[str]) -> list[Operator]:
    header = need_header(source)
    names = [
        name
        for name in ("n_q_head", "n_kv_head", "n_embd", "block_size", "num_tensor_parallel_workers")
        if header.find(name) is not None
    ]
    columns = _numbers(source, [*names, *_ATTENTION[:3]], [])
    _, texts = table_columns(source, (), ("is_prefill", *(f"time_stats.{op}.median" for op in stats)))
    try:
        prefill = np.array([_TRUE[text.strip().casefold()] for text in texts["is_prefill"]], bool)
    except KeyError as bad:
        raise InputError(f"{source.name}, column is_prefill: {bad}; expected True or False") from None
    found = []
    for shape, which in _shapes(columns, names) if names else [({}, np.ones(prefill.size, bool))]:
        for op in stats:
            kind_prefill = "prefill" in op or "output_reshape" in op or "save" in op
            mask = which & (prefill if kind_prefill else ~prefill)
            times = np.array([float(text) if text else np.nan for text in texts[f"time_stats.{op}.median"]]) / 1e3
            mask &= np.isfinite(times)
            if not mask.any():
                continue
            batch, chunk, context = (columns[name][mask] for name in _ATTENTION[:3])
            if kind_prefill:
                found.append(
                    Operator(
                        op, "prefill attention", "layer", np.column_stack([batch, chunk, context]), times[mask], shape
                    )
                )
            else:
                found.append(
                    Operator(op, "decode attention", "layer", np.column_stack([batch, context]), times[mask], shape)
                )
    if not found:
        raise InputError(f"{source.name} holds no attention time; expected time_stats.<operator>.median with numbers")
    return found


def _all_reduce(source: Source, stats: list[str]) -> list[Operator]:
    columns = _numbers(source, ["size", "num_workers"], stats)
    sizes = np.column_stack([columns["size"], columns["num_workers"]])
    return [Operator(op, "bytes", "call", sizes, columns[f"time_stats.{op}.median"] / 1e3) for op in stats]


def _read(place: Place) -> OperatorTable:
    paths = [path for name in _FILES for path in place.files(name)] if place.is_folder else [place.path]
    for name in _FILES[:2]:
        if (count := sum(path.name == name for path in paths)) > 1:
            raise InputError(f"{place.name} holds {count} files {name}; pass the folder of one device and model")
    operators = [operator for path in paths for operator in _operators(Source(path))]
    tps = {float(operator.shape["tp"]) for operator in operators if "tp" in operator.shape}
    warnings = []
    if place.is_folder and not any("attention" in operator.kind for operator in operators):
        warnings.append("no attention.csv: the time of attention must come from elsewhere")
    if len(tps) > 1:
        warnings.append(f"tensor parallel degrees {', '.join(f'{tp:g}' for tp in sorted(tps))} in one table")
    return OperatorTable(
        tuple(operators),
        "vidur-operators",
        Conditions(dtype="fp16", tp=int(tps.pop()) if len(tps) == 1 else 1, source=_where(place.path)),
        tuple(warnings),
    )


def _where(path: Path) -> str:
    return "/".join(path.parts[-4:])  # Vidur's folders name the device and the model


def _sniff(place: Place) -> float:
    if place.is_folder:
        return 4.0 if any(_is_vidur(path) for name in _FILES for path in place.files(name)) else 0.0
    return 5.0 if place.source is not None and _columns_are_vidur(place.source) else 0.0


def _is_vidur(path: Path) -> bool:
    return _columns_are_vidur(Source(path))


def _columns_are_vidur(source: Source) -> bool:
    return source.header is not None and any(_STAT.fullmatch(name) for name in source.header.columns)


READERS = (
    OperatorReader(
        "vidur-operators", "Vidur operator profiles, one layer (CSV or their folder; milliseconds)", _sniff, _read
    ),
)
