"""One batch of the scheduler on a real model: blocks, tokens, the forward, the new tokens."""

from __future__ import annotations

__all__ = ["Executor", "IterationRecord", "Outcome"]

import time
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.executor.backend import Backend, HostBatch
from tileq_engine.executor.histories import Histories
from tileq_engine.executor.memory import PagedMemory
from tileq_engine.executor.sampling import SamplingTable
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
    """Who got which token, who ends with it before its limit, and the seconds."""

    requests: Int[np.ndarray, "out"]
    tokens: Int[np.ndarray, "out"]
    stopped: Bool[np.ndarray, "out"]
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
    """

    def __init__(self, backend: Backend, residents: int, blocks: int | None = None) -> None:
        self.backend = backend
        self.memory = PagedMemory(backend, residents, blocks)
        self.histories = Histories()
        self.sampling = SamplingTable()

    def run(self, batch: Batch, decide_s: float = 0.0) -> Outcome:
        """Run one batch: victims leave the device, members get blocks, the model its tokens."""
        begun = time.perf_counter()
        self.preempt(batch.preempted, batch.swapped)
        flat = self.flatten(batch)
        who = batch.ids[flat.out_members]
        rows = self.sampling.rows(who, self.histories.length[who] - self.histories.prompt[who])
        built = time.perf_counter()
        step = self.backend.step(flat, rows)
        stepped = time.perf_counter()
        self.histories.append(who, step.tokens)
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

    def preempt(self, victims: Int[np.ndarray, "victim"], swapped: Bool[np.ndarray, "victim"]) -> None:
        """Take the victims' KV off the device: to the host, or away."""
        for request, to_host in zip(victims.tolist(), swapped.tolist(), strict=True):
            if to_host:
                self.memory.swap_out(request)
            else:
                self.memory.drop(request)

    def drop(self, requests: Int[np.ndarray, "gone"]) -> None:
        """Give back the blocks of requests that have left."""
        for request in requests.tolist():
            self.memory.drop(request)

    def flatten(self, batch: Batch) -> HostBatch:
        """Give the members their blocks and return the flat batch."""
        ids = batch.ids
        fresh = batch.prefill_tokens + batch.decode
        after = batch.context_tokens + fresh
        rows = self.memory.secure(ids, after)
        ends = np.cumsum(fresh)
        total = int(ends[-1])
        starts = ends - fresh
        within = np.arange(total) + np.repeat(batch.context_tokens - starts, fresh)
        block = self.memory.block_tokens
        of_token = np.repeat(rows, fresh)
        width = -(-int(after.max()) // block)
        last = np.flatnonzero(after == self.histories.length[ids])
        return HostBatch(
            requests=ids,
            token_ids=self.histories.flat[np.repeat(self.histories.offset[ids], fresh) + within].astype(np.int64),
            positions=within,
            slots=self.memory.table[of_token, within // block].astype(np.int64) * block + within % block,
            query_start=np.concatenate([[0], ends]).astype(np.int32),
            context_tokens=after.astype(np.int32),
            block_table=self.memory.table[rows, :width],
            last_rows=ends[last] - 1,
            out_members=last,
        )

    def rebuild(self, requests: Int[np.ndarray, "resident"], cached: Int[np.ndarray, "resident"]) -> None:
        """Compute the KV of residents again (after a restart): nothing is sampled."""
        for request, tokens in zip(requests.tolist(), cached.tolist(), strict=True):
            if tokens == 0:
                continue
            nothing = np.zeros(0, dtype=np.int64)
            one = np.array([request], dtype=np.int64)
            alone = Batch(one, np.array([tokens]), np.array([0]), np.array([0]), nothing, nothing.astype(bool))
            flat = self.flatten(alone)
            none = np.zeros(0, dtype=np.int64)
            quiet = replace(flat, last_rows=none, out_members=none)
            self.backend.step(quiet, self.sampling.rows(none, none))
