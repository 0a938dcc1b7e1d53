r"""From the capacity program to what an engine is told: the tile plan.

The outer bound lambda* takes the least demand of any way of cutting prompts into chunks. An engine has
one token budget n; its rate lambda(n) is the single-level closed form with the chunk that a budget leaves beside the
decodes, s = n - (decodes per iteration). Among budgets within `tolerance` of the best, the smallest is chosen, since
a shorter iteration costs every resident less latency.
"""

from __future__ import annotations

__all__ = ["HasDemand", "TilePlan", "tile_plan"]

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.capacity.answer import Capacity
from tileq_theory.capacity.budget import (
    BudgetCurve,
    DemandByChunk,
    HasDemand,
    budgets_to_compare,
    smallest_budget,
    unloaded_ttft_s,
    within_ttft,
)
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.population import attainable_rate, max_sequences
from tileq_theory.capacity.ratio import TileRatio, tile_ratio
from tileq_theory.capacity.single import binding_of_single, single_level_iterations
from tileq_theory.capacity.solve import capacity
from tileq_theory.conventions import ChunkCounting, TokenConvention
from tileq_theory.demand import Demand
from tileq_theory.errors import InputError, nonnegative, positive
from tileq_theory.iteration_time import IterationTime


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
    limits.check_classes(time, _demand_of_classes(workload, limits.max_batch_tokens, convention))
    demands = DemandByChunk(workload, limits.max_batch_tokens, convention, counting)
    curve = BudgetCurve(time, demands, limits)
    sizes = budgets_to_compare(time, limits)
    rates = curve.rates(sizes)
    bound = capacity(time, demands.least, limits)
    allowed = within_ttft(time, bound.demand, sizes, ttft_s)
    budget = smallest_budget(curve, sizes, rates, allowed, tolerance)
    return _assemble(time, limits, bound, curve, budget, sizes, rates, offered, max_utilisation)


def _demand_of_classes(workload: HasDemand, chunk_tokens: int, convention: TokenConvention) -> dict[str, Demand]:
    """Return the demand of each class that occurs, by name; of the whole where the workload has no classes."""
    classes = [c for c in getattr(workload, "classes", ()) if c.share > 0]
    if not classes:
        return {"all": workload.demand(chunk_tokens=chunk_tokens, convention=convention)}
    return {c.name: c.lengths.demand(chunk_tokens=chunk_tokens, convention=convention) for c in classes}


def _assemble(
    time: IterationTime,
    limits: Limits,
    bound: Capacity,
    curve: BudgetCurve,
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
    warnings = _cannot_decode(time, limits, bound.demand)
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
        ttft_floor_s=unloaded_ttft_s(time, demand.prefill_tokens, budget, demand.cached_tokens),
        rate_per_s=offered,
        max_utilisation=max_utilisation,
        curve_tokens=sizes,
        curve_rate_per_s=rates,
        warnings=tuple(warnings),
    )


def _cannot_decode(time: IterationTime, limits: Limits, demand: Demand) -> list[str]:
    """Return a warning when decodes of the longest contexts outlast the TBT limit even alone in their batch."""
    longest = demand.longest_context_tokens
    if limits.tbt_s is None or time.kv_token_s == 0 or demand.decode_tokens <= 0 or math.isinf(longest):
        return []
    reach = (limits.tbt_s - float(time.tau_s(1)) - time.sequence_s) / time.kv_token_s
    if longest - 1 <= reach:
        return []
    return [
        f"a decode with more than {reach:,.0f} tokens of context cannot meet the TBT limit of {limits.tbt_s:g} s even "
        f"alone in its batch; the longest request has {longest:,.0f}"
    ]


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
