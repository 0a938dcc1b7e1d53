r"""From the capacity program to what an engine is told: the tile plan.

The outer bound lambda* takes the least demand of any way of cutting prompts into chunks. An engine has
one token budget n; its rate lambda(n) is the single-level closed form with the chunk that a budget leaves beside the
decodes, s = n - (decodes per iteration). Among budgets within `tolerance` of the best, the smallest is chosen, since
a shorter iteration costs every resident less latency.
"""

from __future__ import annotations

__all__ = ["HasDemand", "TilePlan", "tile_plan"]

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.capacity.answer import Capacity
from tileq_theory.capacity.levels import corner_levels
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.population import attainable_rate, max_sequences
from tileq_theory.capacity.ratio import TileRatio, tile_ratio
from tileq_theory.capacity.single import binding_of_single, single_level_iterations, single_level_rate
from tileq_theory.capacity.solve import capacity
from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, nonnegative, positive
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


@dataclass(frozen=True, slots=True)
class TilePlan:
    """What to run, and what it costs against the optimum.

    Parameters
    ----------
    capacity
        The outer bound with its levels, prices and binding limit.
    token_budget
        Tokens of an iteration, prefill and decode together (`--max-num-batched-tokens`).
    budget_rate_per_s, budget_loss, budget_binding
        Rate of that one budget, its loss 1 - rate/lambda*, and what binds it.
    attainable_rate_per_s
        What mixing with that budget is expected to sustain with as few residents as fit (`population`): an estimate.
    prefill_tokens, decode_tokens
        Mean prefill and decode tokens of an iteration at capacity.
    iteration_s
        Mean time of an iteration at capacity, seconds.
    longest_iteration_s
        Time of a full iteration whose chunk ends the longest prompt, with the mean residents; inf if unbounded.
    ratio
        Prefill to decode iterations as whole numbers, with its loss.
    residents
        Mean sequences in an iteration at capacity.
    max_num_seqs, max_num_seqs_reason
        Largest number of sequences worth admitting, and which limit says so.
    ttft_floor_s
        Time to first token of a mean prompt in an empty system, seconds.
    rate_per_s
        The offered rate, if given; `utilisation`, `headroom_per_s` and `replicas` refer to it.
    curve_tokens, curve_rate_per_s
        lambda(n) over budgets n.
    """

    capacity: Capacity
    token_budget: int
    budget_rate_per_s: float
    budget_loss: float
    budget_binding: str
    attainable_rate_per_s: float
    prefill_tokens: float
    decode_tokens: float
    iteration_s: float
    longest_iteration_s: float
    ratio: TileRatio
    residents: float
    max_num_seqs: int
    max_num_seqs_reason: str
    ttft_floor_s: float
    rate_per_s: float | None
    max_utilisation: float
    curve_tokens: Int[np.ndarray, "budget"]
    curve_rate_per_s: Float[np.ndarray, "budget"]
    warnings: tuple[str, ...] = ()

    @property
    def utilisation(self) -> float | None:
        """Offered rate over lambda*; at 1 and above no policy is stable."""
        return None if self.rate_per_s is None else self.rate_per_s / self.capacity.rate_per_s

    @property
    def headroom_per_s(self) -> float | None:
        """lambda* minus the offered rate, requests per second; negative in overload."""
        return None if self.rate_per_s is None else self.capacity.rate_per_s - self.rate_per_s

    @property
    def replicas(self) -> int | None:
        """Least number of such nodes that carries the offered rate at `max_utilisation` of their attainable rate."""
        if self.rate_per_s is None:
            return None
        one = self.attainable_rate_per_s / self.capacity.limits.nodes
        # a share of 1e-12 off: a rate that is exactly k nodes' worth needs k nodes, not k + 1
        return max(1, math.ceil(self.rate_per_s / (one * self.max_utilisation) * (1 - 1e-12)))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data, with the keys that other programs rely on."""
        return {
            **self.capacity.to_dict(),
            "token_budget": self.token_budget,
            "budget": {
                "rate_per_s": self.budget_rate_per_s,
                "loss": self.budget_loss,
                "attainable_rate_per_s": self.attainable_rate_per_s,
                "binding": self.budget_binding,
                "iteration_s": self.iteration_s,
                "longest_iteration_s": self.longest_iteration_s if math.isfinite(self.longest_iteration_s) else None,
            },
            "tile": {"prefill_tokens": round(self.prefill_tokens), "decode_tokens": round(self.decode_tokens)},
            "tile_ratio": list(self.ratio.pair),
            "tile_ratio_exact": self.ratio.exact if math.isfinite(self.ratio.exact) else None,
            "tile_ratio_loss": self.ratio.loss,
            "residents": self.residents,
            "max_num_seqs": self.max_num_seqs,
            "max_num_seqs_reason": self.max_num_seqs_reason,
            "ttft_floor_s": self.ttft_floor_s,
            "offered_rate_per_s": self.rate_per_s,
            "utilisation": self.utilisation,
            "headroom_per_s": self.headroom_per_s,
            "replicas": self.replicas,
            "curve": {"token_budget": self.curve_tokens.tolist(), "rate_per_s": self.curve_rate_per_s.tolist()},
            "warnings": list(self.warnings),
        }


def tile_plan(
    time: IterationTime,
    workload: HasDemand,
    limits: Limits,
    *,
    rate_per_s: float | None = None,
    ttft_s: float | None = None,
    convention: TokenConvention = "engine",
    counting: ChunkCounting = "whole",
    tolerance: float = 0.01,
    max_utilisation: float = 0.9,
) -> TilePlan:
    """Return the throughput-optimal tile plan of a workload on a node (see the module's text).

    Parameters
    ----------
    time, workload, limits
        Iteration time, request lengths and limits of a node.
    rate_per_s
        Offered rate, requests per second over all nodes; None: capacity only.
    ttft_s
        Limit on time to first token, seconds. Only budgets whose *unloaded* TTFT of a mean prompt meets it are kept;
        queueing is not part of it.
    convention, counting
        Token convention and chunk counting (`tileq_theory.conventions`).
    tolerance
        Share of the best single-budget rate given away for a smaller budget.
    max_utilisation
        Load up to which `replicas` fills a node, in (0, 1].

    Raises
    ------
    InputError
        When requests can never be served under the limits, or no budget meets `ttft_s`.
    """
    offered = None if rate_per_s is None else nonnegative("rate_per_s", rate_per_s)
    if not 0 < positive("max_utilisation", max_utilisation) <= 1:
        raise InputError(f"max_utilisation is {max_utilisation}; expected a share above 0 and at most 1")
    if not 0 <= nonnegative("tolerance", tolerance) < 1:
        raise InputError(f"tolerance is {tolerance}; expected a share of at least 0 and below 1")
    demands = _Demands(workload, limits.max_batch_tokens, convention, counting)
    curve = _Curve(time, demands, limits)
    sizes = _budgets(time, limits)
    rates = curve.rates(sizes)
    bound = capacity(time, demands.least, limits)
    allowed = _within_ttft(time, bound.demand, sizes, ttft_s)
    budget = _smallest_budget(curve, sizes, rates, allowed, tolerance)
    return _assemble(time, limits, bound, curve, budget, sizes, rates, offered, max_utilisation)


class _Demands:
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


class _Curve:
    """lambda(n) of a single token budget, with the chunk that it leaves beside the decodes."""

    def __init__(self, time: IterationTime, demands: _Demands, limits: Limits) -> None:
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


def _budgets(time: IterationTime, limits: Limits) -> np.ndarray:
    """Return the budgets to compare: corners thinned to the curve's resolution, or a fine grid without tiles."""
    corners = corner_levels(time, limits)
    if time.tile_s == 0:
        grid = np.unique(np.geomspace(1, limits.max_batch_tokens, _CURVE_POINTS).round().astype(np.int64))
        return np.unique(np.concatenate([corners, grid]))
    special = corners[(corners % time.tile_tokens != 0) | (corners == corners[-1])]
    tiles = corners[corners % time.tile_tokens == 0]
    keep = np.unique(np.geomspace(1, max(len(tiles), 1), _CURVE_POINTS).round().astype(np.int64)) - 1
    tiles = tiles[keep[keep < len(tiles)]] if len(tiles) > _CURVE_POINTS else tiles
    return np.unique(np.concatenate([special, tiles]))


def unloaded_ttft_s(time: IterationTime, prompt_tokens: float, budget: float) -> float:
    """Return the time to prefill one prompt in an empty system with chunks of `budget` tokens, seconds."""
    chunks = math.ceil(prompt_tokens / budget)
    last = prompt_tokens - (chunks - 1) * budget
    pairs = prompt_tokens * (prompt_tokens + 1) / 2
    linear = (chunks - 1) * float(time.tau_s(budget)) + float(time.tau_s(last))
    return linear + time.pair_s * pairs + chunks * time.sequence_s


def _within_ttft(time: IterationTime, demand: Demand, sizes: np.ndarray, ttft_s: float | None) -> np.ndarray:
    if ttft_s is None:
        return np.ones(len(sizes), dtype=bool)
    limit = positive("ttft_s", ttft_s)
    floors = np.array([unloaded_ttft_s(time, demand.prefill_tokens, float(n)) for n in sizes])
    if floors.min() > limit:
        raise InputError(
            f"the TTFT limit is {limit:g} s, but a mean prompt of {demand.prefill_tokens:.0f} tokens takes at least "
            f"{floors.min():g} s in an empty system; raise the limit or use a faster device"
        )
    return np.asarray(floors <= limit)


def _smallest_budget(curve: _Curve, sizes: np.ndarray, rates: np.ndarray, allowed: np.ndarray, tolerance: float) -> int:
    """Return the smallest budget within `tolerance` of the best allowed one, to the token."""
    if not np.any(allowed & (rates > 0)):
        raise InputError("no token budget meets both the TBT and the TTFT limit; relax one of them")
    target = rates[allowed].max() * (1 - tolerance)
    first = int(np.flatnonzero(allowed & (rates >= target))[0])
    high = int(sizes[first])
    if curve.time.tile_s > 0 or first == 0 or not allowed[first - 1]:
        return high
    low = int(sizes[first - 1])  # without tiles the curve is smooth: bisect between neighbours of the grid
    while high - low > 1:
        middle = (low + high) // 2
        if curve.rate(middle) >= target:
            high = middle
        else:
            low = middle
    return high


def _assemble(
    time: IterationTime,
    limits: Limits,
    bound: Capacity,
    curve: _Curve,
    budget: int,
    sizes: np.ndarray,
    rates: np.ndarray,
    offered: float | None,
    max_utilisation: float,
) -> TilePlan:
    demand = curve.demand(budget)
    rate = curve.rate(budget)
    x = float(single_level_iterations(time, demand, limits, budget)[0])
    prefill, decode = demand.prefill_tokens / x, demand.decode_tokens / x
    per_iteration = time.pair_s * demand.attention_pairs / x + time.kv_token_s * demand.kv_read_tokens / x
    residents = demand.slot_iterations / x
    sequences, reason = max_sequences(time, demand, limits, budget, residents)
    longest = _longest_iteration_s(time, demand, budget, prefill, decode)
    warnings = []
    if limits.tbt_s is not None and longest > limits.tbt_s:
        warnings.append(
            f"iterations meet the TBT limit of {limits.tbt_s:g} s on average; the chunk that ends the longest prompt "
            f"takes {longest:.3g} s"
        )
    if offered is not None and offered >= bound.rate_per_s:
        warnings.append(
            f"the offered rate {offered:g}/s is at or above the capacity {bound.rate_per_s:g}/s: no policy is stable"
        )
    return TilePlan(
        capacity=bound,
        token_budget=budget,
        budget_rate_per_s=rate,
        budget_loss=max(0.0, 1 - rate / bound.rate_per_s),
        budget_binding=binding_of_single(time, demand, limits, budget),
        attainable_rate_per_s=attainable_rate(time, demand, limits, budget),
        prefill_tokens=prefill,
        decode_tokens=decode,
        iteration_s=float(time.tau_s(budget)) + per_iteration + time.sequence_s * residents,
        longest_iteration_s=longest,
        ratio=tile_ratio(bound.levels),
        residents=residents,
        max_num_seqs=sequences,
        max_num_seqs_reason=reason,
        ttft_floor_s=unloaded_ttft_s(time, demand.prefill_tokens, budget),
        rate_per_s=offered,
        max_utilisation=max_utilisation,
        curve_tokens=sizes,
        curve_rate_per_s=rates,
        warnings=tuple(warnings),
    )


def _longest_iteration_s(time: IterationTime, demand: Demand, budget: int, prefill: float, decode: float) -> float:
    """Return the time of a full batch whose chunk is the last of the longest prompt, mean residents beside it."""
    if time.pair_s == 0:
        pairs = 0.0
    elif math.isinf(demand.longest_prompt_tokens):
        return math.inf
    else:
        chunk = min(max(budget - decode, prefill, 1.0), demand.longest_prompt_tokens)
        pairs = chunk * (demand.longest_prompt_tokens - chunk + (chunk + 1) / 2)
    reads = decode * demand.kv_read_tokens / demand.decode_tokens if demand.decode_tokens > 0 else 0.0
    return float(time(budget, pairs, reads, decode + 1))
