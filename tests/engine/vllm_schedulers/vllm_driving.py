"""Random request streams through vLLM's scheduler and through the simulator's, decision by decision."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm_harness import make_request, output_of

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_engine.scheduler import Scheduler

_MS = 1_000_000_000  # picoseconds
Batch = dict[str, int]


class Clock:
    """A clock that stands still unless moved; nanoseconds."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns


def draw(seed: int, count: int, *, longest_prompt: int = 200, longest_output: int = 40) -> dict[str, Any]:
    """Return arrivals (whole microseconds, ps), prompts, outputs, tiers and priorities of `count` requests."""
    rng = np.random.default_rng(seed)
    gaps = rng.integers(0, 30_000, count) * 1_000_000
    return {
        "arrival_ps": np.cumsum(gaps),
        "prompt_tokens": rng.integers(1, longest_prompt, count),
        "output_tokens": rng.integers(1, longest_output, count),
        "paying": rng.random(count) < 0.3,
        "priority": rng.integers(0, 3, count),
    }


def duration_ps(tokens: int, decodes: int) -> int:
    """Return how long an iteration is taken to run; whole nanoseconds."""
    return 2 * _MS + 50_000_000 * tokens + 20_000_000 * decodes


def by_simulator(policy: Policy, config: EngineConfig, drawn: dict[str, Any], limits_s: dict[bool, float]) -> list[Any]:
    """Return the batches, ends and preemptions of the simulator's scheduler."""
    limits = [round(limits_s[bool(p)] * 1e12) for p in drawn["paying"]]
    asked = Requests.from_arrays(**drawn, tbt_limit_ps=limits)
    rules = Scheduler(policy, config, requests=asked)
    now, seen = 0, []
    for _ in range(100_000):
        rules.arrive(now)
        if not len(rules) and rules.next_arrival_ps is not None:
            now = rules.next_arrival_ps
            continue
        batch = rules.decide(now)
        if len(batch) == 0:
            if len(batch.preempted):
                continue
            if rules.next_arrival_ps is None:
                break
            now = rules.next_arrival_ps
            continue
        tokens = {str(i): int(c or 1) for i, c in zip(batch.ids, batch.prefill_tokens, strict=True)}
        spent = duration_ps(sum(tokens.values()), int(batch.decode.sum()))
        seen.append((now, tokens, [str(i) for i in batch.preempted]))
        rules.complete(spent)
        now = rules.now_ps
    return seen


def by_vllm(scheduler: Any, drawn: dict[str, Any]) -> list[Any]:
    """Return the same of a Tileq scheduler inside vLLM, driven one iteration at a time on a simulated clock."""
    clock = Clock()
    scheduler.clock, scheduler._began_ns = clock, 0
    count = len(drawn["arrival_ps"])
    came, seen = 0, []

    def arrive() -> None:
        nonlocal came
        while came < count and drawn["arrival_ps"][came] <= 1000 * clock.ns:
            extra = {"tileq_tier": "paying" if drawn["paying"][came] else "standard"}
            request = make_request(
                str(came),
                int(drawn["prompt_tokens"][came]),
                int(drawn["output_tokens"][came]),
                extra=extra,
                priority=int(drawn["priority"][came]),
            )
            kept, clock.ns = clock.ns, int(drawn["arrival_ps"][came]) // 1000
            scheduler.add_request(request)
            clock.ns = kept
            came += 1

    for _ in range(100_000):
        arrive()
        if not scheduler.has_unfinished_requests():
            if came == count:
                break
            clock.ns = int(drawn["arrival_ps"][came]) // 1000
            continue
        scheduled = scheduler.schedule()
        tokens = dict(scheduled.num_scheduled_tokens)
        decodes = scheduler.mirror.state.scalar("ndec")
        assert tokens, "an iteration without tokens while requests are there"
        seen.append((1000 * clock.ns, tokens, sorted(scheduled.preempted_req_ids)))
        clock.ns += duration_ps(sum(tokens.values()), decodes) // 1000
        scheduler.update_from_output(scheduled, output_of(scheduler, scheduled))
    return seen
