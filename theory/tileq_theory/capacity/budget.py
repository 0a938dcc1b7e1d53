r"""The single token budget: demand by chunk size, lambda(n) over budgets n, and the smallest n that is good enough."""

from __future__ import annotations

__all__ = [
    "BudgetCurve",
    "DemandByChunk",
    "HasDemand",
    "budgets_to_compare",
    "smallest_budget",
    "unloaded_ttft_s",
    "within_ttft",
]

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.capacity.levels import corner_levels
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.single import single_level_iterations, single_level_rate
from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, positive
from tileq_theory.iteration_time import IterationTime

_CURVE_POINTS = 64


@runtime_checkable
class HasDemand(Protocol):
    """Anything whose demand depends on the chunk size: a `Workload` or a `JointLaw`."""

    def demand(
        self, *, chunk_tokens: int, convention: TokenConvention = "engine", counting: ChunkCounting = "whole"
    ) -> Demand:
        """Return the demand of one request prefilled in chunks of `chunk_tokens` tokens."""
        ...


class DemandByChunk:
    """Demand by chunk size, each computed once; only g and u depend on it."""

    def __init__(
        self, workload: HasDemand, most_tokens: int, convention: TokenConvention, counting: ChunkCounting
    ) -> None:
        self._setting: dict[str, Any] = {"convention": convention, "counting": counting}
        self._workload = workload
        self.largest = workload.demand(chunk_tokens=most_tokens, **self._setting)
        # memory-iterations need not fall with the chunk size (prompts of 249 tokens: 869 in chunks of 62, 829 in chunks
        # of 58), so a bound for all policies counts the least that chunks of up to n_max tokens can hold
        least: ChunkCounting = "least" if counting == "whole" else counting
        self.least = workload.demand(chunk_tokens=most_tokens, convention=convention, counting=least)
        self._by_chunk = getattr(workload, "demand_by_chunk", None)
        self._known: dict[int, Demand] = {most_tokens: self.largest}

    def __call__(self, chunk_tokens: int) -> Demand:
        """Return the demand of one request prefilled in chunks of `chunk_tokens` tokens."""
        self.prepare([chunk_tokens])
        return self._known[chunk_tokens]

    def prepare(self, chunks: Iterable[int]) -> None:
        """Compute the demand of every chunk size in `chunks`, together where the workload can."""
        new = sorted(set(chunks) - self._known.keys())
        if not new:
            return
        if self._by_chunk is None:
            self._known.update({s: self._workload.demand(chunk_tokens=s, **self._setting) for s in new})
            return
        moments = self._by_chunk(np.array(new, dtype=np.int64), **self._setting)
        for s, g, u in zip(new, moments.memory_iterations, moments.slot_iterations, strict=True):
            self._known[s] = replace(self.largest, memory_iterations=float(g), slot_iterations=float(u))


class BudgetCurve:
    """lambda(n) of a single token budget, with the chunk that it leaves beside the decodes."""

    def __init__(self, time: IterationTime, demands: DemandByChunk, limits: Limits) -> None:
        self.time, self.demands, self.limits = time, demands, limits

    def chunk(self, budget: int) -> int:
        """Return the chunk size s = n - decodes per iteration (one correction from s = n)."""
        whole = self.demands(budget)
        iterations = float(single_level_iterations(self.time, whole, self.limits, budget)[0])
        if not math.isfinite(iterations) or iterations <= 0:
            return budget
        return max(1, min(budget, round(budget - whole.decode_tokens / iterations)))

    def demand(self, budget: int) -> Demand:
        """Return the demand at the chunk size that `budget` leaves."""
        return self.demands(self.chunk(budget))

    def rate(self, budget: int) -> float:
        """Return lambda(n), requests per second over all nodes."""
        return float(single_level_rate(self.time, self.demand(budget), self.limits, budget)[0])

    def rates(self, budgets: Int[np.ndarray, "budget"]) -> Float[np.ndarray, "budget"]:
        """Return lambda(n) of many budgets."""
        sizes = [int(n) for n in budgets]
        self.demands.prepare(sizes)
        self.demands.prepare([self.chunk(n) for n in sizes])
        return np.array([self.rate(n) for n in sizes])


def budgets_to_compare(time: IterationTime, limits: Limits) -> np.ndarray:
    """Return the budgets to compare: the special corners, and multiples of the tile (of 1) on a geometric grid.

    The grid is not that of the corners, which is even and misses every small budget when the largest is huge.
    """
    corners, most = corner_levels(time, limits), limits.max_batch_tokens
    step = _step(time)
    special = corners if step == 1 else corners[(corners % step != 0) | (corners == corners[-1])]
    grid = np.geomspace(1, max(most // step, 1), _CURVE_POINTS).round().astype(np.int64) * step
    if most // step <= _CURVE_POINTS:
        grid = np.arange(1, most // step + 1, dtype=np.int64) * step
    return np.unique(np.concatenate([special, grid[grid <= most]]))


def _step(time: IterationTime) -> int:
    """Return the distance of budgets worth telling apart: the tile, or one token where linear time is smooth."""
    return time.tile_tokens if time.tile_s > 0 else 1


def unloaded_ttft_s(time: IterationTime, prompt_tokens: float, budget: float, cached_tokens: float = 0.0) -> float:
    """Return the time to prefill one prompt in an empty system with chunks of `budget` tokens, seconds.

    `prompt_tokens` are to be computed, behind `cached_tokens` that are there.
    """
    chunks = math.ceil(prompt_tokens / budget)
    last = prompt_tokens - (chunks - 1) * budget
    pairs = prompt_tokens * (cached_tokens + (prompt_tokens + 1) / 2)
    linear = (chunks - 1) * float(time.tau_s(budget)) + float(time.tau_s(last))
    return linear + time.pair_s * pairs + chunks * time.sequence_s


def within_ttft(time: IterationTime, demand: Demand, sizes: np.ndarray, ttft_s: float | None) -> np.ndarray:
    """Return which budgets prefill a mean prompt within `ttft_s` in an empty system (all of them without a limit)."""
    if ttft_s is None:
        return np.ones(len(sizes), dtype=bool)
    limit = positive("ttft_s", ttft_s)
    floors = np.array([unloaded_ttft_s(time, demand.prefill_tokens, float(n), demand.cached_tokens) for n in sizes])
    if floors.min() > limit:
        raise InputError(
            f"the TTFT limit is {limit:g} s, but a mean prompt of {demand.prefill_tokens:.0f} tokens takes at least "
            f"{floors.min():g} s in an empty system; raise the limit or use a faster device"
        )
    return np.asarray(floors <= limit)


def smallest_budget(
    curve: BudgetCurve, sizes: np.ndarray, rates: np.ndarray, allowed: np.ndarray, tolerance: float
) -> int:
    """Return the smallest budget within `tolerance` of the best allowed one, to the tile (to the token without)."""
    if not np.any(allowed & (rates > 0)):
        raise InputError("no token budget meets both the TBT and the TTFT limit; relax one of them")
    target = rates[allowed].max() * (1 - tolerance)
    first = int(np.flatnonzero(allowed & (rates >= target))[0])
    high = int(sizes[first])
    if first == 0 or not allowed[first - 1]:
        return high
    # the rate rises between neighbours of the grid: bisect the multiples of the step between them
    step = _step(curve.time)
    low, above = int(sizes[first - 1]) // step, (high - 1) // step + 1
    while above - low > 1:
        middle = (low + above) // 2
        if curve.rate(middle * step) >= target:
            high, above = middle * step, middle
        else:
            low = middle
    return high
