"""What a run leaves behind, as arrays; metrics are computed from it elsewhere."""

from __future__ import annotations

__all__ = ["Bottlenecks", "GapRecord", "GapSums", "IterationSamples", "RawRun", "TenantRecord", "Trace"]

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from tileq_engine.config import EngineConfig
from tileq_engine.observed import Bottlenecks, TenantRecord
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_theory.iteration_time import IterationTime

Requestwise = Int[np.ndarray, "request"]
Samplewise = Int[np.ndarray, "sample"]
Entrywise = Int[np.ndarray, "entry"]


@dataclass(frozen=True, slots=True)
class GapSums:
    """Exact sums of one group's gaps: number, sum, least and largest, picoseconds (Python integers)."""

    count: int
    sum_ps: int
    min_ps: int
    max_ps: int


@dataclass(frozen=True, slots=True)
class GapRecord:
    """Distribution of the gaps between tokens, by group (class and tier).

    When `exact`, (gap, count) pairs, sorted by group and gap. Otherwise the bins of a histogram that is exact below
    128 ps and has 128 bins an octave above, so that `gap_ps`, a bin's middle, is within 1/256 of the gap.
    """

    exact: bool
    group_names: tuple[str, ...]
    gap_ps: Int[np.ndarray, "pair"]
    count: Int[np.ndarray, "pair"]
    group: Int[np.ndarray, "pair"]
    sums: tuple[GapSums, ...]

    @property
    def relative_error(self) -> float:
        """Bound of the relative error of any `gap_ps`."""
        return 0.0 if self.exact else 1 / 256


@dataclass(frozen=True, slots=True)
class IterationSamples:
    """Every `stride`-th iteration as it starts: its batch and the state of the system.

    `prefix_lookup_tokens` and `prefix_hit_tokens` are totals up to then; `prefix_idle_blocks` are cached blocks that
    nobody refers to, which `kv_blocks_used` does not count.
    """

    stride: int
    iteration: Samplewise
    start_ps: Samplewise
    duration_ps: Samplewise
    prefill_tokens: Samplewise
    decode_tokens: Samplewise
    sequences: Samplewise
    waiting: Samplewise
    running: Samplewise
    kv_blocks_used: Samplewise
    work_tokens: Samplewise
    served_prefill_tokens: Samplewise
    served_decode_tokens: Samplewise
    prefix_lookup_tokens: Samplewise
    prefix_hit_tokens: Samplewise
    prefix_idle_blocks: Samplewise


@dataclass(frozen=True, slots=True)
class Trace:
    """Who was in which batch, as far as `trace_limit` reached; `request` is an index."""

    iteration: Entrywise
    start_ps: Entrywise
    duration_ps: Entrywise
    request: Entrywise
    prefill_tokens: Entrywise
    decode: Entrywise

    def batches(self) -> list[list[tuple[int, int, int]]]:
        """Return, iteration by iteration, the members (request, prefill tokens, decode) in batch order."""
        rows: dict[int, list[tuple[int, int, int]]] = {}
        for iteration, *member in zip(
            *(v.tolist() for v in (self.iteration, self.request, self.prefill_tokens, self.decode)), strict=True
        ):
            rows.setdefault(iteration, []).append((member[0], member[1], member[2]))
        return list(rows.values())


@dataclass(frozen=True, slots=True)
class RawRun:
    """Per-request times and counts (-1 ps: never), distributions, samples, integrals and counters of one run.

    `prefix_hit_tokens` are those of its tokens that a prefix cache had, summed over its lives (it has one more with
    each preemption). `predicted_output_tokens` is what the policy was told; `requests` are as they were given.
    """

    requests: Requests
    policy: Policy
    config: EngineConfig
    time: IterationTime
    mode: str
    stop_reason: str
    end_ps: int
    arrival_ps: Requestwise
    admit_ps: Requestwise
    prefill_end_ps: Requestwise
    first_token_ps: Requestwise
    finish_ps: Requestwise
    tokens_done: Requestwise
    preemptions: Requestwise
    predicted_output_tokens: Requestwise
    recomputed_tokens: Requestwise
    swapped_tokens: Requestwise
    max_gap_ps: Requestwise
    gaps_over_limit: Requestwise
    status: Requestwise
    reject_reason: Requestwise
    prefix_hit_tokens: Requestwise
    gaps: GapRecord
    samples: IterationSamples
    trace: Trace
    integrals: Mapping[str, int]
    counters: Mapping[str, int]
    notes: tuple[str, ...] = ()
    tenants: TenantRecord | None = None
    bottlenecks: Bottlenecks | None = None
