r"""`Run`: what happened in one run of a policy, whichever executor produced it.

Times are whole picoseconds on the run's own clock (0 = its start); -1 marks a moment that did not come (and a work
count that was not taken). A request whose status is "future" had not arrived when the run stopped. A `Run` holds the
per-request table, thinned samples of the iterations, the gap distribution of every (class, tier) group, integer
counters and the facts of the run (`RunInfo`). Metrics are computed on demand (`metrics`), saved losslessly (`run_io`)
and exported (`export`).
"""

from __future__ import annotations

__all__ = [
    "FINISHED",
    "FUTURE",
    "LATER_FIELDS",
    "NEVER_FITS",
    "PS_PER_S",
    "REJECTED",
    "REJECT_REASONS",
    "REQUEST_FIELDS",
    "RUNNING",
    "SAMPLE_FIELDS",
    "STATUS_NAMES",
    "SYSTEM_FULL",
    "WAITING",
    "GapGroup",
    "Run",
    "RunInfo",
    "Slo",
]

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.gaps import GapDistribution, GapPairs, merge_gaps
from tileq_engine.observed import Bottlenecks, TenantRecord
from tileq_theory.errors import InputError, positive

if TYPE_CHECKING:
    from tileq_engine.metrics import RunMetrics
    from tileq_engine.verdict import StabilityVerdict

PS_PER_S = 10**12
FUTURE, WAITING, RUNNING, FINISHED, REJECTED = 0, 1, 2, 3, 4
# why a request was rejected; 1 to 3 depend on the request and the settings alone, not on the load
REJECT_REASONS = (
    "none",
    "longer than max_model_tokens",
    "larger than the KV cache",
    "longer than the token budget of a policy that takes whole prompts",
    "system full",
    "cancelled",
    "backpressure",
    "rerouted",
)
NEVER_FITS = 3
SYSTEM_FULL = REJECT_REASONS[4]
STATUS_NAMES = ("future", "waiting", "running", "finished", "rejected")
REQUEST_FIELDS = (
    "request_id",
    "class_index",
    "tier",
    "priority",
    "tenant",
    "status",
    "reject_reason",
    "arrival_ps",
    "admit_ps",
    "prefill_end_ps",
    "first_token_ps",
    "finish_ps",
    "prompt_tokens",
    "output_tokens",
    "predicted_output_tokens",
    "tokens_done",
    "preemptions",
    "recomputed_tokens",
    "swapped_tokens",
    "max_gap_ps",
    "gaps_over_limit",
    "tbt_limit_ps",
    "prefix_hit_tokens",
)
SAMPLE_FIELDS = (
    "iteration",
    "start_ps",
    "duration_ps",
    "prefill_tokens",
    "decode_tokens",
    "sequences",
    "waiting",
    "running",
    "kv_blocks_used",
    "work_tokens",
    "served_prefill_tokens",
    "served_decode_tokens",
    "prefix_lookup_tokens",
    "prefix_hit_tokens",
    "prefix_idle_blocks",
)
LATER_FIELDS = ("prefix_lookup_tokens", "prefix_hit_tokens", "prefix_idle_blocks")  # files written before have none


@dataclass(frozen=True, slots=True)
class Slo:
    """Service-level objective of one tier: limits in seconds, infinite where there is none."""

    ttft_s: float = math.inf
    tbt_s: float = math.inf
    e2e_s: float = math.inf

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tbt_s", "e2e_s"):
            value = getattr(self, name)
            if value != math.inf:
                positive(f"SLO {name}", value)

    def to_dict(self) -> dict[str, float | None]:
        """Return the limits as plain data; None where there is none."""
        limits = {"ttft_s": self.ttft_s, "tbt_s": self.tbt_s, "e2e_s": self.e2e_s}
        return {name: value if math.isfinite(value) else None for name, value in limits.items()}


@dataclass(frozen=True, slots=True, eq=False)
class GapGroup:
    """Gap distribution of the requests of one class and tier."""

    class_index: int
    tier: int
    gaps: GapDistribution


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The facts of a run that its arrays do not carry.

    Parameters
    ----------
    policy, policy_config
        Name and full configuration of the policy (plain JSON data).
    end_ps
        Clock at the end of the run.
    stop_reason
        "finished" (every request left), "time", "backlog" or "iterations" (a bound was hit), "stalled", or another
        short word.
    rate_per_s
        Offered arrival rate, requests a second; None where it was not a rate (a trace).
    class_names, tier_names
        Names by class index and by tier.
    slo
        Objective of each tier (as many as tier_names, or none).
    token_convention
        "engine" or "paper" (`tileq_theory.conventions`).
    kv_blocks_total, block_tokens
        KV capacity in blocks (0: unbounded or unknown), tokens of a block.
    max_sequences, token_budget
        Limits of a batch, 0 where there is none.
    sample_every
        The samples keep one iteration in this many.
    gap_window_ps
        Only tokens emitted in [first, second] entered the gap groups; None: all tokens of the run.
    seed, replication
        Root seed and replication number of the random streams; None where there was none.
    iteration_time, workload, provenance
        Plain JSON data: model of time, law of requests, where they come from.
    warnings
        One short sentence each.
    """

    policy: str
    end_ps: int
    stop_reason: str = "finished"
    policy_config: Mapping[str, Any] = field(default_factory=dict)
    rate_per_s: float | None = None
    class_names: tuple[str, ...] = ("all",)
    tier_names: tuple[str, ...] = ("all",)
    slo: tuple[Slo, ...] = ()
    token_convention: str = "engine"
    kv_blocks_total: int = 0
    block_tokens: int = 16
    max_sequences: int = 0
    token_budget: int = 0
    sample_every: int = 1
    gap_window_ps: tuple[int, int] | None = None
    seed: int | None = None
    replication: int | None = None
    iteration_time: Mapping[str, Any] = field(default_factory=dict)
    workload: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.slo and len(self.slo) != len(self.tier_names):
            raise InputError(
                f"{len(self.slo)} SLOs given for {len(self.tier_names)} tiers; expected one a tier, or none"
            )
        if self.token_convention not in ("engine", "paper"):
            raise InputError(f"token convention is {self.token_convention!r}; expected 'engine' or 'paper'")
        if self.end_ps < 0:
            raise InputError(f"end_ps is {self.end_ps!r}; expected 0 or more")


def _check_table(kind: str, table: Mapping[str, np.ndarray], expected: tuple[str, ...]) -> None:
    missing = [name for name in expected if name not in table]
    extra = [name for name in table if name not in expected]
    if missing or extra:
        raise InputError(f"{kind} lack {missing or 'nothing'} and have unknown {extra or 'nothing'}")
    lengths = {array.shape for array in table.values()}
    if len(lengths) > 1 or any(len(shape) != 1 for shape in lengths):
        raise InputError(f"{kind} have columns of shapes {sorted(lengths)}; expected equal lengths")
    wrong = [name for name, array in table.items() if array.dtype != np.int64]
    if wrong:
        raise InputError(f"{kind} column {wrong[0]} has dtype {table[wrong[0]].dtype}; expected int64")


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run: request table, samples, gaps, counters and facts.

    Parameters
    ----------
    requests
        `REQUEST_FIELDS`, int64, one entry a request, in order of arrival.
    samples
        `SAMPLE_FIELDS`, int64, one entry a sampled iteration, in order of time.
    gaps
        One group for each (class, tier) that emitted tokens.
    counters
        Whole numbers over the run: iterations, busy_ps, prefill_tokens, decode_tokens, preemptions, swapped_bytes, ...
    info
        The other facts.
    tenants
        What every tenant got, one row a sample; None where no accounts were kept.
    bottlenecks
        When requests waited and why; None where nobody watched.
    """

    requests: Mapping[str, Int[np.ndarray, "request"]]
    samples: Mapping[str, Int[np.ndarray, "sample"]]
    gaps: tuple[GapGroup, ...]
    counters: Mapping[str, int]
    info: RunInfo
    tenants: TenantRecord | None = None
    bottlenecks: Bottlenecks | None = None

    def __post_init__(self) -> None:
        _check_table("requests", self.requests, REQUEST_FIELDS)
        _check_table("samples", self.samples, SAMPLE_FIELDS)
        if not self.count:
            return
        if bool((np.diff(self.requests["arrival_ps"]) < 0).any()):
            raise InputError("requests are not in order of arrival; sort them by arrival_ps first")
        for column, names in (("class_index", self.info.class_names), ("tier", self.info.tier_names)):
            low, high = int(self.requests[column].min()), int(self.requests[column].max())
            if low < 0 or high >= len(names):
                raise InputError(f"{column} spans {low}..{high}, but {len(names)} names were given for it")
        if not 0 <= int(self.requests["status"].min()) <= int(self.requests["status"].max()) < len(STATUS_NAMES):
            raise InputError(f"status must be 0 to {len(STATUS_NAMES) - 1} ({', '.join(STATUS_NAMES)})")

    @staticmethod
    def of(raw: Any, **facts: Any) -> Run:
        """Return the run of a raw result; facts as in `run_raw.run_from_raw` (rate_per_s, slo, seed, ...)."""
        from tileq_engine.run_raw import run_from_raw

        return run_from_raw(raw, **facts)

    # ------------------------------------------------------------------ reading

    @property
    def count(self) -> int:
        """Number of requests offered, rejected ones included."""
        return int(self.requests["arrival_ps"].size)

    @property
    def finished(self) -> int:
        """Number of requests finished."""
        return int((self.requests["status"] == FINISHED).sum())

    @property
    def rejected(self) -> int:
        """Number of requests rejected."""
        return int((self.requests["status"] == REJECTED).sum())

    @property
    def rejected_share(self) -> float:
        """Share of the requests that arrived and were rejected (0 when none arrived)."""
        arrived = int((self.requests["status"] != FUTURE).sum())
        return self.rejected / arrived if arrived else 0.0

    def rejections(self) -> dict[str, int]:
        """Return how many requests were rejected for each reason that occurred."""
        reasons = self.requests["reject_reason"][self.requests["status"] == REJECTED]
        known = np.clip(reasons, 0, len(REJECT_REASONS) - 1)
        return {REJECT_REASONS[int(r)]: int((known == r).sum()) for r in np.unique(known)}

    @property
    def accepted(self) -> Bool[np.ndarray, "request"]:
        """Which requests arrived and were not rejected."""
        status = self.requests["status"]
        return np.asarray((status != FUTURE) & (status != REJECTED), dtype=bool)

    def merged_gaps(self, class_index: int | None = None, tier: int | None = None) -> GapDistribution:
        """Return the gaps of the chosen class and tier (None: all of them)."""
        chosen = [
            g.gaps
            for g in self.gaps
            if (class_index is None or g.class_index == class_index) and (tier is None or g.tier == tier)
        ]
        return merge_gaps(chosen) if chosen else GapPairs.of(np.zeros(0, dtype=np.int64))

    # ------------------------------------------------------------------ answers

    def metrics(self, rule: str = "mser5", **options: Any) -> RunMetrics:
        """Return the metrics under a warm-up rule of `metrics_window.measure_window` (options are passed on)."""
        from tileq_engine.metrics import run_metrics

        return run_metrics(self, rule, **options)

    def verdict(self, **options: Any) -> StabilityVerdict:
        """Return the stability verdict (`verdict.stability_verdict`) from the work in system."""
        from tileq_engine.run_paths import run_verdict

        return run_verdict(self, **options)

    def to_dict(self, rule: str = "mser5", **options: Any) -> dict[str, Any]:
        """Return the metrics document of the contract: `ttft_s`, `tbt_s`, ..., `stable`, `ci95`, plain JSON."""
        return self.metrics(rule, **options).to_dict()

    def summary(self, rule: str = "mser5", **options: Any) -> str:
        """Return the metrics as a short text for people."""
        return self.metrics(rule, **options).summary()

    # ------------------------------------------------------------------ files

    def save(self, path: str | Path) -> Path:
        """Write the run losslessly to an NPZ file (atomic: the file is complete or absent)."""
        from tileq_engine.run_io import save_run

        return save_run(self, path)

    @staticmethod
    def load(path: str | Path) -> Run:
        """Read a run that `save` wrote; a damaged or foreign file raises `InputError`."""
        from tileq_engine.run_io import load_run

        return load_run(path)

    def to_csv(self, path: str | Path) -> Path:
        """Write one row a request to a CSV file, units in the column names."""
        from tileq_engine.export import write_csv

        return write_csv(self, path)

    def to_parquet(self, path: str | Path) -> Path:
        """Write one row a request to a Parquet file, units in the column names."""
        from tileq_engine.export import write_parquet

        return write_parquet(self, path)
