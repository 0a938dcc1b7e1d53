"""The engine's settings: budget, slots, memory, convention, bounds and what is recorded."""

from __future__ import annotations

__all__ = ["EngineConfig"]

from dataclasses import dataclass, replace
from typing import Any, Literal

from tileq_engine.backpressure import Backpressure, TbtControl
from tileq_engine.clock import to_ps
from tileq_engine.tenants import Tenants
from tileq_theory.conventions import TokenConvention
from tileq_theory.errors import (
    InputError,
    boolean,
    choice,
    finite,
    instance,
    nonnegative,
    nonnegative_int,
    positive_int,
)

Preemption = Literal["recompute", "swap", "none"]
Oversize = Literal["reject", "wait"]
GapMode = Literal["auto", "exact", "histogram"]
Reservation = Literal["policy", "optimistic", "prompt", "conservative"]
_MANY = 2**31 - 2


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine instance.

    Parameters
    ----------
    token_budget
        Tokens of one iteration (vLLM: max_num_batched_tokens).
    max_num_seqs
        Residents at most.
    kv_tokens
        KV capacity, tokens; whole blocks of it are used. None: unbounded.
    block_tokens
        Tokens of one KV block.
    watermark
        Share of the blocks that an admission must leave free, in [0, 1).
    convention
        "engine": the last prefill chunk emits the first token; "paper": every output token is a decode step.
    preemption
        "recompute", "swap" (decoding victims travel to host memory), or "none" (a decode without a block waits,
        and a higher priority takes nothing from anybody).
    swap_token_s
        Seconds to move the KV of one token to or from the host.
    queue_limit
        An arrival that finds so many requests in the system is rejected; None: none is.
    max_model_tokens
        Requests with prompt + output beyond it are rejected; None: no limit.
    stop_time_s, stop_backlog, stop_iterations
        Bounds of a run: simulated seconds, requests in the system, iterations. The run ends with that reason.
    oversize
        What a whole-prompt policy does with a prompt longer than the token budget: "reject" it, or let it "wait" for
        ever at the head of the queue, as the published models do (they "freeze").
    check
        Recompute every invariant at every iteration.
    trace_limit
        Entries (one a batch member) of the trace kept; 0 for none. A traced run is stepped.
    sample_limit
        Samples of iterations kept; beyond it every second one is dropped.
    gap_mode
        "exact": pairs (gap, count); "histogram": 128 bins an octave; "auto": exact up to 100 000 requests.
    gap_from_s, gap_to_s
        Only tokens that complete in this window enter the gap distributions (cut of the warm-up).
    prefix_cache
        Keep the KV of full blocks and let later requests with the same prefix begin behind it (`Requests.blocks`).
    policy_seed
        Seed of what a policy draws for itself (the errors of a predictor); replications differ in it.
    reservation
        Blocks a request takes when it is admitted: what the "policy" says; "optimistic": those of its first chunk, the
        others as they are needed; "prompt": those of its prompt, with the watermark left free; "conservative": those of
        its prompt and predicted output.
    tenants
        Tenants with weights, quotas, priorities and deadlines; with them a run keeps every tenant's account.
    backpressure
        What is done to arrivals, or to the budget, while the queue or the cache is full; None: arrivals wait.
    control
        Moves the token budget at every iteration so that TBT keeps its limit; None: the budget stands.
    watch
        Name what stands in the way of waiting requests at every iteration, with the time for which it did.
    """

    token_budget: int = 512
    max_num_seqs: int = 128
    kv_tokens: int | None = None
    block_tokens: int = 16
    watermark: float = 0.0
    convention: TokenConvention = "engine"
    preemption: Preemption = "recompute"
    swap_token_s: float = 0.0
    queue_limit: int | None = None
    max_model_tokens: int | None = None
    stop_time_s: float | None = None
    stop_backlog: int | None = None
    stop_iterations: int | None = None
    check: bool = False
    trace_limit: int = 0
    sample_limit: int = 4096
    oversize: Oversize = "reject"
    gap_mode: GapMode = "auto"
    gap_from_s: float = 0.0
    gap_to_s: float | None = None
    policy_seed: int = 0
    prefix_cache: bool = False
    reservation: Reservation = "policy"
    tenants: Tenants | None = None
    backpressure: Backpressure | None = None
    control: TbtControl | None = None
    watch: bool = False

    def __post_init__(self) -> None:
        for name in ("token_budget", "max_num_seqs", "block_tokens", "sample_limit"):
            object.__setattr__(self, name, _int_in(name, getattr(self, name)))
        for name in ("kv_tokens", "queue_limit", "max_model_tokens", "stop_backlog"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, positive_int(name, getattr(self, name)))
        if self.stop_iterations is not None:
            object.__setattr__(self, "stop_iterations", positive_int("stop_iterations", self.stop_iterations))
        if self.sample_limit < 2:
            raise InputError(f"sample_limit is {self.sample_limit}; expected 2 or more")
        if not 0 <= finite("watermark", self.watermark) < 1:
            raise InputError(f"watermark is {self.watermark!r}; expected a share in [0, 1)")
        if self.kv_tokens is not None and self.kv_tokens < self.block_tokens:
            raise InputError(
                f"kv_tokens is {self.kv_tokens}; expected at least one block of {self.block_tokens} tokens"
            )
        _one_of("convention", self.convention, ("engine", "paper"))
        _one_of("preemption", self.preemption, ("recompute", "swap", "none"))
        _one_of("oversize", self.oversize, ("reject", "wait"))
        _one_of("gap_mode", self.gap_mode, ("auto", "exact", "histogram"))
        nonnegative_int("trace_limit", self.trace_limit)
        object.__setattr__(self, "policy_seed", nonnegative_int("policy_seed", self.policy_seed))
        _one_of("reservation", self.reservation, ("policy", "optimistic", "prompt", "conservative"))
        for name, kind in (("tenants", Tenants), ("backpressure", Backpressure), ("control", TbtControl)):
            if getattr(self, name) is not None:
                instance(name, getattr(self, name), kind)
        boolean("watch", self.watch)
        boolean("check", self.check)
        boolean("prefix_cache", self.prefix_cache)
        to_ps("swap_token_s", self.swap_token_s)
        nonnegative("gap_from_s", self.gap_from_s)
        for name in ("stop_time_s", "gap_to_s"):
            if getattr(self, name) is not None:
                to_ps(name, getattr(self, name))
        if self.gap_to_s is not None and self.gap_to_s < self.gap_from_s:
            raise InputError(
                f"gap_to_s is {self.gap_to_s!r}, before gap_from_s {self.gap_from_s!r}; no gap would count"
            )

    @property
    def kv_blocks(self) -> int:
        """Blocks of the KV cache (a number that no run can exhaust when unbounded)."""
        return _MANY if self.kv_tokens is None else min(self.kv_tokens // self.block_tokens, _MANY)

    @property
    def is_plain(self) -> bool:
        """Whether a run has no tenants, backpressure, control or watch, and the policy's own reservation."""
        asked = (self.tenants, self.backpressure, self.control)
        return all(item is None for item in asked) and not self.watch and self.reservation == "policy"

    @property
    def pins_steps(self) -> bool:
        """Whether every iteration must be stepped: the pressure on the cache, or the budget, may change at each."""
        asked = self.backpressure
        if self.control is not None:
            return True
        return asked is not None and asked.action != "hold" and (asked.action == "shrink" or asked.kv_share is not None)

    def with_(self, **changes: Any) -> EngineConfig:
        """Return a copy with the named settings changed."""
        return replace(self, **changes)


def _int_in(name: str, value: float) -> int:
    number = positive_int(name, value)
    if number > _MANY:
        raise InputError(f"{name} is {value!r}; expected at most {_MANY}")
    return number


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    choice(name, value, known)
