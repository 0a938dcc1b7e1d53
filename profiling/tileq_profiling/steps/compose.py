"""Operator times of one layer to iterations of a whole model: each profiler's table through its own composition."""

from __future__ import annotations

__all__ = ["whole_model"]

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tileq_profiling.operators import Launch, aiconfigurator_profile, llmservingsim_profile, vidur_profile
from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.steps.operators import Operator, OperatorTable
from tileq_theory.errors import InputError
from tileq_theory.hardware import Gpu, Model

_VIDUR_SHAPE = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd")


def whole_model(
    table: OperatorTable,
    model: Model,
    *,
    gpu: Gpu | None = None,
    launch: Launch | None = None,
    tp: int = 1,
    gemm_dtype: str = "bfloat16",
    most_kv_tokens: float | None = None,
) -> Profile:
    """Return iterations of `model` out of the times of its operators.

    Parameters
    ----------
    table
        What `read_operators` read.
    model
        Its layer count multiplies, its shape picks operators out of tables of many shapes.
    gpu
        For aiconfigurator, whose tables lack element-wise kernels: its bandwidth prices them.
    launch
        Launch and host time to add; None adds nothing, and the profile's notes say so.
    tp
        Tensor-parallel degree to take out of a table of several (Vidur).
    gemm_dtype
        Format of the matrix products to take out of a table of several (aiconfigurator).
    most_kv_tokens
        Batches that hold more KV tokens are left out (LLMServingSim's grid goes beyond any cache).
    """
    at = _conditions(table, model)
    if table.format == "llmservingsim-operators":
        return _llmservingsim(table, model, launch, most_kv_tokens, at)
    if table.format == "vidur-operators":
        return _vidur(table, model, launch, tp, at)
    if table.format == "aiconfigurator":
        return _aiconfigurator(table, model, gpu, launch, gemm_dtype, at)
    raise InputError(f"operators of format {table.format!r} cannot be put together to a model")


def _conditions(table: OperatorTable, model: Model) -> Conditions:
    """Return the table's conditions with the model that it is put together to."""
    return replace(table.conditions, model=model.name, notes=(*table.conditions.notes, *table.warnings))


def _rows(operators: Sequence[Operator], size: str) -> Iterator[dict[str, Any]]:
    for operator in operators:
        for amount, seconds in zip(operator.sizes[:, 0].tolist(), operator.seconds.tolist(), strict=True):
            yield {"layer": operator.name, size: amount, "time_us": seconds * 1e6}


def _llmservingsim(
    table: OperatorTable, model: Model, launch: Launch | None, most_kv_tokens: float | None, at: Conditions
) -> Profile:
    attention = table.find(kind="mixed attention")
    if not attention or not table.find(kind="tokens") or not table.find(kind="sequences"):
        raise InputError(
            "an LLMServingSim profile needs dense.csv, per_sequence.csv and attention.csv; pass the folder with them"
        )
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    mixed = [
        {**dict(zip(names, sizes, strict=True)), "time_us": seconds * 1e6}
        for operator in attention
        for sizes, seconds in zip(operator.sizes.tolist(), operator.seconds.tolist(), strict=True)
    ]
    return llmservingsim_profile(
        _rows(table.find(kind="tokens"), "tokens"),
        mixed,
        _rows(table.find(kind="sequences"), "sequences"),
        model,
        most_kv_tokens=most_kv_tokens,
        launch=launch,
        conditions=at,
    )


def _vidur(table: OperatorTable, model: Model, launch: Launch | None, tp: int, at: Conditions) -> Profile:
    linear = table.find(kind="tokens", tp=float(tp))
    if not linear:
        raise InputError(
            f"the Vidur profile has no mlp.csv rows of tensor parallel {tp}; choose another tp or add mlp.csv"
        )
    tokens = linear[0].sizes[:, 0]
    if any(not np.array_equal(operator.sizes[:, 0], tokens) for operator in linear):
        raise InputError("the Vidur profile mixes tables of several models; pass the folder of one")
    columns: dict[str, Any] = {
        "num_tokens": tokens,
        "num_tensor_parallel_workers": np.full(tokens.size, float(tp)),
        **{
            name: np.full(tokens.size, float(linear[0].shape[name])) for name in _VIDUR_SHAPE if name in linear[0].shape
        },
        **{f"time_stats.{operator.name}.median": operator.seconds * 1e3 for operator in linear},
    }
    pairs = [
        (float(size), float(seconds))
        for operator in table.find(kind="bytes")
        for (size, workers), seconds in zip(operator.sizes.tolist(), operator.seconds.tolist(), strict=True)
        if workers == tp
    ]
    return vidur_profile(columns, model, tp=tp, all_reduce=pairs or None, launch=launch, conditions=replace(at, tp=tp))


def _aiconfigurator(
    table: OperatorTable, model: Model, gpu: Gpu | None, launch: Launch | None, dtype: str, at: Conditions
) -> Profile:
    return aiconfigurator_profile(
        _kernel_rows(table, "gemm", ("m", "n", "k")),
        _kernel_rows(table, "prefill attention", ("batch_size", "isl", "step")),
        # the table's own columns are isl = 1 new token after `step`; together they are the context that is read
        _kernel_rows(table, "decode attention", ("batch_size", "step")),
        model,
        gpu=gpu,
        dtype=dtype,
        launch=launch,
        conditions=at,
    )


def _kernel_rows(table: OperatorTable, kind: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = []
    for operator in table.find(kind=kind):
        for sizes, seconds in zip(operator.sizes.tolist(), operator.seconds.tolist(), strict=True):
            row = {**operator.shape, **dict(zip(names, sizes, strict=True)), "latency": seconds * 1e3}
            if kind == "decode attention":
                row |= {"isl": 1.0, "step": row["step"] - 1.0}
            rows.append(row)
    return rows
