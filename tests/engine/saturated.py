"""Saturated runs held against the capacity program of the very requests that were served.

`saturate` offers everything at once and waits until all is done. Two rates are read off a run:

* `whole`, requests over makespan. Up to the end every request's demand has been served by iterations that keep the
  program's rows, so whole <= lambda* of these requests on every path (weak duality); no statistics in it.
* `window`, finishes from the first tenth of finishes to the last admission, against lambda* of the requests that
  finished there. It leaves out filling and draining; work half done at both ends makes it err by about
  residents/requests either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tileq
from tileq.planning import Plan
from tileq_engine.config import EngineConfig
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import RawRun, simulate
from tileq_theory.capacity import capacity
from tileq_theory.lengths import Pairs

PROGRAM = 1e-7  # relative error that the program's answer may have; the clock's rounding is below 1e-9


@dataclass(frozen=True)
class Instance:
    """A question of `tileq.plan`, named by what limits it."""

    name: str
    question: dict[str, Any]

    @property
    def plan(self) -> Plan:
        return _planned(self.name)


def _all(**questions: dict[str, Any]) -> dict[str, Instance]:
    return {name: Instance(name, question) for name, question in questions.items()}


# capacity reached within 2 %: time, floor, slots, TBT and memory bind; dense and mixture of experts; 1 to 4 GPUs
REACHED = _all(
    time_chat={"gpu": "h100-sxm", "model": "llama-3.1-8b", "workload": "chat"},
    time_code={"gpu": "a100-sxm-80gb", "model": "llama-3.1-8b", "workload": "code"},
    time_experts={"gpu": "b200-sxm", "model": "qwen3-30b-a3b", "workload": "chat"},
    time_fixed={"gpu": "l40s", "model": "qwen2.5-7b", "classes": ["512:128"]},
    time_uniform={"gpu": "rtx-4090", "model": "llama-3.1-8b", "classes": ["uniform(10,200):uniform(10,200)"]},
    time_long_answers={"gpu": "a40", "model": "llama-2-7b", "classes": ["64:256"]},
    time_geometric={"gpu": "a10g", "model": "llama-2-7b", "classes": ["20:geometric(60,400)"]},
    time_short={"gpu": "rtx-3090", "model": "llama-2-7b", "classes": ["uniform(8,40):uniform(20,100)"]},
    time_both_geometric={"gpu": "l4", "model": "gemma-2-2b", "classes": ["geometric(200,1000):geometric(200,1000)"]},
    time_two_classes={"gpu": "h100-sxm", "model": "qwen3-14b", "classes": ["a=1024:64@3", "b=200:400@1"]},
    floor={"gpu": "h100-sxm", "model": "llama-3.1-8b", "workload": "chat", "max_tokens": 64},
    tbt={"gpu": "h100-sxm", "model": "qwen3-32b", "tp": 2, "classes": ["1024:256"], "tbt": 0.03},
    tbt_slack={"gpu": "mi300x", "model": "llama-3.1-70b", "classes": ["2048:64"], "tbt": 0.08},
    slots={"gpu": "h100-pcie", "model": "phi-4", "classes": ["100:400"], "max_num_seqs": 64},
    memory_chat={"gpu": "a100-sxm-80gb", "model": "llama-3.1-70b", "tp": 4, "workload": "chat"},
    memory_experts={"gpu": "h200-sxm", "model": "mixtral-8x7b-v0.1", "tp": 2, "workload": "sharegpt"},
    memory_prompts={"gpu": "h100-sxm", "model": "llama-3.1-70b", "tp": 2, "classes": ["400:uniform(10,60)"]},
    memory_answers={"gpu": "h100-sxm", "model": "llama-3.1-70b", "tp": 2, "classes": ["30:60"]},
    memory_even={"gpu": "h100-sxm", "model": "llama-3.1-70b", "tp": 2, "classes": ["100:100"]},
)
# few residents, memory or slots full: what the theory's docstring says of `attainable_rate`, with the share of lambda*
# that it forecasts
FEW = _all(
    few_chat={"gpu": "rtx-4090", "model": "llama-3.1-8b", "workload": "chat", "tbt": 0.05},
    few_sharegpt={"gpu": "a40", "model": "llama-2-7b", "workload": "sharegpt"},
    few_slots={
        "gpu": "a100-pcie-80gb",
        "model": "qwen2.5-32b",
        "classes": ["geometric(300,2000):geometric(100,800)"],
        "max_num_seqs": 32,
    },
    few_slots_long={
        "gpu": "l40",
        "model": "phi-4",
        "classes": ["uniform(100,900):geometric(300,2000)"],
        "max_num_seqs": 24,
    },
    few_short={"gpu": "a100-sxm-40gb", "model": "llama-2-13b", "classes": ["uniform(20,100):uniform(50,200)"]},
    few_geometric={"gpu": "a10g", "model": "llama-2-7b", "classes": ["geometric(200,1000):geometric(200,1000)"]},
    few_of_13b={"gpu": "l40s", "model": "llama-2-13b", "workload": "chat"},
    few_of_32b={"gpu": "a100-sxm-80gb", "model": "qwen2.5-32b", "workload": "sharegpt"},
)


@cache
def _planned(name: str) -> Plan:
    return tileq.plan(**(REACHED | FEW)[name].question)


def draw(plan: Plan, count: int, seed: int) -> Requests:
    """Requests of the plan's traffic, all there at once."""
    drawn = Requests.from_workload(plan.traffic.workload, count, seed, rate=1.0)
    return drawn.with_(arrival_ps=np.zeros(len(drawn), dtype=np.int64))


def settings(plan: Plan, **changes: Any) -> EngineConfig:
    """The engine as the plan sets it."""
    config = EngineConfig(
        token_budget=plan.token_budget,
        max_num_seqs=plan.tile.max_num_seqs,
        kv_tokens=plan.setting.kv_tokens,
        convention=plan.convention,
        sample_limit=1_000_000,  # every iteration: the largest batch is looked up
    )
    return config.with_(**changes)


def named_policy(name: str, plan: Plan) -> Any:
    return policy(name, plan=plan.tile) if name == "rad_general" else policy(name)


def saturate(plan: Plan, name: str, count: int, seed: int, **changes: Any) -> RawRun:
    """Everything at once, until all is done."""
    return simulate(draw(plan, count, seed), named_policy(name, plan), plan.setting.time, settings(plan, **changes))


def lambda_star(plan: Plan, run: RawRun, chosen: Any, *, budget: bool = False) -> float:
    """lambda* of the chosen requests under the limits that the engine kept to (its own budget and slots with `budget`).

    The TBT limit is left out: it is kept on average, not by every batch. A policy with tiles of its own (RAD, WAIT)
    may form batches beyond the plan's largest; what it formed counts.
    """
    limits = plan.tile.capacity.limits.with_(nodes=1, tbt_s=None)
    largest = int((run.samples.prefill_tokens + run.samples.decode_tokens).max())
    limits = limits.with_(max_batch_tokens=max(limits.max_batch_tokens, largest))
    if budget:
        limits = limits.with_(max_batch_tokens=run.config.token_budget, max_num_seqs=run.config.max_num_seqs)
    pairs = Pairs(run.requests.prompt_tokens[chosen], run.requests.output_tokens[chosen])
    demand = pairs.demand(chunk_tokens=limits.max_batch_tokens, convention=run.config.convention, counting="least")
    return capacity(plan.setting.time, demand, limits).rate_per_s


def whole_share(plan: Plan, run: RawRun, *, budget: bool = False) -> float:
    """Finished requests over the time to the last of them, as a share of their lambda*; never above 1."""
    done = run.finish_ps >= 0
    rate = done.sum() / (int(run.finish_ps.max()) * 1e-12)
    return float(rate / lambda_star(plan, run, done, budget=budget))


def window_share(plan: Plan, run: RawRun) -> float:
    """Finishes while work was waiting, as a share of lambda* (with the TBT limit) of the requests that finished."""
    ends = np.sort(run.finish_ps[run.finish_ps >= 0])
    begin, end = int(ends[len(ends) // 10]), int(run.admit_ps.max())
    inside = (run.finish_ps > begin) & (run.finish_ps <= end)
    limits = plan.tile.capacity.limits.with_(nodes=1)
    pairs = Pairs(run.requests.prompt_tokens[inside], run.requests.output_tokens[inside])
    demand = pairs.demand(chunk_tokens=limits.max_batch_tokens, convention=run.config.convention, counting="least")
    bound = capacity(plan.setting.time, demand, limits).rate_per_s
    return float(inside.sum() / ((end - begin) * 1e-12) / bound)


def enough(plan: Plan) -> int:
    """Requests enough for a window whose ends do not matter."""
    return int(min(max(4000, 50 * plan.tile.residents), 20_000))
