"""Small published tables of Sarathi-Serve (OSDI 2024): figure 2, table 2 and figure 9.

They look alike and differ in their unit. Figure 2 has batch_execution_time in seconds beside operation_time_per_token
in milliseconds; table 2 has both in milliseconds, with per_token_time. The unit is what makes the two columns agree,
and a table in which no unit does is refused. Figure 9 has times of whole prefills in chunks, in milliseconds: a row
is the mean iteration of one.
"""

from __future__ import annotations

__all__ = ["READERS"]

import numpy as np
from jaxtyping import Float

from tileq_profiling.profile import Conditions, Profile
from tileq_profiling.readers.base import need_header
from tileq_profiling.readers.source import Source
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, header_has
from tileq_profiling.steps.columns import table_columns
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_profiling.steps.sarathi import BATCH, batch_profile
from tileq_theory.errors import InputError

_PER_TOKEN = ("operation_time_per_token", "per_token_time")
_FIGURE_9 = ("prefill_length", "chunk_size", "prefill_execution_time")
_RATIO_SLACK = 1e-3


def _read_batches(place: Place, options: ProfileOptions) -> ProfileReading:
    source = place.text()
    header = need_header(source)
    name = next((name for name in _PER_TOKEN if header.find(name) is not None), _PER_TOKEN[0])
    columns, _ = table_columns(source, ("batch_num_tokens", "batch_execution_time", name))
    tokens, took, per_token = columns.values()
    per_s = _per_second(source, took / tokens, per_token, name)
    profile, left = batch_profile(source, Conditions(source=source.name), per_s)
    warnings = [
        f"batch_execution_time is in {'seconds' if per_s == 1 else 'milliseconds'}, as its ratio to {name} (ms) shows",
        "the table tells neither KV tokens nor pairs: their time goes into the other coefficients",
    ]
    return finish("sarathi-table", [Part({}, profile)], joinable=True, left_out=left, warnings=warnings)


def _per_second(source: Source, own: Float[np.ndarray, "row"], per_token: Float[np.ndarray, "row"], name: str) -> float:
    """Return how many units of batch_execution_time make a second, from the column that is known to be in ms."""
    for per_s in (1.0, 1e3):
        if np.allclose(own / per_s * 1e3, per_token, rtol=_RATIO_SLACK):
            return per_s
    raise InputError(
        f"{source.name}: batch_execution_time / batch_num_tokens agrees with {name} neither in seconds nor in "
        "milliseconds; mend the table"
    )


def _read_prefills(place: Place, options: ProfileOptions) -> ProfileReading:
    source = place.text()
    columns, _ = table_columns(source, _FIGURE_9)
    length, chunk, ms = columns.values()
    if np.any(chunk < 1) or np.any(length < 1):
        raise InputError(f"{source.name}: a prefill or chunk of 0 tokens; expected 1 or more")
    count = np.ceil(length / chunk)
    uneven = (count > 1) & (count * chunk - length > 0.1 * chunk)
    profile = Profile.of(
        tokens=length / count,
        prefill_tokens=length / count,
        pairs=length * (length + 1) / 2 / count,
        kv_tokens=np.zeros(length.size),
        sequences=np.ones(length.size),
        seconds=ms / 1e3 / count,
        repeats=count,
        conditions=Conditions(source=source.name),
    )
    warnings = ["a row is the mean iteration of one prefill in equal chunks: its time over the number of chunks"]
    if uneven.any():
        warnings.append(f"{int(uneven.sum())} prefills end in a short chunk: their mean blurs the steps of the tile")
    return finish("sarathi-chunks", [Part({}, profile)], joinable=True, warnings=warnings)


def _sniff_batches(place: Place) -> float:
    return 6.0 if header_has(place, *BATCH) and any(header_has(place, name) for name in _PER_TOKEN) else 0.0


READERS = (
    ProfileReader(
        "sarathi-table", "Sarathi OSDI 2024 figure 2, table 2 (CSV; unit checked)", _sniff_batches, _read_batches
    ),
    ProfileReader(
        "sarathi-chunks",
        "Sarathi OSDI 2024 figure 9, prefills in chunks (CSV; milliseconds)",
        lambda place: 5.0 if header_has(place, *_FIGURE_9) else 0.0,
        _read_prefills,
    ),
)
