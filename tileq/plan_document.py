"""A plan as plain data: the document of `tileq plan --json`, and the curve of its figure."""

from __future__ import annotations

__all__ = ["SCHEMA_VERSION", "budget_curve", "plan_document"]

from typing import TYPE_CHECKING, Any

import numpy as np

from tileq.plain import plain
from tileq.words import binding_sentence
from tileq_theory.capacity.single import binding_of_single
from tileq_theory.demand import Demand

if TYPE_CHECKING:
    from tileq.planning import Plan
    from tileq.plots.budget import BudgetCurve
    from tileq_theory.iteration_time import IterationTime

SCHEMA_VERSION = 1
_CURVE_POINTS = 240


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the document: the keys of the command's contract first, what they rest on after."""
    tile, bound = plan.tile, plan.tile.capacity
    theory = tile.to_dict()
    document = {
        "schema_version": SCHEMA_VERSION,
        "question": _question(plan),
        # the contract
        "rate_per_s": bound.rate_per_s,
        "binding": bound.binding,
        "binding_reason": binding_sentence(bound.binding, bound.time_shares, bound.limits),
        "prices": bound.prices.to_dict(),
        "token_budget": tile.token_budget,
        "max_num_seqs": tile.max_num_seqs,
        "max_num_seqs_reason": tile.max_num_seqs_reason,
        "tile": theory["tile"],
        "tile_ratio": theory["tile_ratio"],
        "utilisation": tile.utilisation,
        "error_band": error_band(bound.time, bound.rate_per_s),
        "provenance": _provenance(plan),
        "warnings": list(plan.warnings),
        "engine_flags": plan.flags.flags,
        "prefix_cache": None if plan.cache is None else plan.cache.to_dict(tile),
        "disaggregation": None if plan.split is None else plan.split.to_dict(),
        # the rest of the answer
        "engine": plan.flags.engine,
        "engine_command": plan.flags.command(),
        "engine_flag_reasons": plan.flags.reasons,
        "budget": theory["budget"],
        "tile_ratio_exact": theory["tile_ratio_exact"],
        "tile_ratio_loss": theory["tile_ratio_loss"],
        "residents": tile.residents,
        "ttft_floor_s": tile.ttft_floor_s,
        "offered_rate_per_s": tile.rate_per_s,
        "headroom_per_s": tile.headroom_per_s,
        "replicas": tile.replicas,
        "usage": bound.usage,
        "elasticities": bound.elasticities,
        "time_shares": bound.time_shares,
        "levels": [
            {**level.to_dict(), "time_share": level.iterations_per_s * level.iteration_s} for level in bound.levels
        ],
        "levels_proof": bound.levels_proof,
        "kkt": bound.kkt().to_dict(),
        "curve": theory["curve"],
        # what it rests on
        "workload": _workload(plan, bound.demand),
        "limits": bound.limits.to_dict(),
        **plan.setting.to_dict(),
        "iteration_time": bound.time.to_dict(),
    }
    cleaned: dict[str, Any] = plain(document)
    return cleaned


def error_band(time: IterationTime, rate_per_s: float) -> dict[str, Any]:
    """Return the interval of a rate, requests/s, with the band of the times that it comes from."""
    low, high = time.error_band.of_rate(rate_per_s)
    band = time.error_band
    return {
        "low": low,
        "high": high,
        "time_ratio": [band.low, band.high],
        "coverage": band.coverage,
        "basis": band.basis,
    }


def _question(plan: Plan) -> dict[str, Any]:
    s, limits = plan.setting, plan.tile.capacity.limits
    return {
        "gpu": s.gpu.name,
        "model": s.model.name,
        "tp": s.tp,
        "nodes": limits.nodes,
        "dtype": s.dtype,
        "kv_dtype": s.kv_dtype,
        "memory_utilisation": s.memory_utilisation,
        "workload": plan.traffic.label,
        "rate": plan.tile.rate_per_s,
        "convention": plan.convention,
        "tbt": limits.tbt_s,
        "ttft": plan.ttft_s,
        "max_num_seqs": limits.max_num_seqs,
        "max_tokens": limits.max_batch_tokens,
        "engine": plan.flags.engine,
        "prefix_cache": None if plan.cache is None else plan.cache.cache.label,
    }


def _provenance(plan: Plan) -> dict[str, Any]:
    from tileq import __version__

    return {
        "iteration_time": plan.setting.time.provenance,
        "gpu": plan.setting.gpu.provenance,
        "model": plan.setting.model.provenance,
        "workload": plan.traffic.source,
        "tileq": __version__,
    }


def _workload(plan: Plan, demand: Demand) -> dict[str, Any]:
    return {
        "name": plan.traffic.label,
        "description": plan.traffic.workload.describe(),
        "source": plan.traffic.source,
        "recorded_rate_per_s": plan.traffic.rate_per_s,
        "demand": demand,
    }


def budget_curve(plan: Plan) -> BudgetCurve:
    """Return capacity against the token budget, ready to draw: finer than the budgets that the plan compared."""
    from tileq.plots.budget import BudgetCurve
    from tileq_theory.capacity.levels import longest_within

    tile, bound = plan.tile, plan.tile.capacity
    limits = bound.limits
    most = limits.max_batch_tokens
    first = min(16, max(1, tile.token_budget // 8))
    steps = np.round(np.geomspace(first, most, _CURVE_POINTS)).astype(int)
    inside = tile.curve_tokens[tile.curve_tokens >= first]
    tokens = [int(n) for n in np.unique(np.concatenate([steps, inside, inside[:-1] + 1, [tile.token_budget]]))]
    points = [point for point in _single_budgets(plan, [n for n in tokens if n <= most]) if point[1] > 0]
    longest = None if limits.tbt_s is None else longest_within(bound.time, limits.tbt_s, most)
    where = f"{plan.setting.tp} x {plan.setting.gpu.name}" if plan.setting.tp > 1 else plan.setting.gpu.name
    return BudgetCurve(
        tokens=[float(n) for n, _, _ in points],
        rate_per_s=[rate for _, rate, _ in points],
        binding=[cause for _, _, cause in points],
        chosen_tokens=tile.token_budget,
        chosen_per_s=tile.budget_rate_per_s,
        optimum_per_s=bound.rate_per_s,
        longest_tokens=None if longest == most else longest,
        title=f"{plan.setting.model.name} on {where}, {plan.traffic.label}",
    )


def _single_budgets(plan: Plan, tokens: list[int]) -> list[tuple[int, float, str]]:
    """Return (budget, its rate, what binds it), as the plan itself judged its budgets."""
    from tileq_theory.capacity.budget import BudgetCurve, DemandByChunk

    time, limits = plan.tile.capacity.time, plan.tile.capacity.limits
    demands = DemandByChunk(plan.traffic.workload, limits.max_batch_tokens, plan.convention, "whole")
    curve = BudgetCurve(time, demands, limits)
    rates = curve.rates(np.array(tokens, dtype=np.int64))
    return [
        (n, float(rate), binding_of_single(time, curve.demand(n), limits, n))
        for n, rate in zip(tokens, rates, strict=True)
    ]
