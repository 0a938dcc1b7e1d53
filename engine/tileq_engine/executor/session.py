"""A scheduler and an executor at work together: iterations, requests that come and go, the record of it all."""

from __future__ import annotations

__all__ = ["Session"]

import functools
from collections.abc import Iterable
from time import perf_counter
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.config import EngineConfig
from tileq_engine.executor.backend import Backend
from tileq_engine.executor.clocks import RunClock, make_clock
from tileq_engine.executor.executor import Executor, Outcome
from tileq_engine.executor.histories import checked_prompts, prompt_paths, shared_prompts
from tileq_engine.executor.journal import RunJournal
from tileq_engine.executor.log import COLUMNS, FACTS, LogWriter, decision_of
from tileq_engine.executor.sampling import FIXED_LENGTH, Sampling
from tileq_engine.executor.settings import check_requests, physical
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_engine.scheduler import Batch, Scheduler
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

_FACTS = (*FACTS, "total_blocks", "free", "prefill_tokens", "decode_tokens")


class Session:
    """One policy on one model, iteration by iteration.

    Parameters
    ----------
    backend
        The model.
    policy, config
        As for `simulate`; the KV capacity is the backend's where the settings name none.
    requests, prompts
        Requests known beforehand and their tokens (None: random ones of their lengths, from `seed`). Without requests
        they come through `submit`, `capacity` of them at most.
    sampling
        Of all of these requests, or one each; None: greedy, to the given length.
    time
        What a policy that plans with the iteration time is told of it; None: the clock's own, where a model drives it.
    clock
        See `clocks`.
    journal
        Where every iteration is written as it ends. Only `serve` goes on from one: it knows the requests beforehand.
        Those that come through `submit` are not in the journal, so a session of them records what it did, which a
        kill does not take, and begins anew.
    check
        Prove the cache's invariants after every iteration.

    Examples
    --------
    >>> from tileq_engine.executor import TokenHashBackend
    >>> from tileq_engine.registry import policy
    >>> s = Session(TokenHashBackend(), policy("sarathi"), clock="busy", capacity=8)
    >>> first = s.submit([1, 2, 3], output_tokens=2)
    >>> s.step().tokens.size, s.step().tokens.size
    (1, 1)
    >>> s.executor.histories.generated(first).size, len(s.scheduler)
    (2, 0)
    """

    def __init__(
        self,
        backend: Backend,
        policy: Policy,
        config: EngineConfig | None = None,
        *,
        requests: Requests | None = None,
        prompts: Iterable[Int[np.ndarray, "_"]] | None = None,
        sampling: Sampling | Iterable[Sampling] | None = None,
        capacity: int | None = None,
        time: IterationTime | None = None,
        clock: Any = "wall",
        probe: Any = None,
        journal: RunJournal | None = None,
        seed: int = 0,
        check: bool = False,
    ) -> None:
        self.backend, self.policy = backend, policy
        self.config = physical(backend, policy.settings(config or EngineConfig()))
        if requests is not None:
            check_requests(backend, requests)
        elif journal is not None and journal.entries:
            raise InputError(
                f"{journal.path} holds {len(journal.entries)} lines of an earlier session; requests that are submitted "
                "are not in a journal, so that a session cannot go on from it. Give another file, or resume=False"
            )
        if self.config.prefix_cache:
            requests, prompts = _with_paths(backend, requests, prompts, seed, journal)
        self.time = clock if time is None and isinstance(clock, IterationTime) else time
        self.scheduler = Scheduler(policy, self.config, capacity=capacity, requests=requests, time=self.time)
        residents = min(self.config.max_num_seqs, self.scheduler.capacity)
        paths = requests.blocks if requests is not None and self.config.prefix_cache else None
        self.executor = Executor(backend, residents, self.config.kv_blocks, paths)
        self.clock: RunClock = make_clock(clock, probe, cuda=bool(backend.describe().get("cuda")))
        self.log = LogWriter()
        self.journal = journal
        self._check = check
        self._asked = requests
        if requests is not None:
            self._bring(requests, prompts, sampling, seed)
        try:
            _warm(policy, self.config, self.time)
        except TypeError:  # a policy with a parameter that cannot be hashed: not remembered
            _warm.__wrapped__(policy, self.config, self.time)
        self.clock.begin(0)

    def _bring(
        self,
        requests: Requests,
        prompts: Iterable[Int[np.ndarray, "_"]] | None,
        sampling: Sampling | Iterable[Sampling] | None,
        seed: int,
    ) -> None:
        vocabulary = self.backend.vocab_size
        given = (
            shared_prompts(requests, vocabulary, seed)
            if prompts is None
            else checked_prompts(prompts, requests, vocabulary)
        )
        rule = sampling or FIXED_LENGTH
        rules = [rule] * len(requests) if isinstance(rule, Sampling) else list(rule)
        if len(rules) != len(requests):
            raise InputError(f"{len(rules)} samplings are given for {len(requests)} requests; expected one each")
        for prompt, room, one in zip(given, requests.output_tokens.tolist(), rules, strict=False):
            self.executor.histories.add(prompt, room)
            self.executor.sampling.add(one, self.backend.eos_token_ids)
        if self.executor.histories.count != len(requests):
            raise InputError(f"{self.executor.histories.count} prompts are given for {len(requests)} requests")

    def submit(self, prompt: Any, output_tokens: int, *, sampling: Sampling | None = None, **facts: Any) -> int:
        """Add a request that arrives now; return its index. `facts` as for `Scheduler.add`."""
        tokens = np.asarray(prompt, dtype=np.int32).reshape(-1)
        asked = Requests.from_arrays(arrival_ps=[0], prompt_tokens=[tokens.size], output_tokens=[output_tokens])
        next(checked_prompts([tokens], asked, self.backend.vocab_size))
        check_requests(self.backend, asked)
        index = self.scheduler.add(prompt_tokens=tokens.size, output_tokens=output_tokens, **facts)
        self.executor.histories.add(tokens, output_tokens)
        self.executor.sampling.add(sampling or Sampling(), self.backend.eos_token_ids)
        return index

    def cancel(self, request: int) -> None:
        """Take a request out; its blocks are free at once."""
        self.scheduler.cancel(request)
        self.executor.drop(np.array([request]))
        if self.journal is not None:
            self.journal.event("cancel", request=request)

    def step(self, now_ps: int | None = None) -> Outcome | None:
        """Run one iteration; None when no batch can be formed now."""
        begun = perf_counter()
        batch = self.scheduler.decide(self.scheduler.now_ps if now_ps is None else now_ps)
        decided = perf_counter() - begun
        if len(batch) == 0:
            self.executor.preempt(batch.preempted, batch.swapped)
            return None
        facts = self.facts()
        outcome = self.executor.run(batch, decided)
        self._finish(batch, outcome, facts)
        return outcome

    def facts(self) -> dict[str, int]:
        """Return the batch's composition and the state of the system as it was formed."""
        return dict(zip(_FACTS, self.scheduler.facts(*_FACTS), strict=True))

    def _finish(self, batch: Batch, outcome: Outcome, facts: dict[str, int]) -> None:
        stopped = outcome.stopped
        if stopped.size:
            self.scheduler.end_early(stopped)
        start = self.scheduler.now_ps
        duration = self.clock.lap(facts)
        self.executor.drop(self.scheduler.complete(duration))
        self.clock.pause()
        row = self._row(start, duration, outcome, facts)
        row.append(decision_of(batch.ids, batch.prefill_tokens, batch.decode))
        self.log.add(row)
        if self.journal is not None:
            self.journal.add(row, outcome.requests.tolist(), outcome.tokens.tolist(), stopped.tolist())
        if self._check:
            self.executor.memory.check()
        self.clock.resume()

    def _row(self, start: int, duration: int, outcome: Outcome, facts: dict[str, int]) -> list[int]:
        record, clock = outcome.record, self.clock
        parts = (record.decide_s, record.launch_s, record.compute_s, record.sample_s)
        probe = 0 if clock.probe is None else round(clock.probe.smooth_ns)
        return [
            start,
            duration,
            clock.wall_ns,
            clock.cpu_ns,
            probe,
            *(round(1e9 * part) for part in parts),
            *(facts[name] for name in FACTS),
            facts["total_blocks"] - facts["free"],
            facts["prefill_tokens"],
            facts["decode_tokens"],
        ]

    def repeat(self, entry: dict[str, Any], now_ps: int) -> bool:
        """Let an iteration that was recorded earlier happen again without running it; False when no batch forms."""
        for _ in range(len(self.scheduler) + 2):
            batch = self.scheduler.decide(now_ps)
            if len(batch) or self.scheduler.facts("npreempt")[0] == 0:
                break
        if len(batch) == 0:
            return False
        row = dict(zip(COLUMNS, entry["i"], strict=True))
        if row["decision"] != decision_of(batch.ids, batch.prefill_tokens, batch.decode):
            return False
        self.executor.histories.append(np.array(entry["r"], dtype=np.int64), np.array(entry["t"], dtype=np.int64))
        if entry.get("s"):
            self.scheduler.end_early(np.array(entry["s"], dtype=np.int64))
        self.scheduler.complete(row["duration_ps"])
        self.log.add(entry["i"])
        return True


def _with_paths(
    backend: Backend,
    requests: Requests | None,
    prompts: Iterable[Int[np.ndarray, "_"]] | None,
    seed: int,
    journal: RunJournal | None,
) -> tuple[Requests, list[Int[np.ndarray, "_"]]]:
    """Return the requests with the blocks of their prompts, as their tokens have them, and the prompts."""
    if requests is None:
        raise InputError(
            "prefix_cache is set and no requests are given; a real model knows prefixes of those it is given"
        )
    if journal is not None:
        raise InputError(
            "prefix_cache and a journal are both given; what a cache kept is not in a journal: leave one out"
        )
    given = list(shared_prompts(requests, backend.vocab_size, seed) if prompts is None else prompts)
    return requests.with_(blocks=prompt_paths(given, backend.block_tokens)), given


@functools.lru_cache(maxsize=64)
def _warm(policy: Policy, config: EngineConfig, time: IterationTime | None) -> None:
    """Have the policy's decision compiled before the clock runs: it takes seconds, once a process."""
    asked = Requests.from_arrays(arrival_ps=[0], prompt_tokens=[1], output_tokens=[1])
    scheduler = Scheduler(policy, config, requests=asked, time=time)
    scheduler.close()
    scheduler.arrive(0)
    if len(scheduler.decide(0)):
        scheduler.complete(1)
