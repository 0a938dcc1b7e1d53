"""One decision at a time, for an executor with a clock of its own: the compiled rules of the simulator, unchanged."""

from __future__ import annotations

__all__ = ["Batch", "Scheduler"]

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.compile import bound_decision, compiled_kernels, entry_point, hook_for, plain_kernels
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import policy_error
from tileq_engine.simulator_state import make_state
from tileq_theory.errors import InputError, nonnegative, positive_int
from tileq_theory.iteration_time import IterationTime

_KINDS = ("decodes", "order", "mixing", "admission", "eviction")


@dataclass(frozen=True, slots=True)
class Batch:
    """What to run now: members in order of admission; each has a chunk of its prompt or one decode.

    `context_tokens` is the KV a member has before this iteration. `preempted` are the requests whose blocks this
    decision has taken back, the last one first: their KV is to be dropped, or moved to the host under swap.
    """

    ids: Int[np.ndarray, "member"]
    prefill_tokens: Int[np.ndarray, "member"]
    decode: Int[np.ndarray, "member"]
    context_tokens: Int[np.ndarray, "member"]
    preempted: Int[np.ndarray, "victim"]

    def __len__(self) -> int:
        return len(self.ids)


class Scheduler:
    """A policy driven by hand: `add` requests, `decide` a batch, run it, `complete` it.

    Parameters
    ----------
    policy, config
        As for `simulate`.
    capacity
        Requests that can be added in all; the arrays are allocated once.
    tenants
        Tenants that requests can name (0, 1, ...), for a policy with a tenant quota.
    python
        Uncompiled, for debugging.

    Examples
    --------
    >>> from tileq_engine.registry import policy
    >>> s = Scheduler(policy("sarathi"), EngineConfig(token_budget=64), capacity=4, python=True)
    >>> s.add(prompt_tokens=100, output_tokens=2)
    0
    >>> s.decide(now_ps=0).prefill_tokens.tolist()
    [64]
    >>> s.complete(duration_ps=10_000_000).tolist()
    []
    """

    def __init__(
        self,
        policy: Policy,
        config: EngineConfig | None = None,
        *,
        capacity: int = 65_536,
        groups: int = 1,
        tenants: int = 1,
        python: bool = False,
    ) -> None:
        self.policy = policy
        self.config = policy.settings(config or EngineConfig())
        self.capacity = positive_int("capacity", capacity)
        self.tenants = positive_int("tenants", tenants)
        shape = Requests.from_arrays(arrival_ps=[0], prompt_tokens=[1], output_tokens=[1], tenant=[self.tenants - 1])
        compiled = not python
        kernels = compiled_kernels() if compiled else plain_kernels()
        self._state = make_state(
            shape,
            policy,
            IterationTime(),
            self.config.with_(gap_mode="histogram"),
            compiled=compiled,
            macro=False,
            capacity=self.capacity,
        )
        self._state.set_scalars({"n": 0})
        rules = policy.rules
        if self.config.preemption == "none":
            rules["eviction"] = "evict_none"
        hooks = tuple(hook_for(kind, rules[kind], kernels) for kind in _KINDS)
        decide, self._complete = (entry_point(n) if compiled else kernels[n] for n in ("decide_at", "complete_at"))
        if compiled:
            self._decide = bound_decision(decide, hooks)
        else:
            self._decide = functools.partial(_plain_decision, decide, hooks)
        size = 6 * min(self.config.max_num_seqs, self.capacity)
        self._out = np.zeros(size, dtype=np.int64) if compiled else [0] * size
        self._count = 0
        self._open = False

    def __len__(self) -> int:
        """Return the requests in the system."""
        return self._state.scalar("nsys")

    @property
    def kv_blocks_used(self) -> int:
        """Blocks that the residents hold."""
        return self._state.scalar("total_blocks") - self._state.scalar("free")

    def add(
        self,
        *,
        prompt_tokens: int,
        output_tokens: int,
        arrival_ps: int | None = None,
        predicted_output_tokens: int | None = None,
        tbt_limit_s: float = 0.0,
        priority: int = 0,
        class_index: int = 0,
        paying: bool = False,
        tenant: int = 0,
    ) -> int:
        """Announce a request; return its id (0, 1, 2, ...). `output_tokens` is its limit."""
        if self._count == self.capacity:
            raise InputError(f"the scheduler has taken its {self.capacity} requests; make one with more capacity")
        if not 0 <= tenant < self.tenants:
            raise InputError(f"tenant is {tenant!r}; the scheduler was made for tenants 0 to {self.tenants - 1}")
        i = self._count
        output = positive_int("output_tokens", output_tokens)
        now = self._state.scalar("now")
        fields = {
            "arrival": now if arrival_ps is None else max(int(arrival_ps), now),
            "prompt": positive_int("prompt_tokens", prompt_tokens),
            "output": output,
            "predicted": output if predicted_output_tokens is None else int(predicted_output_tokens),
            "limit": round(nonnegative("tbt_limit_s", tbt_limit_s) * PS_PER_S),
            "priority": int(priority),
            "cls": int(class_index),
            "paying": int(paying),
            "tenant": int(tenant),
        }
        self._state.set_request(i, fields)
        self._count += 1
        self._state.set_scalars({"n": self._count})
        return i

    def decide(self, now_ps: int) -> Batch:
        """Form the batch of the instant `now_ps` (not before the last completion)."""
        if self._open:
            raise InputError("decide was called twice; complete the batch first")
        members = int(self._decide(*self._state.decision, self._out, now_ps))
        if members < 0:
            raise policy_error(self._state, self.policy, None)
        self._open = members > 0
        rows = np.array(self._out[: 4 * members], dtype=np.int64).reshape(members, 4).T
        lost = self._state.scalar("npreempt")
        victims = np.array(self._out[4 * members : 4 * members + lost], dtype=np.int64)
        return Batch(rows[0], rows[1], rows[2], rows[3], victims)

    def complete(self, duration_ps: int) -> Int[np.ndarray, "finished"]:
        """Tell that the batch has run and took `duration_ps`; return the ids of requests that ended with it."""
        if not self._open:
            raise InputError("complete was called without a batch; decide first")
        self._open = False
        s = self._state
        ended = int(self._complete(s.R, s.B, s.S, s.O, s.P, s.GS, s.GP, s.GH, s.GC, self._out, duration_ps))
        done: np.ndarray = np.array(self._out[:ended], dtype=np.int64)
        return done


def _plain_decision(decide: Any, hooks: tuple[Any, ...], *arguments: Any) -> Any:
    return decide(*arguments, *hooks)
