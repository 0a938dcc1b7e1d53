"""aiconfigurator's measured GeMM and attention kernels (milliseconds) to whole-model iterations."""

from __future__ import annotations

__all__ = ["aiconfigurator_profile"]

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_profiling.operators.curves import Curve
from tileq_profiling.operators.launch import Launch, launch_note
from tileq_profiling.profile.conditions import Conditions
from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError
from tileq_theory.hardware import Gpu, Model
from tileq_theory.hardware.shard import Shard

Row = Mapping[str, Any]


def aiconfigurator_profile(
    gemm: Iterable[Row],
    context_attention: Iterable[Row],
    generation_attention: Iterable[Row],
    model: Model,
    *,
    gpu: Gpu | None = None,
    dtype: str = "bfloat16",
    most_tokens: int | None = None,
    launch: Launch | None = None,
    conditions: Conditions | None = None,
) -> Profile:
    """Return one iteration for each attention row that has the model's heads: prefills, then decodes.

    Parameters
    ----------
    gemm
        Rows `gemm_dtype`, `m`, `n`, `k`, `latency` (ms).
    context_attention, generation_attention
        Rows `batch_size`, `isl`, `step`, `num_heads`, `num_key_value_heads`, `head_dim`, `attn_dtype`,
        `kv_cache_dtype`, `latency` (ms) and, in later versions, `window_size`: `isl` new tokens a sequence after
        `step` cached ones.
    model
        A dense model; its five matrix products a layer and lm_head are looked up by shape. A shape that was not timed
        takes the nearest timed one scaled by its work, and a note names it.
    gpu
        Its bandwidth prices the element-wise kernels, which these tables lack (None: left out, and noted).
    dtype
        `gemm_dtype` to take; attention is taken in bfloat16.
    most_tokens
        Rows of more new or cached tokens are left out (None: those beyond the largest timed m, which no table tells).
    launch, conditions
        Launch and host time to add; conditions of the measurement.
    """
    if model.moe_layers:
        raise InputError(
            f"{model.name} is a mixture of experts, whose products these tables do not hold; give a dense model"
        )
    notes = [launch_note(launch, model.layers)]
    linear, head, largest = _products(gemm, model, dtype, notes)
    rows = [
        *_attention(context_attention, model, prefill=True),
        *_attention(generation_attention, model, prefill=False),
    ]
    room = float("inf") if most_tokens is None else float(most_tokens)
    rows = [r for r in rows if r[0] * (r[1] if r[4] else 1) <= largest and r[0] * (r[1] + r[2]) <= room]
    if not rows:
        raise InputError(
            f"no attention row has {model.heads} heads, {model.kv_heads} KV heads of {model.head_dim} in bfloat16; "
            f"these tables cannot tell {model.name}"
        )
    batch, new, past, attention_s, prefill = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    is_prefill = prefill > 0
    tokens = np.where(is_prefill, batch * new, batch)
    seconds = linear(tokens) + model.layers * attention_s + head(batch)
    if gpu is not None:
        seconds = seconds + Shard(model).elementwise_bytes_per_token() / gpu.bandwidth_bytes_per_s * tokens
        notes.append("element-wise kernels counted as their bytes over the datasheet's bandwidth")
    else:
        notes.append("element-wise kernels are not in these times")
    if launch is not None:
        seconds = seconds + launch.seconds(model.layers)
    base = conditions or Conditions(device=gpu.name if gpu else "", model=model.name, source="aiconfigurator kernels")
    return Profile.of(
        tokens=tokens,
        pairs=np.where(is_prefill, batch * new * (past + (new + 1) / 2), 0.0),
        kv_tokens=np.where(is_prefill, 0.0, batch * (past + new)),
        sequences=batch,
        seconds=seconds,
        prefill_tokens=np.where(is_prefill, tokens, 0.0),
        scope="layer operators",
        conditions=replace(base, notes=(*base.notes, *notes)),
    )


class _Linear:
    """The layers' matrix products, summed."""

    def __init__(self, curves: list[tuple[float, Curve]]) -> None:
        self.curves = curves

    def __call__(self, tokens: Float[np.ndarray, "point"]) -> Float[np.ndarray, "point"]:
        return np.asarray(sum(factor * curve(tokens) for factor, curve in self.curves))


def _products(gemm: Iterable[Row], model: Model, dtype: str, notes: list[str]) -> tuple[_Linear, _Linear, float]:
    """Return the times of the layers' products and of lm_head, and the largest m timed for all of them."""
    table: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in gemm:
        if row["gemm_dtype"] == dtype:
            table.setdefault((int(row["n"]), int(row["k"])), []).append((float(row["m"]), 1e-3 * float(row["latency"])))
    if not table:
        raise InputError(f"no GeMM row has gemm_dtype {dtype!r}; see the table's own values")
    h, width = model.hidden, model.intermediate
    shapes = [(model.q_size + 2 * model.kv_size, h), (h, model.q_size), (2 * width, h), (h, width)]
    layers = [_product(table, shape, model.layers, notes) for shape in shapes]
    head = _product(table, (model.vocab, h), 1, notes)
    largest = min(float(curve.sizes[-1]) for _, curve in layers)
    return _Linear(layers), _Linear([head]), largest


def _product(
    table: Mapping[tuple[int, int], list[tuple[float, float]]], shape: tuple[int, int], count: int, notes: list[str]
) -> tuple[float, Curve]:
    """Return how often a product runs, scaled to the nearest timed shape, and that shape's times."""
    n, k = shape
    near = min(table, key=lambda s: abs(np.log(s[0] / n)) + 2 * abs(np.log(s[1] / k)))
    factor = count * (n * k) / (near[0] * near[1])
    if near != shape:
        notes.append(f"product {n} x {k} not timed: {near[0]} x {near[1]} scaled by its work")
    return factor, Curve.of(f"gemm {near}", table[near])


def _attention(rows: Iterable[Row], model: Model, *, prefill: bool) -> list[tuple[float, float, float, float, float]]:
    """Return (batch, new tokens, cached tokens, seconds of one layer, prefill or not) of the model's heads."""
    heads = (model.heads, model.kv_heads, model.head_dim)
    return [
        (float(r["batch_size"]), float(r["isl"]), float(r["step"]), 1e-3 * float(r["latency"]), float(prefill))
        for r in rows
        if (r["num_heads"], r["num_key_value_heads"], r["head_dim"]) == heads
        and r["kv_cache_dtype"] == "bfloat16"
        and r["attn_dtype"] == "bfloat16"
        and not r.get("window_size")
    ]
