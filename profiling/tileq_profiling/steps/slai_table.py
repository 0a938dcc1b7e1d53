"""SLAI's plot1_results.csv (figure 5a): a lone prompt in chunks; median TTFT and mean batch time, milliseconds.

The published means mix full chunks, a remainder and a decode step; `recover_chunk_times` takes them apart. The file
does not say the prompt's length: 2048 tokens in the paper.
"""

from __future__ import annotations

__all__ = ["READERS"]

from tileq_profiling.fit.chunk_times import recover_chunk_times
from tileq_profiling.profile import Conditions
from tileq_profiling.steps.base import ProfileOptions, ProfileReader, header_has
from tileq_profiling.steps.columns import table_columns
from tileq_profiling.steps.place import Place
from tileq_profiling.steps.reading import Part, ProfileReading, finish
from tileq_theory.errors import InputError

_COLUMNS = ("chunk", "ttft_ms", "batch_ms")
_PROMPT_TOKENS = 2048  # SLAI section 5, figure 5a
_LARGEST_RESIDUAL = 0.15


def _read(place: Place, options: ProfileOptions) -> ProfileReading:
    source = place.text()
    columns, _ = table_columns(source, _COLUMNS)
    prompt = options.prompt_tokens or _PROMPT_TOKENS
    if (columns["chunk"] > prompt).any():
        raise InputError(f"{source.name}: a chunk is larger than the prompt's {prompt} tokens; pass prompt_tokens=")
    try:
        times = recover_chunk_times(
            prompt_tokens=prompt,
            chunk_tokens=columns["chunk"],
            ttft_s=columns["ttft_ms"] / 1e3,
            mean_iteration_s=columns["batch_ms"] / 1e3,
        )
    except InputError as problem:
        raise InputError(f"{source.name}: {problem}") from None
    profile = times.profile(Conditions(device="rtx-6000-ada", model="mistral-7b", source=source.name))
    warnings = [
        f"per-chunk times recovered from the means over a lone prompt of {prompt} tokens and one decode step; they "
        f"reproduce the published figures within {100 * times.residual:.1f} %"
    ]
    if times.residual > _LARGEST_RESIDUAL:
        warnings.append(f"the figures do not agree with a prompt of {prompt} tokens; pass prompt_tokens= as it was")
    return finish("slai-chunks", [Part({}, profile)], joinable=True, warnings=warnings)


READERS = (
    ProfileReader(
        "slai-chunks",
        "SLAI figure 5a, plot1_results.csv (CSV; milliseconds)",
        lambda place: 5.0 if header_has(place, *_COLUMNS) else 0.0,
        _read,
    ),
)
