"""The simulator's state of what runs inside vLLM: requests by name, decided on by the compiled rules.

A mirror knows of a request what a policy may know: prompt, progress, blocks, deadlines, place in the queue. vLLM says
what became of every decision (`settle`), and where the two differ the mirror follows: a prefix that was in the cache,
a request that vLLM could not admit or had to preempt, a token more or less.
"""

from __future__ import annotations

__all__ = ["Decision", "Mirror"]

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy, PolicyError
from tileq_engine.records import DECODE, PREFILL
from tileq_engine.scheduler import Scheduler
from tileq_engine.simulator_state import State
from tileq_engine.vllm import mirror_edit as edit
from tileq_engine.vllm.asked import Asked
from tileq_theory.iteration_time import IterationTime

_RUNNING = 2
_LEAST = 1 << 12
_NUMBERED = ("order_fcfs", "order_longest_prefix")  # orders that go by a request's number, at least now and then
_MOST_PRIORITY = (1 << 31) - 1


@dataclass(slots=True)
class Decision:
    """Who gets how many tokens of the next iteration, and whose blocks are taken back for it.

    `tokens` is in order of admission; a decode counts 1. `prefills` are those of them that are in their prefill.
    """

    tokens: dict[str, int] = field(default_factory=dict)
    preempted: list[str] = field(default_factory=list)
    prefills: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Coming:
    asked: Asked
    prompt_tokens: int
    output_tokens: int
    arrival_ps: int
    priority: int
    front: bool


class Mirror:
    """A policy's view of a vLLM engine.

    Parameters
    ----------
    policy, config
        As for `tileq_engine.Scheduler`; `config.kv_tokens` is vLLM's KV cache.
    time
        What a policy that plans with the iteration time is told of it.
    tenants
        Tenants that requests can name.
    capacity
        Requests that the tables hold at first; they are compacted, and grow, as requests come and go.

    Examples
    --------
    >>> from tileq_engine.registry import policy
    >>> mirror = Mirror(policy("sarathi"), EngineConfig(token_budget=64, kv_tokens=4096))
    >>> mirror.add("a", Asked(0.5, False), prompt_tokens=100, output_tokens=2)
    >>> mirror.decide(now_ps=0, free_blocks=256).tokens
    {'a': 64}
    >>> mirror.close(end_ps=10_000_000)
    []
    """

    def __init__(
        self,
        policy: Policy,
        config: EngineConfig,
        *,
        time: IterationTime | None = None,
        tenants: int = 1,
        capacity: int = _LEAST,
    ) -> None:
        self.rules = Scheduler(policy, config, capacity=capacity, time=time, tenants=tenants)
        self.names: list[str] = []  # by index
        self.index: dict[str, int] = {}
        self.open = False
        self.repaired = 0  # times that vLLM did otherwise than decided
        self._blind = policy.params.get("predictor") == "none"
        self._coming: dict[str, _Coming] = {}  # told of since the last decision
        memory = self.state.P.copy()  # a rule that takes turns is to begin with its first
        self.rules.decide(0)  # compiles, or loads, what a first request would otherwise wait for
        self.state.P[:] = memory

    @property
    def state(self) -> State:
        """The simulator's arrays."""
        return self.rules._state

    @property
    def now_ps(self) -> int:
        """The clock of the mirror: the end of the last iteration, or the instant of a later decision."""
        return self.rules.now_ps

    def __len__(self) -> int:
        """Return how many requests it holds."""
        return len(self.index) + len(self._coming)

    def __contains__(self, name: str) -> bool:
        return name in self.index or name in self._coming

    @property
    def residents(self) -> int:
        """Requests that hold a seat."""
        return self.state.scalar("nres")

    # ------------------------------------------------------------------ coming and going

    def add(
        self,
        name: str,
        asked: Asked,
        *,
        prompt_tokens: int,
        output_tokens: int,
        arrival_ps: int | None = None,
        priority: int = 0,
        front: bool = False,
    ) -> None:
        """Take in a request; `prompt_tokens` are those it has to compute. `front`: ahead of every other."""
        most = self.rules.config.kv_blocks * self.rules.config.block_tokens
        prompt = max(1, min(prompt_tokens, most))
        output = max(1, min(output_tokens, most - prompt + 1))
        at = self.now_ps if arrival_ps is None else arrival_ps
        urgency = max(-_MOST_PRIORITY, min(int(priority), _MOST_PRIORITY))  # no client's number may stop a server
        self._coming[name] = _Coming(asked, prompt, output, at, urgency, front)

    def _let_in(self, now_ps: int) -> None:
        """Hand the requests told of since the last decision to the rules."""
        rules, arrivals = self.rules, list[int]()
        for name, new in self._coming.items():
            if rules.count == rules.capacity:
                self._arrive(now_ps, arrivals)
                self._compact()
            predicted = new.asked.predicted_output_tokens
            i = rules.add(
                prompt_tokens=new.prompt_tokens,
                output_tokens=new.output_tokens,
                predicted_output_tokens=(0 if self._blind else new.output_tokens) if predicted is None else predicted,
                tbt_limit_s=new.asked.tbt_limit_s,
                priority=new.priority,
                paying=new.asked.paying,
                tenant=min(new.asked.tenant, rules.tenants - 1),
            )
            arrivals.append(new.arrival_ps)
            if new.front:
                edit.to_front(self.state, i)
            self.names.append(name)
            self.index[name] = i
        self._arrive(now_ps, arrivals)
        self._coming.clear()

    def _arrive(self, now_ps: int, arrivals: list[int]) -> None:
        """Announce the last `arrivals` of the table, who came before the clock that the rules count by."""
        rules = self.rules
        rules.arrive(now_ps)
        self.state.R["arrival"][rules.count - len(arrivals) : rules.count] = arrivals
        arrivals.clear()

    def leave(self, names: Iterable[str]) -> None:
        """Forget requests that have ended or were given up; names that are not here are passed over."""
        names = [name for name in names if self._coming.pop(name, None) is None]
        names = [name for name in names if name in self.index]
        for name in names:
            self._bring_forward(name)
        places = [self.index.pop(name) for name in names]
        if places:
            edit.leave(self.state, places, self.open)

    def progress(self, name: str, computed_tokens: int, produced_tokens: int) -> None:
        """Correct a resident's progress (several tokens of one speculative iteration): KV and tokens it has got."""
        edit.set_progress(self.state, self.index[name], computed_tokens, produced_tokens)

    def _compact(self) -> None:
        """Renumber the requests that are still here from 0 on; double the tables when those are half of them."""
        live = sorted(self.index.values())
        rules = self.rules
        numbered = rules.policy.rules_under(rules.config)["order"] in _NUMBERED
        rules.capacity = edit.compact(self.state, live, rules.capacity, numbered=numbered)
        rules._count = len(live)
        self.names = [self.names[i] for i in live]
        self.index = {name: i for i, name in enumerate(self.names)}

    # ------------------------------------------------------------------ an iteration

    def decide(self, now_ps: int, free_blocks: int) -> Decision:
        """Form the batch of the instant `now_ps`, with `free_blocks` free in vLLM's pool."""
        state = self.state
        now = max(now_ps, self.now_ps)
        if self._coming:
            self._let_in(now)
        if not self.index:  # as in a simulation: with nobody there, nobody's turn is spent
            self.rules.arrive(now)
            self.open = False
            return Decision()
        state.set_scalars({"free": free_blocks - edit.reserved_blocks(state)})
        lost: list[str] = []
        for _ in range(len(self.index) + 2):
            batch = self.rules.decide(now)
            lost += [self.names[i] for i in batch.preempted.tolist()]
            if len(batch) > 0 or len(batch.preempted) == 0:
                break  # a batch that only took back lets another in at once
        self.open = len(batch) > 0
        names = self.names
        chunks = batch.prefill_tokens.tolist()
        members = [names[i] for i in batch.ids.tolist()]
        tokens = {name: chunk or 1 for name, chunk in zip(members, chunks, strict=True)}
        return Decision(tokens, lost, [name for name, chunk in zip(members, chunks, strict=True) if chunk])

    def shape(self) -> tuple[int, int, int, int]:
        """Return what an iteration's time depends on: tokens, query-key pairs, KV tokens read, sequences."""
        prefill, decode, pairs2, kv, seqs = self.rules.facts("npre", "ndec", "pairs2", "kv", "seqs")
        return prefill + decode, pairs2 // 2, kv, seqs

    def settle(self, ran: Mapping[str, tuple[int, int]], dropped: Mapping[str, bool]) -> None:
        """Follow vLLM where it did otherwise than decided.

        `ran` has, for each request that vLLM runs differently, the tokens it computes now and those it has left to
        compute after that; `dropped` those that it does not run, and whether they still hold their blocks.
        """
        self.repaired += 1
        state = self.state
        for name, resident in dropped.items():
            if name in self.index:
                edit.drop(state, self.index[name], resident)
        for name, (tokens, left) in ran.items():
            if name in self.index:
                self._bring_forward(name)
                edit.run_as(state, self.index[name], tokens, left)
        edit.recount(state)
        members = state.scalar("ndec") + state.scalar("npre")
        self.open = members > 0
        self.rules._open = self.open

    def _bring_forward(self, name: str) -> None:
        """Let an announced request that no decision has seen yet count as seen: it will not be brought to the queue.

        That is so after an iteration left to vLLM; the others keep their order.
        """
        first, i = self.state.scalar("joined"), self.index[name]
        if i < first:
            return
        self.state.R[first : i + 1] = np.roll(self.state.R[first : i + 1], 1)
        self.names[first : i + 1] = [self.names[i], *self.names[first:i]]
        for k in range(first, i + 1):
            if self.names[k] in self.index:
                self.index[self.names[k]] = k
        self.state.set_scalars({"joined": first + 1})

    def owes(self, name: str, tokens: int) -> None:
        """Set what a waiting request has to compute: all its `tokens`, prompt and answer so far."""
        if name in self.index:
            i = self.index[name]
            self.state.R["prompt"][i] = max(1, tokens - int(self.state.R["gen"][i]))

    def blank(self, now_ps: int) -> None:
        """Open an empty batch at `now_ps`, for an iteration that vLLM forms by itself."""
        now = max(now_ps, self.now_ps)
        if self._coming:
            self._let_in(now)
        self.rules.arrive(now)
        edit.empty_batch(self.state)

    def unseat(self, name: str, prompt_tokens: int) -> None:
        """Put a resident whom vLLM has preempted back into the queue, with `prompt_tokens` to compute again."""
        if name in self.index:
            edit.unseat(self.state, self.index[name], front=True, tokens=prompt_tokens)

    def close(self, end_ps: int) -> list[str]:
        """End the open iteration at `end_ps`; return the requests that had their last token with it."""
        if not self.open:
            return []
        self.open = False
        duration = max(1, end_ps - self.now_ps)
        ended = [self.names[i] for i in self.rules.complete(duration).tolist()]
        for name in ended:
            del self.index[name]
        return ended

    def shift(self, end_ps: int, by_ps: int) -> None:
        """Move tokens that were taken to complete at `end_ps` by `by_ps`, now that it is known when they did."""
        edit.shift_tokens(self.state, end_ps, by_ps)

    # ------------------------------------------------------------------ looking at it

    def counts(self) -> dict[str, int]:
        """Return how many requests decode, prefill and wait."""
        state = self.state
        phases = state.B["phase"][state.O[: state.scalar("nres")]]
        return {
            "decoding": int(np.count_nonzero(phases == DECODE)),
            "prefilling": int(np.count_nonzero(phases == PREFILL)),
            "waiting": state.scalar("nwaiting"),
        }

    def set_scalars(self, values: Mapping[str, float]) -> None:
        """Change settings of the running policy: `budget`, `theta_lo`, `theta_hi` (thousandths)."""
        self.state.set_scalars(values)


def error_of(mirror: Mirror) -> PolicyError | None:
    """Return what the invariants say of the mirror's state, None when they hold."""
    return edit.broken(mirror.state)
