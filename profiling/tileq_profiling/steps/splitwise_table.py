"""Splitwise's perf_model.csv: prompt and token times (ms) of several models, GPUs and tensor parallel degrees.

prompt_time is one prefill of `batch_size` prompts; token_time is the mean decode step of the batch over `token_size`
tokens, whose contexts grow from the prompt's length: K is their mean. Runs of the same setting are kept as rows.
Source: Patel et al., Splitwise, ISCA 2024 (github.com/Mutinifni/splitwise-sim).
"""

from __future__ import annotations

__all__ = ["READERS"]

import numpy as np
from jaxtyping import Float

from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, header_has
from tileq_profiling.steps.columns import table_columns
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_theory.errors import InputError

_NUMERIC = ("prompt_size", "batch_size", "token_size", "prompt_time", "token_time", "tensor_parallel")
_TEXT = ("model", "hardware")


def _profile(rows: dict[str, Float[np.ndarray, "row"]], conditions: Conditions) -> Profile:
    prompt, batch, out = rows["prompt_size"], rows["batch_size"], rows["token_size"]
    decode = (out > 1) & (rows["token_time"] > 0)
    zero = np.zeros(prompt.size)
    context = prompt + out / 2
    return Profile.join(
        [
            Profile.of(
                tokens=prompt * batch,
                prefill_tokens=prompt * batch,
                pairs=batch * prompt * (prompt + 1) / 2,
                kv_tokens=zero,
                sequences=batch,
                seconds=rows["prompt_time"] / 1e3,
                conditions=conditions,
            ),
            *(
                [
                    Profile.of(
                        tokens=batch[decode],
                        prefill_tokens=zero[decode],
                        pairs=zero[decode],
                        kv_tokens=(batch * context)[decode],
                        sequences=batch[decode],
                        seconds=rows["token_time"][decode] / 1e3,
                        repeats=out[decode] - 1,
                        conditions=conditions,
                    )
                ]
                if decode.any()
                else []
            ),
        ]
    )


def _read(place: Place, options: ProfileOptions) -> ProfileReading:
    source = place.text()
    columns, names = table_columns(source, _NUMERIC, _TEXT)
    if any(np.any(columns[name] < 1) for name in ("prompt_size", "batch_size", "tensor_parallel")):
        raise InputError(f"{source.name}: a prompt, batch or tensor_parallel of 0; expected 1 or more")
    keys = list(zip(names["model"], names["hardware"], columns["tensor_parallel"].astype(int).tolist(), strict=True))
    parts = []
    for model, hardware, tp in dict.fromkeys(keys):
        which = np.array([key == (model, hardware, tp) for key in keys])
        conditions = Conditions(device=hardware, model=model, tp=tp, source=source.name)
        labels = {"model": model, "hardware": hardware, "tensor_parallel": str(tp)}
        parts.append(Part(labels, _profile({name: column[which] for name, column in columns.items()}, conditions)))
    warnings = ["a decode row is the mean step over its output; K is the mean context over it"]
    return finish("splitwise-perf", parts, joinable=False, warnings=warnings)


READERS = (
    ProfileReader(
        "splitwise-perf",
        "Splitwise perf_model.csv (CSV; milliseconds; where= chooses model, hardware, tensor_parallel)",
        lambda place: 6.0 if header_has(place, *_NUMERIC, *_TEXT) else 0.0,
        _read,
    ),
)
