r"""Independent replications of one simulation, and what they say together.

    result = replicate(simulate, 10, seed=1)         simulate(streams) -> Run

Each replication gets its own random streams (`experiment_streams`); the answer's `to_dict()` is the contract's
document with the mean over replications of every statistic, Student intervals under `ci95`, and the pooled stability
verdict.
"""

from __future__ import annotations

__all__ = ["Replications", "as_document", "combine_documents", "replicate", "statistic"]

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tileq_engine.experiment_parallel import run_tasks
from tileq_engine.experiment_store import ResultStore, settings_of
from tileq_engine.experiment_streams import Streams
from tileq_engine.intervals import Interval, student_interval
from tileq_engine.run import Run
from tileq_engine.run_raw import run_from_raw
from tileq_engine.verdict import StabilityVerdict, pooled_verdict
from tileq_theory.errors import InputError, positive_int

Document = Mapping[str, Any]
SPREADS = ("ttft_s", "tbt_s", "tpot_s", "e2e_s")
STATISTICS = ("mean", "p50", "p90", "p99", "max")
_SUMS = ("count", "unfinished", "measured_requests", "offered", "accepted", "finished", "rejected", "preempted")
_SINGLE = ("ci95", "ci95_details", "stability", "stable", "provenance", "warnings", "replication", "measurement")


def as_document(result: Any, **options: Any) -> dict[str, Any]:
    """Return the metrics document of a `Run`, of a raw result, or a document as it is."""
    if isinstance(result, Mapping):
        return dict(result)
    run = result if isinstance(result, Run) else run_from_raw(result)
    return run.to_dict(**options)


def statistic(document: Document, path: str) -> float:
    """Return the number at a dotted path of a document, e.g. "ttft_s.p99" or "tiers/paying/tbt_s/p99"; nan for None.

    Examples
    --------
    >>> statistic({"ttft_s": {"p50": 0.25}}, "ttft_s.p50")
    0.25
    """
    value: Any = document
    for part in path.split("/") if "/" in path else path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            known = ", ".join(map(str, value)) if isinstance(value, Mapping) else "nothing below it"
            raise InputError(f"no statistic {path!r}: {part!r} is not one of {known}")
        value = value[part]
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"statistic {path!r} is {value!r}; expected the path of a number")
    return float(value)


def _average(name: str, values: Sequence[Any]) -> Any:
    """Return the mean of numbers (largest of maxima, sum of counts), entry by entry; None where one has none."""
    first = values[0]
    if isinstance(first, Mapping):
        shared = [key for key in first if all(isinstance(v, Mapping) and key in v for v in values)]
        return {key: _average(key, [v[key] for v in values]) for key in shared}
    if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        if all(v == first for v in values) and name not in _SUMS:
            return first  # a setting (a seed) stays the whole number it is
        if name == "max":
            return max(values)
        return sum(values) if name in _SUMS else math.fsum(values) / len(values)
    return first if all(v == first for v in values) else None


def _student(documents: Sequence[Document], level: float) -> dict[str, dict[str, Interval]]:
    found: dict[str, dict[str, Interval]] = {}
    for name in SPREADS:
        found[name] = {s: _of([statistic(d, f"{name}.{s}") for d in documents], level) for s in STATISTICS}
    for name in ("throughput_per_s", "goodput_per_s", "busy_share"):
        if all(d.get(name) is not None for d in documents):
            found[name] = {"mean": _of([statistic(d, name) for d in documents], level)}
    return found


def _of(values: Sequence[float], level: float) -> Interval:
    """Return the Student interval of a time, a rate or a share: none is below 0."""
    interval = student_interval(values, level)
    return interval.within(0.0) if math.isfinite(interval.half_width) else interval


def _verdict_of(document: Document) -> StabilityVerdict:
    stored = document["stability"]
    slope = stored["slope_tokens_per_s"]

    def number(name: str, absent: float) -> float:
        return absent if slope[name] is None else float(slope[name])

    interval = Interval(
        number("estimate", math.nan),
        number("low", -math.inf),
        number("high", math.inf),
        slope["level"],
        slope["method"],
        slope["n"],
        slope.get("settled", True),
        slope.get("note", ""),
    )
    return StabilityVerdict(
        stored["verdict"], interval, stored["threshold_tokens_per_s"], stored["reason"], stored.get("growth_ratio")
    )


def combine_documents(documents: Sequence[Document], level: float = 0.95) -> dict[str, Any]:
    """Return one contract document from those of independent replications.

    Statistics are means over replications (a quantile is the mean of the replications' quantiles, a maximum the
    largest, counts are sums); `ci95` has Student intervals; `stable` is the pooled verdict; warnings say in how many
    replications they occurred.
    """
    if not documents:
        raise InputError("no replications to combine; expected at least one")
    if len(documents) == 1:
        return {**documents[0], "replications": 1}
    answer = {k: _average(k, [d[k] for d in documents]) for k in documents[0] if k not in _SINGLE}
    intervals = _student(documents, level)
    verdict = pooled_verdict([_verdict_of(d) for d in documents])
    texts = [text for d in documents for text in d["warnings"]]
    kinds = list(dict.fromkeys(texts))
    counted = [
        t if texts.count(t) == len(documents) else f"in {texts.count(t)} of {len(documents)} replications: {t}"
        for t in kinds
    ]
    return {
        **answer,
        "stable": verdict.verdict,
        "stability": verdict.to_dict(),
        "ci95": {n: {k: [i.to_dict()["low"], i.to_dict()["high"]] for k, i in p.items()} for n, p in intervals.items()},
        "ci95_details": {n: {k: i.to_dict() for k, i in p.items()} for n, p in intervals.items()},
        "measurement": [d["measurement"] for d in documents],
        "replications": len(documents),
        "warnings": counted,
        "provenance": documents[0]["provenance"],
    }


@dataclass(frozen=True, slots=True)
class Replications:
    """Documents of independent replications of one setting."""

    documents: tuple[Document, ...]
    seed: int

    def __len__(self) -> int:
        return len(self.documents)

    def interval(self, path: str, level: float = 0.95) -> Interval:
        """Return the Student interval of a statistic such as "ttft_s.p99"."""
        return student_interval([statistic(d, path) for d in self.documents], level)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return the combined contract document."""
        return combine_documents(self.documents, level)


def _replication(
    simulate: Callable[[Streams], Any], store: ResultStore, options: Mapping[str, Any], streams: Streams
) -> Document:
    point = {"replication": streams.replication}
    kept = store.read(point)
    if kept is not None:
        return kept
    document = {**as_document(simulate(streams), **options), "seed": streams.seed, "replication": streams.replication}
    store.write(point, document)
    return document


def replicate(
    simulate: Callable[[Streams], Any],
    replications: int,
    seed: int = 0,
    *,
    backend: str = "joblib",
    workers: int | None = None,
    progress: bool | None = None,
    folder: str | Path | None = None,
    settings: Any = None,
    metrics: Mapping[str, Any] | None = None,
) -> Replications:
    """Run `simulate(streams)` for `replications` independent replications, in parallel.

    Parameters
    ----------
    simulate
        Returns a `Run` (or a raw result, or a metrics document). For process pools it must be picklable; closures are.
    seed
        Root seed; replication r uses the streams (seed, r).
    backend, workers, progress
        See `experiment_parallel.run_tasks`.
    folder
        Keep each document there as it finishes and take those already there; `settings` pins what is simulated.
    metrics
        Options of `Run.metrics` (rule, warmup, convention).
    """
    count = positive_int("replications", replications)
    options = dict(metrics or {})
    pinned = settings_of(simulate) if settings is None else settings
    store = ResultStore(folder, {"kind": "replications", "seed": seed, "settings": pinned, "metrics": options})
    streams = [Streams(seed, r) for r in range(count)]
    task = partial(_replication, simulate, store, options)
    documents = run_tasks(task, streams, backend=backend, workers=workers, progress=progress, title="replications")
    return Replications(tuple(documents), seed)
