"""One session of measurements at work: device figures, the GeMM staircase, whole iterations."""

from __future__ import annotations

__all__ = ["Work"]

import time
from typing import Any

from tileq_profiling.measure.bar import Bar
from tileq_profiling.measure.batch import Batch
from tileq_profiling.measure.blocks import BlockStack
from tileq_profiling.measure.clock import Clock, Timing
from tileq_profiling.measure.journal import Journal
from tileq_profiling.measure.kernels import gemm_sizes, measure_facts, staircase_call
from tileq_profiling.measure.plan import Planner, coarse
from tileq_profiling.measure.session import whole_model_s
from tileq_profiling.measure.space import Space, free_bytes

_FACTS_SHARE = 0.1  # of the budget
_STAIRCASE_SHARE = 0.15
_POINT_SHARE = 1 / 30
_REPETITIONS = 8.0  # warm-ups and the fewest repetitions of a point


class Work:
    """One session at work: each method measures until its share of the budget is gone."""

    def __init__(
        self,
        torch: Any,
        device: Any,
        stack: BlockStack,
        space: Space,
        journal: Journal,
        bar: Bar,
        begun: float,
        deadline: float,
        precision: float,
        threads: int,
    ) -> None:
        self.torch, self.device, self.stack, self.space = torch, device, stack, space
        self.journal, self.bar, self.precision = journal, bar, precision
        self.begun, self.deadline = begun, deadline
        self.dtype = stack.dtype
        self.clock = Clock(torch, device, self.dtype, threads)
        self.most_s = (deadline - begun) * _POINT_SHARE

    def facts(self) -> None:
        """Bandwidth, matmul peak and launch constant, those not in the journal yet."""
        until = min(self.deadline, time.monotonic() + _FACTS_SHARE * (self.deadline - self.begun))
        done = {record["name"] for record in self.journal.of("fact")}
        for fact in measure_facts(self.torch, self.device, self.dtype, free_bytes(self.torch, self.device)):
            if fact.name in done:
                continue
            timing = self._time(fact.call, until)
            if timing is not None:
                value = fact.value(timing.ratio * timing.probe_s)
                self.journal.add({"what": "fact", "name": fact.name, "value": value, **_told(timing)})
            self.bar.step(fact.name)

    def staircase(self) -> None:
        """The GeMM staircase, coarse sizes first, until its share of the budget is gone."""
        until = min(self.deadline, time.monotonic() + _STAIRCASE_SHARE * (self.deadline - self.begun))
        call = staircase_call(self.torch, self.stack.model, self.device, self.dtype, self.space.most_tokens)
        done = {record["tokens"] for record in self.journal.of("gemm")}
        for size in gemm_sizes(self.space.most_tokens):
            if size in done:
                continue
            timing = self._time(call(size), until)
            if timing is None:
                return
            self.journal.add({"what": "gemm", "tokens": size, **_told(timing)})
            self.bar.step(f"GeMM of {size} tokens")

    def batches(self) -> None:
        """Whole iterations: the coarse ones, then those that the planner asks for."""
        planner = Planner(self.space)
        for record in self.journal.of("batch"):
            planner.add(
                Batch(record["chunk"], record["history"], record["decodes"], record["context"]), self._seconds(record)
            )
        for batch in coarse(self.space):
            if batch not in planner.measured and self._affordable(planner, batch):
                self._measure(planner, batch)
        while time.monotonic() < self.deadline:
            chosen = planner.next((self.deadline - time.monotonic()) / _REPETITIONS)
            if chosen is None:
                return
            if not self._measure(planner, chosen):
                return

    def _affordable(self, planner: Planner, batch: Batch) -> bool:
        """Whether a batch can have its repetitions in what is left; before three are known, whether any is."""
        left = self.deadline - time.monotonic()
        return left > 0 if len(planner.measured) < 3 else _REPETITIONS * planner.predict(batch) < left

    def _seconds(self, record: dict[str, Any]) -> float:
        """Seconds as held here (the blocks not scaled), for the planner."""
        return whole_model_s(record, record["probe_s"], 1, 1)

    def _measure(self, planner: Planner, batch: Batch) -> bool:
        given = self.stack.inputs(batch)
        timing = self._time(lambda mark: self.stack.forward(batch, given, mark), self.deadline)
        if timing is None:
            return False
        record = {
            "what": "batch",
            "chunk": batch.chunk_tokens,
            "history": batch.history_tokens,
            "decodes": batch.decodes,
            "context": batch.context_tokens,
            **_told(timing),
        }
        self.journal.add(record)
        planner.add(batch, self._seconds(record))
        self.bar.step(f"{len(planner.measured)} batches, last {batch.kind} of {batch.tokens} tokens")
        return True

    def _time(self, call: Any, deadline: float) -> Timing | None:
        return self.clock.measure(call, precision=self.precision, deadline=deadline, most_s=self.most_s)


def _told(timing: Timing) -> dict[str, float]:
    return {
        "ratio": timing.ratio,
        "probe_s": timing.probe_s,
        "repeats": timing.repeats,
        "halfwidth": timing.halfwidth,
        "inner_share": timing.inner_share,
    }
