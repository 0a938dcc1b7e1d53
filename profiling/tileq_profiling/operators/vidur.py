"""Vidur's operator table (mlp.csv: milliseconds of one layer against num_tokens) to whole-model iterations."""

from __future__ import annotations

__all__ = ["LAYER_OPERATORS", "vidur_profile"]

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tileq_profiling.operators.curves import Curve
from tileq_profiling.operators.launch import Launch, launch_note
from tileq_profiling.profile.conditions import Conditions
from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError
from tileq_theory.hardware import Model

# one layer of a Llama runs each of these once and the residual add twice
LAYER_OPERATORS: Mapping[str, int] = {
    "input_layernorm": 1,
    "attn_pre_proj": 1,
    "attn_rope": 1,
    "attn_post_proj": 1,
    "post_attention_layernorm": 1,
    "mlp_up_proj": 1,
    "mlp_act": 1,
    "mlp_down_proj": 1,
    "add": 2,
}
_SHAPE = {"n_head": "heads", "n_kv_head": "kv_heads", "n_embd": "hidden", "n_expanded_embd": "intermediate"}


def vidur_profile(
    columns: Mapping[str, ArrayLike],
    model: Model,
    *,
    tp: int = 1,
    all_reduce: Sequence[tuple[float, float]] | None = None,
    launch: Launch | None = None,
    conditions: Conditions | None = None,
) -> Profile:
    """Return iterations of the linear and element-wise operators of `model`, without attention and lm_head.

    Parameters
    ----------
    columns
        The table's columns by name: `num_tokens`, `num_tensor_parallel_workers`, `time_stats.<op>.median` (ms), and the
        shape `n_head`, `n_kv_head`, `n_embd`, `n_expanded_embd`.
    model
        The model whose layers they are; another shape than the table's raises `InputError`.
    tp
        Rows of that tensor-parallel degree are taken.
    all_reduce
        (bytes, seconds) of an all-reduce among `tp` devices; two run in a layer. None with tp > 1: left out, and noted.
    launch, conditions
        Launch and host time to add; conditions of the measurement.
    """
    table = {name: np.asarray(column, dtype=float) for name, column in columns.items() if _numeric(column)}
    _check(table, model)
    rows = table["num_tensor_parallel_workers"] == tp
    if not rows.any():
        have = sorted({int(x) for x in table["num_tensor_parallel_workers"]})
        raise InputError(f"Vidur table has no row of tensor parallel {tp}; it has {', '.join(map(str, have))}")
    tokens = table["num_tokens"][rows]
    layer = sum(count * 1e-3 * table[f"time_stats.{name}.median"][rows] for name, count in LAYER_OPERATORS.items())
    notes = [launch_note(launch, model.layers), "attention and lm_head are not in these times"]
    seconds = model.layers * np.asarray(layer)
    if tp > 1 and all_reduce is not None:
        size = tokens * model.hidden * 2.0
        seconds = seconds + 2 * model.layers * Curve.of("all_reduce", all_reduce)(size)
    elif tp > 1:
        notes.append("all-reduces are not in these times")
    seconds = seconds + (launch.seconds(model.layers) if launch else 0.0)
    base = conditions or Conditions(model=model.name, dtype="fp16", tp=tp, source="Vidur operator profile")
    return _assembled(base, notes, tokens=tokens, seconds=seconds)


def _assembled(base: Conditions, notes: Sequence[str], *, tokens: np.ndarray, seconds: np.ndarray) -> Profile:
    from dataclasses import replace

    conditions = replace(base, notes=(*base.notes, *notes))
    return Profile.of(tokens=tokens, seconds=seconds, scope="layer operators", conditions=conditions)


def _numeric(column: ArrayLike) -> bool:
    try:
        np.asarray(column, dtype=float)
    except (TypeError, ValueError):
        return False
    return True


def _check(table: Mapping[str, np.ndarray], model: Model) -> None:
    needed = ["num_tokens", "num_tensor_parallel_workers", *(f"time_stats.{n}.median" for n in LAYER_OPERATORS)]
    missing = [name for name in needed if name not in table]
    if missing:
        raise InputError(f"Vidur table has no numeric column {missing[0]!r}; expected its mlp.csv")
    for column, field in _SHAPE.items():
        if column in table and not np.all(table[column] == getattr(model, field)):
            raise InputError(
                f"Vidur table is of a model with {column} {table[column][0]:g}, but {model.name} has {field} "
                f"{getattr(model, field)}; give the model that was profiled"
            )
