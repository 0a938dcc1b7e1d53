"""LLMServingSim's layer profile (dense, per-sequence and attention tables, microseconds) to whole-model iterations."""

from __future__ import annotations

__all__ = ["llmservingsim_profile"]

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tileq_profiling.operators.curves import Curve
from tileq_profiling.operators.launch import Launch, launch_note
from tileq_profiling.profile.conditions import Conditions
from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError, positive
from tileq_theory.hardware import Model

_ONCE = ("embedding", "final_layernorm", "norm_final")  # outside the layers; lm_head and sampler are per sequence
_TWICE = ("layernorm",)  # one timed kernel stands for the layer's two norms


def llmservingsim_profile(
    dense: Iterable[Mapping[str, Any]],
    attention: Iterable[Mapping[str, Any]],
    per_sequence: Iterable[Mapping[str, Any]],
    model: Model,
    *,
    most_kv_tokens: float | None = None,
    launch: Launch | None = None,
    conditions: Conditions | None = None,
) -> Profile:
    """Return one iteration for each row of the attention table, and a lone prefill for each size of the dense table.

    The lone prefills take their attention from the table's lone chunks, linear in the pairs between two sizes; they
    are there for the staircase, which the attention table's powers of two step over.

    Parameters
    ----------
    dense
        Rows `layer`, `tokens`, `time_us`: kernels of one layer, and those outside the layers.
    attention
        Rows `prefill_chunk`, `kv_prefill`, `n_decode`, `kv_decode`, `time_us`: attention of one layer for a chunk
        after `kv_prefill` cached tokens beside `n_decode` decodes of `kv_decode` context each.
    per_sequence
        Rows `layer`, `sequences`, `time_us`: lm_head and sampler.
    model
        The profiled model; its layer count multiplies.
    most_kv_tokens
        Rows whose KV (history, chunk and all decodes) is larger are left out: no engine could hold them. None: kept.
    launch, conditions
        Launch and host time to add; conditions of the measurement.
    """
    by_layer, ends = _curves(dense, "tokens"), _curves(per_sequence, "sequences")
    chunk, history, decodes, context, attention_s = _columns(attention)
    chunk, history, decodes, context, attention_s = _with_lone_prefills(
        np.stack([chunk, history, decodes, context, attention_s]), by_layer
    )
    tokens = chunk + decodes
    room = np.inf if most_kv_tokens is None else positive("most_kv_tokens", most_kv_tokens)
    kept = (tokens > 0) & (chunk + history + decodes * context <= room)
    if not kept.any():
        raise InputError(f"no attention row fits into {room:g} KV tokens; expected a larger most_kv_tokens")
    chunk, history, decodes, context, attention_s, tokens = (
        x[kept] for x in (chunk, history, decodes, context, attention_s, tokens)
    )
    sequences = decodes + (chunk > 0)
    seconds = model.layers * attention_s + (launch.seconds(model.layers) if launch else 0.0)
    for name, curve in by_layer.items():
        seconds = seconds + _times(name, model) * curve(tokens)
    for curve in ends.values():
        seconds = seconds + curve(sequences)
    base = conditions or Conditions(model=model.name, source="LLMServingSim layer profile")
    return Profile.of(
        tokens=tokens,
        pairs=chunk * (history + (chunk + 1) / 2),
        kv_tokens=decodes * context,
        sequences=sequences,
        seconds=seconds,
        prefill_tokens=chunk,
        scope="layer operators",
        conditions=replace(base, notes=(*base.notes, launch_note(launch, model.layers))),
    )


def _with_lone_prefills(table: np.ndarray, by_layer: Mapping[str, Curve]) -> np.ndarray:
    """Return the columns (chunk, history, decodes, context, attention) with lone prefills of the dense sizes added."""
    chunk, history, decodes, _, attention = table
    lone = (history == 0) & (decodes == 0)
    if lone.sum() < 2:
        return table
    timed, seconds = _sorted(chunk[lone], attention[lone])
    sizes = np.unique(np.concatenate([curve.sizes for curve in by_layer.values()]))
    sizes = sizes[(sizes >= timed[0]) & (sizes <= timed[-1]) & ~np.isin(sizes, timed)]
    between = np.interp(sizes * (sizes + 1), timed * (timed + 1), seconds)
    zero = np.zeros(sizes.size)
    return np.hstack([table, np.stack([sizes, zero, zero, zero, between])])


def _sorted(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(x)
    return x[order], y[order]


def _times(name: str, model: Model) -> int:
    if name in _ONCE:
        return 1
    return model.layers * (2 if name in _TWICE else 1)


def _curves(rows: Iterable[Mapping[str, Any]], size: str) -> dict[str, Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    for number, row in enumerate(rows):
        try:
            points.setdefault(str(row["layer"]), []).append((float(row[size]), 1e-6 * float(row["time_us"])))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"layer table row {number}: {error!r}; expected layer, {size} and time_us") from None
    return {name: Curve.of(name, table) for name, table in points.items()}


def _columns(rows: Iterable[Mapping[str, Any]]) -> tuple[np.ndarray, ...]:
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    out: list[tuple[float, ...]] = []
    for number, row in enumerate(rows):
        try:
            out.append(tuple(float(row[name]) for name in names))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"attention table row {number}: {error!r}; expected {', '.join(names)}") from None
    if not out:
        raise InputError("the attention table is empty; expected at least one batch")
    table = np.array(out)
    table[:, 4] *= 1e-6
    return tuple(table.T)
