"""From columns of requests to a `MeasuredRun`: order, first arrival, failures left out, odd times questioned."""

from __future__ import annotations

__all__ = ["Requests", "from_gaps", "make_run", "tpot_of"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_profiling.profile import Conditions
from tileq_profiling.readers.values import MAX_TOKENS
from tileq_profiling.steps.names import in_catalogue
from tileq_profiling.steps.run import MeasuredRun, RunSeries, Tokens
from tileq_theory.errors import InputError

_SHORTEST_TPOT_S = 1e-4  # no served model decodes a token in a tenth of a millisecond
_LONGEST_TPOT_S = 3.0  # 10 ms read as 10 s are beyond it; a large model on a CPU is not
_LONGEST_E2E_S = 2e4


@dataclass(slots=True)
class Requests:
    """Columns as read, one entry a request; times in seconds, `arrival` on any clock."""

    prompt: Float[np.ndarray, "request"]
    output: Float[np.ndarray, "request"]
    arrival: Float[np.ndarray, "request"] | None = None
    ttft_s: Float[np.ndarray, "request"] | None = None
    tpot_s: Float[np.ndarray, "request"] | None = None
    e2e_s: Float[np.ndarray, "request"] | None = None
    queue_s: Float[np.ndarray, "request"] | None = None
    gaps: list[Float[np.ndarray, "_"]] | None = None

    def __post_init__(self) -> None:
        if self.tpot_s is None and self.ttft_s is not None and self.e2e_s is not None:
            self.tpot_s = tpot_of(self.ttft_s, self.e2e_s, self.output)


def tpot_of(
    ttft_s: Float[np.ndarray, "request"], e2e_s: Float[np.ndarray, "request"], output: Float[np.ndarray, "request"]
) -> Float[np.ndarray, "request"]:
    """Return (e2e - TTFT)/(output - 1), NaN for a request of one token."""
    tpot: np.ndarray = np.divide(e2e_s - ttft_s, output - 1, out=np.full(output.size, np.nan), where=output > 1)
    return tpot


def from_gaps(gaps: Sequence[Float[np.ndarray, "_"]]) -> Tokens:
    """Return gaps of all requests in one array."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([gap.size for gap in gaps], dtype=np.int64)])
    return Tokens(np.concatenate(gaps) if len(gaps) else np.empty(0), offsets)


def make_run(
    source: str,
    format_name: str,
    requests: Requests | None,
    *,
    series: Sequence[RunSeries] = (),
    totals: Mapping[str, float] | None = None,
    preemptions: int | None = None,
    conditions: Conditions | None = None,
    kv_capacity_tokens: float | None = None,
    skipped: Sequence[tuple[str, int]] = (),
    warnings: Sequence[str] = (),
) -> MeasuredRun:
    """Return the run: requests without prompt or output left out and counted, the others in order of arrival."""
    left, told = list(skipped), list(warnings)
    columns: dict[str, object] = {}
    if requests is not None:
        keep = _served(source, requests, left)
        columns = _columns(source, requests, keep)
        told += _questions(requests, keep)
    elif totals:
        told += _doubts(_of_totals(totals, ("tpot_s", "itl_s")), _of_totals(totals, ("e2e_s", "ttft_s")))
    if requests is None and not series and not totals:
        raise InputError(f"{source} holds no requests, no reports over time and no totals ({format_name})")
    return MeasuredRun(
        source=source,
        format=format_name,
        series=tuple(series),
        totals=dict(totals or {}),
        preemptions=preemptions,
        conditions=in_catalogue(conditions or Conditions(source=source)),
        kv_capacity_tokens=kv_capacity_tokens,
        skipped=tuple(left),
        warnings=tuple(dict.fromkeys(told)),
        **columns,  # type: ignore[arg-type]
    )


def _served(source: str, requests: Requests, left: list[tuple[str, int]]) -> np.ndarray:
    for name, lengths in (("prompt", requests.prompt), ("output", requests.output)):
        wrong = (lengths != np.round(lengths)) | (lengths < 0) | (lengths > MAX_TOKENS)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(f"{source} request {row + 1}: {name} tokens are {lengths[row]:g}; expected a whole number")
    keep = (requests.prompt >= 1) & (requests.output >= 1)
    if not keep.all():
        left.append(("requests without prompt or output tokens (they failed)", int(np.sum(~keep))))
    if not keep.any():
        reasons = "; ".join(f"{count} {reason}" for reason, count in left) or "none in it"
        raise InputError(f"{source} holds no request that was served ({reasons}); expected at least one")
    return np.flatnonzero(keep)


def _columns(source: str, requests: Requests, kept: np.ndarray) -> dict[str, object]:
    order = kept
    arrival = None
    if requests.arrival is not None:
        times = requests.arrival[kept]
        order = kept[np.argsort(times, kind="stable")]
        arrival = requests.arrival[order] - times.min()
    columns: dict[str, object] = {
        "prompt_tokens": requests.prompt[order].astype(np.int64),
        "output_tokens": requests.output[order].astype(np.int64),
        "arrival_s": arrival,
    }
    for name in ("ttft_s", "tpot_s", "e2e_s", "queue_s"):
        values = getattr(requests, name)
        columns[name] = None if values is None else _checked(source, name, values[order])
    if requests.gaps is not None:
        columns["gaps"] = from_gaps([requests.gaps[row] for row in order])
    return columns


def _checked(source: str, name: str, values: np.ndarray) -> np.ndarray:
    if np.any(values < -1e-6) or np.any(np.isinf(values)):
        row = int(np.argmax((values < -1e-6) | np.isinf(values)))
        raise InputError(
            f"{source}: {name} of a request is {values[row]:g}; expected 0 or more; were two clocks mixed?"
        )
    mended: np.ndarray = np.maximum(values, 0.0)
    return mended


def _questions(requests: Requests, kept: np.ndarray) -> list[str]:
    """Ask about times that no server shows: what milliseconds read as seconds look like, and the reverse."""
    ttft, tpot, e2e = (None if v is None else v[kept] for v in (requests.ttft_s, requests.tpot_s, requests.e2e_s))
    found = _doubts(_median(tpot), _median(e2e))
    if ttft is not None and e2e is not None:
        late = int(np.count_nonzero(ttft > e2e * (1 + 1e-6) + 1e-6))
        if late:
            found.append(f"{late} requests have their first token after their end; are both in the same unit?")
    return found


def _doubts(typical: float | None, longest: float | None) -> list[str]:
    """Ask about a typical time per token and a typical time of a request."""
    found = []
    if typical is not None and typical > _LONGEST_TPOT_S:
        found.append(f"a token takes {typical:.3g} s in the median; were milliseconds taken for seconds?")
    elif typical is not None and 0 < typical < _SHORTEST_TPOT_S:
        found.append(
            f"a token takes {1e6 * typical:.3g} us in the median; were seconds divided by 1000 once too often?"
        )
    if longest is not None and longest > _LONGEST_E2E_S:
        found.append(f"a request takes {longest:.3g} s in the median; were milliseconds taken for seconds?")
    return found


def _of_totals(totals: Mapping[str, float], names: Sequence[str]) -> float | None:
    """Return the first median, else the first mean, of the named times that a run's totals hold."""
    for part in ("median", "mean"):
        for name in names:
            if totals.get(f"{part}_{name}") is not None:
                return float(totals[f"{part}_{name}"])
    return None


def _median(values: np.ndarray | None) -> float | None:
    known = values[np.isfinite(values)] if values is not None else np.empty(0)
    return float(np.median(known)) if known.size else None
