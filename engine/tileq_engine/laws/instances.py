"""Small hard instances for the contract battery: tight memory, bursts, ties, one-token outputs, over-long prompts."""

from __future__ import annotations

__all__ = ["HardCase", "hard_cases", "overload_case"]

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_engine.config import EngineConfig
    from tileq_engine.policy import Policy
    from tileq_engine.requests import Requests
    from tileq_engine.simulator import RawRun

BLOCK_TOKENS = 16
TRACE_ENTRIES = 2_000_000


@dataclass(frozen=True, slots=True)
class HardCase:
    """One instance: what to simulate, how to name it in a message, and which request is watched (-1: none)."""

    label: str
    requests: Requests
    config: EngineConfig
    time: IterationTime
    marked: int = -1

    def simulate(self, policy: Policy, mode: str) -> RawRun:
        """Return the run of `policy` on this instance."""
        from tileq_engine.simulator import simulate

        return simulate(self.requests, policy, self.time, self.config, mode=mode)  # type: ignore[arg-type]


def _requests(**columns: Any) -> Requests:
    from tileq_engine.requests import Requests

    return Requests.from_arrays(**columns)


def _config(**settings: Any) -> EngineConfig:
    from tileq_engine.config import EngineConfig

    return EngineConfig(check=True, trace_limit=TRACE_ENTRIES, block_tokens=BLOCK_TOKENS, **settings)


def hard_cases(policy: Policy, count: int, seed: int) -> Iterator[HardCase]:
    """Yield `count` instances; the policy's own budget and slots, where it fixes them, are respected."""
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        slots = int(getattr(policy, "max_num_seqs", None) or rng.integers(1, 9))
        budget = int(getattr(policy, "token_budget", None) or max(slots, int(rng.integers(8, 97))))
        n = int(rng.integers(2, 24))
        prompts = rng.integers(1, min(budget, 80) + 1, n)
        if rng.random() < 0.3:
            prompts[int(rng.integers(n))] += (
                budget  # longer than the budget: chunked, or rejected by whole-prompt policies
            )
        outputs = np.where(rng.random(n) < 0.2, 1, rng.integers(1, 40, n))
        gaps = np.where(rng.random(n) < 0.6, 0, rng.integers(0, 3 * 10**9, n))  # bursts and exact ties
        peak = int(((prompts + outputs + BLOCK_TOKENS - 1) // BLOCK_TOKENS).max())
        blocks = int(rng.integers(max(1, peak - 1), peak + 8))
        swap = rng.random() < 0.3
        yield HardCase(
            label=f"{number} of seed {seed}: {n} requests, budget {budget}, {slots} slots, {blocks} blocks",
            requests=_requests(
                prompt_tokens=prompts,
                output_tokens=outputs,
                arrival_ps=np.cumsum(gaps),
                class_index=rng.integers(0, 2, n),
                priority=rng.integers(0, 3, n),
                tbt_limit_ps=rng.choice([0, 10**9, 10**10], n),
                paying=rng.random(n) < 0.3,
            ),
            config=_config(
                token_budget=budget,
                max_num_seqs=slots,
                kv_tokens=blocks * BLOCK_TOKENS,
                convention=("engine", "paper")[int(rng.integers(2))],
                preemption="swap" if swap else "recompute",
                swap_token_s=1e-6 if swap else 0.0,
            ),
            time=IterationTime(
                launch_s=float(rng.integers(1, 5)) * 1e-4,
                tile_s=float(rng.integers(0, 4)) * 1e-4,
                tile_tokens=int(rng.integers(1, 17)),
                token_s=1e-5,
                pair_s=1.7e-9,
                kv_token_s=1.3e-8,
                sequence_s=1e-6,
            ),
        )


def overload_case(policy: Policy, seed: int) -> HardCase:
    """Return 1.3 times what can be served, of short urgent requests, and among them a long one of no rank.

    10^4 tokens a second are served; a favoured request takes 12. The marked one (64 + 16 tokens, largest priority
    value, not paying) comes when some 90 wait: a policy that promises no starvation ends it before the stream does.
    """
    rng = np.random.default_rng([seed, 1 << 20])
    n, marked = 1500, 400
    prompts, outputs = np.full(n, 8), np.full(n, 4)
    prompts[marked], outputs[marked] = 64, 16
    rank = np.where(np.arange(n) == marked, 9, 0)
    arrivals = np.cumsum(rng.exponential(12 / 1.3e4, n))
    budget = int(getattr(policy, "token_budget", None) or 64)
    slots = int(getattr(policy, "max_num_seqs", None) or 16)
    return HardCase(
        label=f"overload of seed {seed}: {n} requests, budget {budget}, {slots} slots",
        requests=_requests(
            prompt_tokens=prompts, output_tokens=outputs, arrival_s=arrivals, priority=rank, paying=rank == 0
        ),
        config=_config(token_budget=budget, max_num_seqs=slots, convention="paper"),
        time=IterationTime(token_s=1e-4),
        marked=marked,
    )
