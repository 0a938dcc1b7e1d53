"""A session without a model: what the loop around a batch costs, and which batches policies form."""

from __future__ import annotations

__all__ = ["formed_batches", "loop_overhead_s"]

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.executor.backend import Backend, Step
from tileq_engine.executor.profiling import Formed
from tileq_engine.executor.session import Session
from tileq_engine.policy import Policy
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.scheduler import Scheduler
from tileq_theory.iteration_time import IterationTime


class _NoModel:
    """A backend that does nothing, so that a session over it costs what the loop costs."""

    eos_token_ids: tuple[int, ...] = ()
    max_positions: int | None = None

    def __init__(self, like: Backend) -> None:
        self.blocks, self.block_tokens, self.vocab_size = like.blocks, like.block_tokens, like.vocab_size

    def step(self, batch: Any, rows: Any) -> Any:
        """Return token 0 for each."""
        return Step(np.zeros(batch.last_rows.size, dtype=np.int64), 0.0, 0.0, 0.0)

    def copy_out(self, blocks: list[int]) -> Any:
        """Return nothing."""

    def copy_in(self, held: Any, blocks: list[int]) -> None:
        """Take nothing."""

    def describe(self) -> dict[str, Any]:
        """Return its name."""
        return {"model": "none"}


def loop_overhead_s(backend: Backend, config: EngineConfig, residents: int, iterations: int = 300) -> float:
    """Return the CPU seconds of an iteration that `Executor.run` does not contain: decision, completion, clock."""
    count = min(residents, config.max_num_seqs)
    asked = Requests.from_arrays(
        arrival_ps=np.zeros(count, dtype=np.int64), prompt_tokens=1, output_tokens=iterations + 8
    )
    free = config.with_(kv_tokens=None, token_budget=max(config.token_budget, count))
    session = Session(_NoModel(backend), policy("sarathi"), free, requests=asked, clock="cpu")
    for _ in range(4):
        session.step()
    return float(np.median(list(_outside(session, iterations))))


def _outside(session: Any, iterations: int) -> Iterator[float]:
    for _ in range(iterations):
        start = time.thread_time_ns()
        outcome = session.step()
        took = (time.thread_time_ns() - start) / 1e9
        r = outcome.record
        yield max(0.0, took - r.launch_s - r.compute_s - r.sample_s)


def formed_batches(
    policies: Sequence[Policy], requests: Requests, config: EngineConfig, model: IterationTime, count: int
) -> list[Formed]:
    """Return `count` batches in all that the policies form while all `requests` wait, evenly over the time in between.

    Decisions alone, on the clock of `model`; the first fifth, in which residents are few, and what is left when nobody
    waits are not taken.
    """
    found = list[Formed]()
    for place, one in enumerate(policies):
        seen = _saturated(one, requests, config, model)
        wanted = (count - len(found)) // (len(policies) - place)
        chosen = np.linspace(len(seen) // 5, len(seen) - 1, min(wanted, len(seen))).astype(int)
        found += [seen[k] for k in chosen.tolist()]
    return found


def _saturated(one: Policy, requests: Requests, config: EngineConfig, model: IterationTime) -> list[Formed]:
    scheduler = Scheduler(one, config, requests=requests, time=model)
    scheduler.close()
    seen = list[Formed]()
    while scheduler.arrive(scheduler.now_ps) and (scheduler.facts("nwaiting")[0] or not seen):
        batch = scheduler.decide(scheduler.now_ps)
        if len(batch) == 0:
            break
        chunks, decodes = batch.prefill_tokens > 0, batch.decode == 1
        pieces = zip(batch.prefill_tokens[chunks].tolist(), batch.context_tokens[chunks].tolist(), strict=True)
        seen.append(Formed(tuple(pieces), tuple(batch.context_tokens[decodes].tolist())))
        npre, ndec, pairs2, kv, seqs = scheduler.facts("npre", "ndec", "pairs2", "kv", "seqs")
        scheduler.complete(max(1, round(1e12 * float(model(npre + ndec, pairs2 / 2, kv, seqs)))))
    return seen
