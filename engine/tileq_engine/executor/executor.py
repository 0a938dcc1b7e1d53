"""One batch of the scheduler on a real model: blocks, tokens, the forward, the new tokens."""

from __future__ import annotations

__all__ = ["Executor", "IterationRecord", "Outcome"]

import time
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.executor.backend import Backend
from tileq_engine.executor.batch_building import BatchBuilder
from tileq_engine.executor.histories import Histories
from tileq_engine.executor.memory import PagedMemory
from tileq_engine.executor.sampling import SamplingTable
from tileq_engine.prefix_blocks import BlockPaths
from tileq_engine.scheduler import Batch


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """Where the seconds of one iteration went.

    Parameters
    ----------
    decide_s
        The policy's decision.
    launch_s
        Building the batch and handing it to the device.
    compute_s
        The forward (on CUDA: until the device had finished).
    sample_s
        Choosing tokens, histories, stop rules.
    tokens
        Tokens through the model.
    """

    decide_s: float
    launch_s: float
    compute_s: float
    sample_s: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """Who got which token, which of them end with it before their limit, and the seconds."""

    requests: Int[np.ndarray, "out"]
    tokens: Int[np.ndarray, "out"]
    stopped: Int[np.ndarray, "ended"]
    record: IterationRecord


class Executor:
    """Runs what a scheduler decides on a backend.

    Parameters
    ----------
    backend
        The model.
    residents
        Most requests that are resident at once.
    blocks
        Blocks it may use; None: all of the backend's.
    prefixes
        Paths of the prompts' full blocks, for a prefix cache; None: none is kept.
    """

    def __init__(
        self, backend: Backend, residents: int, blocks: int | None = None, prefixes: BlockPaths | None = None
    ) -> None:
        self.backend = backend
        self.memory = PagedMemory(backend, residents, blocks, prefixes)
        self.histories = Histories()
        self.sampling = SamplingTable()
        self._builder = BatchBuilder(self.memory, self.histories)

    def run(self, batch: Batch, decide_s: float = 0.0) -> Outcome:
        """Run one batch: victims leave the device, members get blocks, the model its tokens."""
        begun = time.perf_counter()
        self.preempt(batch.preempted, batch.swapped)
        flat, given = self._builder.build(batch)
        who = flat.out_requests
        rows = self.sampling.rows(who, given)
        built = time.perf_counter()
        step = self.backend.step(flat, rows)
        stepped = time.perf_counter()
        self._builder.deliver(who, step.tokens)
        if self.memory.prefixes is not None:
            self._keep_prefixes(batch)
        stopped = self.sampling.stopped(who, step.tokens, self.histories)
        done = time.perf_counter()
        record = IterationRecord(
            decide_s=decide_s,
            launch_s=built - begun + step.launch_s,
            compute_s=step.compute_s,
            sample_s=step.sample_s + done - stepped,
            tokens=int(flat.token_ids.size),
        )
        return Outcome(who, step.tokens, stopped, record)

    def _keep_prefixes(self, batch: Batch) -> None:
        """Keep the blocks that this batch's chunks have filled."""
        for k in np.flatnonzero(batch.prefill_tokens > 0).tolist():
            self.memory.keep(int(batch.ids[k]), int(batch.context_tokens[k] + batch.prefill_tokens[k]))

    def preempt(self, victims: Int[np.ndarray, "victim"], swapped: Bool[np.ndarray, "victim"]) -> None:
        """Take the victims' KV off the device: to the host, or away."""
        if victims.size == 0:
            return
        for request, to_host in zip(victims.tolist()[::-1], swapped.tolist()[::-1], strict=True):  # first victim first
            if to_host:
                self.memory.swap_out(request)
            else:
                self.memory.drop(request)

    def drop(self, requests: Int[np.ndarray, "gone"]) -> None:
        """Give back the blocks of requests that have left."""
        for request in requests.tolist():
            self.memory.drop(request)

    def rebuild(self, requests: Int[np.ndarray, "resident"], cached: Int[np.ndarray, "resident"]) -> None:
        """Compute the KV of residents again (after a restart): nothing is sampled."""
        for request, tokens in zip(requests.tolist(), cached.tolist(), strict=True):
            if tokens == 0:
                continue
            nothing = np.zeros(0, dtype=np.int64)
            one = np.array([request], dtype=np.int64)
            alone = Batch(one, np.array([tokens]), np.array([0]), np.array([0]), nothing, nothing.astype(bool))
            flat, _ = self._builder.build(alone)
            quiet = replace(flat, last_rows=nothing, out_members=nothing, out_requests=nothing)
            self.backend.step(quiet, self.sampling.rows(nothing, nothing))
