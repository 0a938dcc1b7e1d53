"""ServeGen client data: distributions, not requests.

chunk-N-dataset.json maps the start of a window (seconds) to {input_tokens, output_tokens}, each a string holding a
dict literal {length: probability}; ServeGen draws the two independently. chunk-N-trace.csv has no header: start
(s), rate (1/s), CV of the gaps, law of the gaps, its shape, its scale. A dataset is read as a deterministic sample:
mid-quantiles of each law, paired by a fixed shuffle, so moments are exact to 1/sample. Source: Xiang et al.,
ServeGen, NSDI 2026; layout as its readers in other projects describe it.
"""

from __future__ import annotations

__all__ = ["READERS"]

import ast
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_profiling.readers.base import Options, Reader
from tileq_profiling.readers.build import Rows, build_trace
from tileq_profiling.readers.json_rows import as_object
from tileq_profiling.readers.source import Source
from tileq_profiling.readers.trace import Trace
from tileq_profiling.readers.values import MAX_TOKENS
from tileq_theory.errors import InputError

_SAMPLE = 10_000
_SEED = 20260
_LAWS = {"gamma", "weibull", "poisson", "exponential", ""}


def _sniff_dataset(source: Source) -> float:
    window = next(iter(source.first.values()), None)
    if not isinstance(window, dict) or not window.keys() >= {"input_tokens", "output_tokens"}:
        return 0.0
    return 4.0 if isinstance(window["input_tokens"], str) else 0.0


def _read_dataset(source: Source, options: Options) -> Trace:
    windows = [
        (name, laws)
        for name, value in as_object(source, source.document, "document").items()
        if (laws := _window(source, name, value)) is not None
    ]
    if not windows:
        raise InputError(f"{source.name} has no window with both lengths; expected at least one")
    if options.run is not None:
        if not 1 <= options.run <= len(windows):
            raise InputError(f"{source.name} has {len(windows)} windows; run={options.run} is not one of them")
        windows = windows[options.run - 1 : options.run]
    share = max(1, _SAMPLE // len(windows))
    rng = np.random.default_rng(_SEED)
    prompts = np.concatenate([_quantiles(laws[0], share) for _, laws in windows])
    outputs = np.concatenate([rng.permutation(_quantiles(laws[1], share)) for _, laws in windows])
    rows = Rows(prompts, outputs, where=lambda row: f"window {windows[row // share][0]}")
    rows.warnings += [
        f"ServeGen holds distributions: {prompts.size} lengths are their quantiles over {len(windows)} windows (equal "
        "weight), prompt and output independent as ServeGen draws them",
        "no arrivals; pass a rate (chunk-N-trace.csv beside it has rate and CV by time)",
    ]
    return build_trace(source, "servegen", rows, options.zeros or "error")


def _window(source: Source, name: str, value: Any) -> tuple[dict[int, float], dict[int, float]] | None:
    record = as_object(source, value, f"window {name}")
    laws = [_law(source, name, key, record.get(key)) for key in ("input_tokens", "output_tokens")]
    return (laws[0], laws[1]) if all(laws) else None


def _law(source: Source, name: str, key: str, text: Any) -> dict[int, float]:
    """Return {length: probability} of a dict literal; {} for an empty window."""
    problem = InputError(
        f"{source.name} window {name}, field {key}: {str(text)[:40]!r}; expected a dict literal of whole lengths and "
        "probabilities"
    )
    if text in (None, ""):
        return {}
    try:
        law = ast.literal_eval(text) if isinstance(text, str) else None
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        raise problem from None
    if not isinstance(law, dict) or (isinstance(text, str) and text.count(":") != len(law)):
        raise problem
    for length, share in law.items():
        if type(length) not in (int, float) or not 0 <= length <= MAX_TOKENS or length != int(length):
            raise problem
        if type(share) not in (int, float) or not 0 <= share < np.inf:
            raise problem
    if law and sum(law.values()) <= 0:
        raise problem
    return {int(length): float(share) for length, share in law.items() if share > 0}


def _quantiles(law: dict[int, float], count: int) -> Int[np.ndarray, "request"]:
    lengths = np.array(sorted(law), np.int64)
    cumulative = np.cumsum([law[int(length)] for length in lengths])
    middle = (np.arange(count) + 0.5) / count * cumulative[-1]
    chosen: Int[np.ndarray, "request"] = lengths[np.minimum(np.searchsorted(cumulative, middle), lengths.size - 1)]
    return chosen


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _sniff_rates(source: Source) -> float:
    header = source.header
    if header is None or not 4 <= len(header.columns) <= 6:
        return 0.0
    first = header.columns
    return 2.0 if all(map(_is_number, first[:3])) and first[3].casefold() in _LAWS else 0.0


def _refuse_rates(source: Source, options: Options) -> Trace:
    raise InputError(
        f"{source.name} holds ServeGen's arrival rates by window and no requests; pass chunk-N-dataset.json beside it "
        "and a rate"
    )


READERS = (
    Reader(
        "servegen", "ServeGen chunk-N-dataset.json (JSON distributions; no arrivals)", _sniff_dataset, _read_dataset
    ),
    Reader(
        "servegen-rates",
        "ServeGen chunk-N-trace.csv (rates only, recognised to say what to pass instead)",
        _sniff_rates,
        _refuse_rates,
        reads=False,
    ),
)
