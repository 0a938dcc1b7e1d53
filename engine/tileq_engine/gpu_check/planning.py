"""lambda* and the tile of one token budget, without a solver: the capacity program's closed form for one level."""

from __future__ import annotations

__all__ = ["SinglePlan", "demand_of", "single_plan"]

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tileq_engine.requests import Requests
from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.single import single_level_iterations, single_level_rate
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime


@dataclass(frozen=True, slots=True)
class SinglePlan:
    """The best token budget, what an iteration of it holds, and the rate that it sustains."""

    rate_per_s: float
    tokens: int
    prefill_tokens: int
    decode_tokens: int
    share_of_best: float

    @property
    def level(self) -> tuple[int, int, int, float]:
        """The level as `rad_general` takes it."""
        return self.tokens, self.prefill_tokens, self.decode_tokens, 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def demand_of(lengths: Requests, chunk_tokens: int) -> Demand:
    """Return the mean demand of these very requests under the engine's convention, prompts cut into chunks."""
    p, d = lengths.prompt_tokens.astype(float), lengths.output_tokens.astype(float) - 1
    reads = d * p + d * (d + 1) / 2
    chunks = np.ceil(p / chunk_tokens)
    held = reads + chunk_tokens * chunks * (chunks - 1) / 2 + p
    return Demand(
        prefill_tokens=float(p.mean()),
        decode_tokens=float(d.mean()),
        kv_read_tokens=float(reads.mean()),
        attention_pairs=float((p * (p + 1) / 2).mean()),
        memory_iterations=float(held.mean()),
        slot_iterations=float((chunks + d).mean()),
        longest_prompt_tokens=float(p.max()),
        longest_context_tokens=float((p + d + 1).max()),
        shortest_context_tokens=float(p.min() + 1),
    )


def single_plan(
    time: IterationTime, lengths: Requests, max_tokens: int, max_num_seqs: int, backend: Any, tolerance: float = 0.01
) -> SinglePlan:
    """Return the smallest budget whose rate is within `tolerance` of the best, from `max_num_seqs` tokens on."""
    kv = float(backend.blocks * backend.block_tokens)
    sizes = np.unique(np.geomspace(max(max_num_seqs, 2), max(max_tokens, max_num_seqs), 64).round().astype(int))
    rates = np.zeros(len(sizes))
    for place, n in enumerate(sizes.tolist()):
        demand = demand_of(lengths, max(1, n - max_num_seqs // 2))
        limits = Limits(max_batch_tokens=n, max_num_seqs=max_num_seqs, kv_tokens=kv)
        rates[place] = float(single_level_rate(time, demand, limits, n)[0])
    place = int(np.argmax(rates >= (1 - tolerance) * rates.max()))
    n = int(sizes[place])
    demand = demand_of(lengths, max(1, n - max_num_seqs // 2))
    limits = Limits(max_batch_tokens=n, max_num_seqs=max_num_seqs, kv_tokens=kv)
    x = float(single_level_iterations(time, demand, limits, n)[0])
    prefill = min(n, max(1, round(demand.prefill_tokens / x)))
    decode = min(n - prefill, max(1, round(demand.decode_tokens / x)))
    return SinglePlan(float(rates[place]), n, prefill, decode, float(rates[place] / rates.max()))
