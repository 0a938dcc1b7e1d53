"""Mixing, taking turns and nodes apart under one objective, by simulation: settings to try, and the largest rate."""

from __future__ import annotations

__all__ = ["ModeRate", "Objective", "mode_rates", "settings_of_modes"]

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileq.clusters import ClusterSetting, make_cluster
from tileq.simulating_cluster import run_once
from tileq.traffic import Traffic
from tileq_theory.errors import positive

if TYPE_CHECKING:
    from tileq.planning import Plan
    from tileq_engine.capacity_search import CapacityResult
    from tileq_engine.capacity_search_criteria import Criterion
    from tileq_engine.cluster import Cluster
    from tileq_engine.experiment_streams import Streams
    from tileq_engine.run import Run

_BUDGETS = (512, 1024, 2048)  # tried beside the plan's: larger ones shorten TTFT, smaller ones TBT
_WHOLE_PROMPTS = 8192
_LONGEST = 131_072  # taken for a law of prompts without an end
_COARSE, _RUNS = 0.08, 12  # a first look at every setting: relative width of its bracket, most simulations


@dataclass(frozen=True, slots=True)
class Objective:
    """Quantiles that must hold, seconds: the 90 % quantile of TTFT and the 99 % quantile of TBT over all gaps."""

    ttft_p90_s: float
    tbt_p99_s: float

    def __post_init__(self) -> None:
        positive("slo_ttft", self.ttft_p90_s)
        positive("slo_tbt", self.tbt_p99_s)

    def criterion(self, bound_per_s: float) -> Criterion:
        """Return it as the search's criterion, for rates at which a run is not found unstable, up to a bound."""
        from tileq.sustainable import NotUnstable, UpTo
        from tileq_engine.capacity_search_criteria import Within, all_of

        quantiles = Within("ttft_s.p90", self.ttft_p90_s), Within("tbt_s.p99", self.tbt_p99_s)
        return all_of(*quantiles, NotUnstable(), UpTo(bound_per_s))


@dataclass(frozen=True, slots=True, eq=False)
class ModeRate:
    """What one mode carries within the objective.

    Parameters
    ----------
    mode
        "mixed", "aggregated" or "disaggregated".
    program_per_s
        Its capacity program: no quantiles, iterations within the TBT limit on average.
    found
        The largest rate within the objective by simulation.
    setting
        What was run, in words: the best of those tried.
    tried
        Every setting with the rate of its first look; where there is one setting, the rate that the search began at.
    """

    mode: str
    program_per_s: float
    found: CapacityResult
    setting: str
    tried: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "program_per_s": self.program_per_s,
            **self.found.to_dict(),
            "setting": self.setting,
            "tried_per_s": self.tried,
        }


def settings_of_modes(plan: Plan) -> Iterator[tuple[str, str, Cluster]]:
    """Yield (mode, setting in words, cluster) of everything to try, of a plan with `disaggregate`."""
    from tileq_engine.cluster import Cluster, Node
    from tileq_engine.config import EngineConfig

    split = plan.split
    assert split is not None
    time, memory, nodes = plan.setting.time, int(plan.setting.kv_tokens), split.nodes

    def config(budget: int, seats: int) -> EngineConfig:
        return EngineConfig(token_budget=budget, max_num_seqs=min(seats, budget), kv_tokens=memory)

    tile = plan.tile
    for budget in sorted({tile.token_budget, *_BUDGETS}):
        node = Node("gpu", time, "sarathi", config(budget, max(tile.max_num_seqs, 1)), count=nodes)
        yield "mixed", f"sarathi, budget {budget}", Cluster([node])
    longest = split.demand.longest_prompt_tokens
    whole = max(_WHOLE_PROMPTS, int(longest) if math.isfinite(longest) else _LONGEST)
    seats = 256 if tile.capacity.limits.max_num_seqs is None else tile.capacity.limits.max_num_seqs
    yield (
        "aggregated",
        f"vllm_v0, {seats} seats",
        Cluster([Node("gpu", time, "vllm_v0", config(whole, seats), count=nodes)]),
    )
    best = split.comparison.split.prefill_nodes
    decode = config(max(split.decode.token_budget, split.decode.max_num_seqs), split.decode.max_num_seqs)
    for first in range(max(1, best - 1), min(nodes - 1, best + 1) + 1):
        prompts = config(max(_BUDGETS[-1], split.prefill.token_budget), 256)
        pools = [
            Node("prefill", time, "sarathi", prompts, role="prefill", count=first),
            Node("decode", time, "sarathi", decode, role="decode", count=nodes - first),
        ]
        yield "disaggregated", f"{first} prefill and {nodes - first} decode nodes", Cluster(pools, link=split.link)


def _simulated(setting: ClusterSetting, requests: int, rate: float, streams: Streams) -> Run:
    run: Run = run_once(setting, rate, requests, streams).run(rate_per_s=rate)
    return run


def mode_rates(
    plan: Plan,
    traffic: Traffic,
    objective: Objective,
    *,
    requests: int,
    replications: int,
    seed: int,
    tolerance: float = 0.02,
    folder: Path | None = None,
    progress: bool | None = None,
) -> list[ModeRate]:
    """Return the largest rate of each mode within the objective: a first look at every setting, then the best one."""
    from tileq_engine.capacity_search import capacity_search

    assert plan.split is not None
    compared = plan.split.comparison
    programs = {"mixed": compared.mixed_per_s, "aggregated": compared.aggregated_per_s,
                "disaggregated": compared.disaggregated_per_s}  # fmt: skip

    def search(
        mode: str, words: str, setting: ClusterSetting, start: float, number: int, width: float
    ) -> CapacityResult:
        _tell(progress, f"{mode}: {words}")
        at = None if folder is None else folder / f"{mode} {words} {number}".replace(" ", "-").replace(",", "")
        return capacity_search(
            partial(_simulated, setting, requests),
            objective.criterion(setting.capacity.rate_per_s),
            start_per_s=start,
            tolerance=width,
            replications=number,
            seed=seed,
            most_runs=_RUNS,
            backend="serial",
            progress=False,
            folder=at,
            settings={"cluster": setting.cluster.to_dict(), "requests": requests,
                      "workload": traffic.workload.to_dict()},
        )  # fmt: skip

    looked: dict[str, dict[str, tuple[float, ClusterSetting]]] = {mode: {} for mode in programs}
    made = list(settings_of_modes(plan))
    for mode, words, cluster in made:
        setting = make_cluster(cluster, traffic, convention=plan.convention)
        rate = 0.5 * programs[mode]
        if sum(other == mode for other, *_ in made) > 1:  # with one setting there is nothing to choose
            rate = search(mode, words, setting, rate, 1, _COARSE).rate_per_s
        looked[mode][words] = (rate, setting)
    answers = []
    for mode, tried in looked.items():
        words = max(tried, key=lambda name: tried[name][0])
        rate, setting = tried[words]
        found = search(mode, words, setting, rate or 0.05 * programs[mode], replications, tolerance)
        answers.append(ModeRate(mode, programs[mode], found, words, {name: held[0] for name, held in tried.items()}))
    return answers


def _tell(progress: bool | None, line: str) -> None:
    if sys.stderr.isatty() if progress is None else progress:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
