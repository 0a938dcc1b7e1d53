"""One decision at a time, for an executor with a clock of its own: the compiled rules of the simulator, unchanged."""

from __future__ import annotations

__all__ = ["Batch", "Scheduler"]

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from tileq_engine.clock import PS_PER_S
from tileq_engine.compile import bound_decision, compiled_kernels, entry_point, hook_for, plain_kernels
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.records import SCALAR_FIELDS
from tileq_engine.requests import Requests
from tileq_engine.scheduler_leave import cancel, end_early
from tileq_engine.simulator import policy_error
from tileq_engine.simulator_collect import Pairs, collect
from tileq_engine.simulator_result import RawRun
from tileq_engine.simulator_state import State, make_state
from tileq_theory.errors import InputError, nonnegative, positive_int
from tileq_theory.iteration_time import IterationTime

_PLACE = {name: place for place, (name, _) in enumerate(SCALAR_FIELDS)}
_NOBODY = np.zeros(0, dtype=np.int64)
_NONE = np.zeros(0, dtype=bool)
_KINDS = ("decodes", "order", "mixing", "admission", "eviction")


@dataclass(frozen=True, slots=True)
class Batch:
    """What to run now: members in order of admission; each has a chunk of its prompt or one decode.

    `context_tokens` is the KV a member has before this iteration. `preempted` are the requests whose blocks this
    decision has taken back, the last one first; `swapped` says whose KV is to be moved to the host, the others' is to
    be dropped.
    """

    ids: Int[np.ndarray, "member"]
    prefill_tokens: Int[np.ndarray, "member"]
    decode: Int[np.ndarray, "member"]
    context_tokens: Int[np.ndarray, "member"]
    preempted: Int[np.ndarray, "victim"]
    swapped: Bool[np.ndarray, "victim"]

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
    requests
        Requests known beforehand, each announced at its arrival: decisions are then those of `simulate`, rules that
        look at the requests before the run included. `capacity` is theirs unless it is larger.
    time
        What a policy that plans with the iteration time (theta, eb_plus) is told of it.
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
        capacity: int | None = None,
        requests: Requests | None = None,
        time: IterationTime | None = None,
        tenants: int = 1,
        python: bool = False,
    ) -> None:
        self.policy = policy
        self.config = policy.settings(config or EngineConfig())
        known = 0 if requests is None else len(requests)
        self.capacity = max(known, positive_int("capacity", capacity or known or 65_536))
        named = 1 if self.config.tenants is None else len(self.config.tenants.names)
        self.tenants = max(named, positive_int("tenants", tenants))
        if requests is not None and known:
            self.tenants = max(self.tenants, int(requests.tenant.max()) + 1)
        shape = requests or Requests.from_arrays(
            arrival_ps=[0], prompt_tokens=[1], output_tokens=[1], tenant=[self.tenants - 1]
        )
        compiled = not python
        kernels = compiled_kernels() if compiled else plain_kernels()
        self._state: State = make_state(
            shape,
            policy,
            time or IterationTime(),
            self.config if known else self.config.with_(gap_mode="histogram"),
            compiled=compiled,
            macro=False,
            capacity=self.capacity,
        )
        self._state.set_scalars({"n": known})
        self._flat = self._state.S.view(np.int64) if compiled else None  # every scalar has eight bytes
        self._pairs = Pairs()
        self._exact_gaps = self._state.scalar("gap_mode") == 0
        self._closed = self._drain = False
        self._last_arrival_ps = int(requests.arrival_ps[-1]) if requests is not None and known else 0
        rules = policy.rules_under(self.config)
        hooks = tuple(hook_for(kind, rules[kind], kernels) for kind in _KINDS)
        names = ("decide_at", "announce_at", "complete_at")
        decide, self._announce, self._complete = (entry_point(n) if compiled else kernels[n] for n in names)
        if compiled:
            self._decide = bound_decision(decide, hooks)
        else:
            self._decide = functools.partial(_plain_decision, decide, hooks)
        size = 6 * min(self.config.max_num_seqs, self.capacity)
        self._out = np.zeros(size, dtype=np.int64) if compiled else [0] * size
        self._count = known
        self._open = False

    def __len__(self) -> int:
        """Return the requests in the system."""
        return self._state.scalar("nsys")

    @property
    def now_ps(self) -> int:
        """The clock: the end of the last iteration, or the instant of a later decision."""
        return self.facts("now")[0]

    @property
    def count(self) -> int:
        """Requests added so far, those that have not arrived yet included."""
        return self._count

    @property
    def kv_blocks_used(self) -> int:
        """Blocks that the residents hold."""
        return self._state.scalar("total_blocks") - self._state.scalar("free")

    @property
    def next_arrival_ps(self) -> int | None:
        """When the next of the requests added arrives; None when all have."""
        s = self._state
        place = s.scalar("next")
        if place >= s.scalar("n"):
            return None
        return int(s.R["arrival"][place]) if s.compiled else int(s.R[place].arrival)

    @property
    def next_event_ps(self) -> int | None:
        """When something can change while nothing runs: the next arrival, or the moment a rule waits for; else None."""
        wake = self._state.scalar("wake")
        arrival = self.next_arrival_ps
        times = [t for t in (arrival, wake if wake > self.now_ps else None) if t is not None]
        return min(times, default=None)

    def facts(self, *names: str) -> list[int]:
        """Return integers of the scalar record (`records.SCALAR_FIELDS`) by name, for tables and logs."""
        if self._flat is None:
            return [self._state.scalar(name) for name in names]
        found: list[int] = self._flat[_places(names)].tolist()
        return found

    def latencies_s(self, recent: int) -> tuple[float | None, float | None]:
        """Return median TTFT and median largest gap of the requests announced last, `recent` of them; None without."""
        upto = self._state.scalar("next")
        first = self._state.column("first", max(0, upto - recent), upto)
        arrival = self._state.column("arrival", max(0, upto - recent), upto)
        gap = self._state.column("max_gap", max(0, upto - recent), upto)
        ttft, gaps = (first - arrival)[first >= 0], gap[gap > 0]
        return (
            float(np.median(ttft)) / PS_PER_S if ttft.size else None,
            float(np.median(gaps)) / PS_PER_S if gaps.size else None,
        )

    def on_device(self) -> tuple[Int[np.ndarray, "resident"], Int[np.ndarray, "resident"]]:
        """Return the residents and the tokens of each whose KV is on the device."""
        s = self._state
        seats = [int(s.O[k]) for k in range(s.scalar("nres"))]
        rows = [(s.B[at]["id"], s.B[at]["cached"]) if s.compiled else (s.B[at].id, s.B[at].cached) for at in seats]
        pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def on_host(self) -> tuple[Int[np.ndarray, "request"], Int[np.ndarray, "request"]]:
        """Return the waiting requests, and the tokens of each, whose KV is in host memory."""
        cached = self._state.column("cached")
        return np.flatnonzero(cached), cached[cached > 0]

    def close(self) -> None:
        """Tell that nobody is to be added any more: once all have arrived, rules that wait for company stop waiting."""
        self._closed = True

    def turn_away(self) -> int:
        """Forget the requests that have not arrived yet, and take no more; return how many there were."""
        s = self._state
        left = s.scalar("n") - s.scalar("next")
        s.set_scalars({"n": s.scalar("next")})
        self._closed, self._last_arrival_ps = True, 0
        return left

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
        self._last_arrival_ps = fields["arrival"]
        self._count += 1
        self._state.set_scalars({"n": self._count})
        return i

    def arrive(self, now_ps: int) -> int:
        """Move the clock to `now_ps`, let in whoever has arrived by then; return the requests in the system."""
        return int(self._announce(self._state.R, self._state.S, now_ps))

    def decide(self, now_ps: int) -> Batch:
        """Form the batch of the instant `now_ps` (not before the last completion)."""
        if self._open:
            raise InputError("decide was called twice; complete the batch first")
        if self._closed and self._drain != (self._last_arrival_ps <= now_ps):
            self._drain = not self._drain
            self._state.set_scalars({"drain": int(self._drain)})
        members = int(self._decide(*self._state.decision, self._out, now_ps))
        if members < 0:
            raise policy_error(self._state, self.policy, None)
        self._open = members > 0
        rows = np.array(self._out[: 4 * members], dtype=np.int64).reshape(members, 4).T.copy()
        lost = self.facts("npreempt")[0]
        if lost == 0:
            return Batch(rows[0], rows[1], rows[2], rows[3], _NOBODY, _NONE)
        victims = np.array(self._out[4 * members : 4 * members + lost], dtype=np.int64)
        return Batch(rows[0], rows[1], rows[2], rows[3], victims, self._state.held_on_host(victims))

    def end_early(self, ids: Int[np.ndarray, "ended"]) -> None:
        """Tell that these members of the open batch end with the token it gives them, before their limit."""
        if not self._open:
            raise InputError("end_early was called without a batch; decide first")
        for i in ids.tolist():
            end_early(self._state, int(i))

    def cancel(self, request: int) -> None:
        """Take a request out of the system, wherever it is; its blocks are free again."""
        if self._open:
            raise InputError("cancel was called with an open batch; complete it first")
        cancel(self._state, request)

    def complete(self, duration_ps: int) -> Int[np.ndarray, "finished"]:
        """Tell that the batch has run and took `duration_ps`; return the ids of requests that ended with it."""
        if not self._open:
            raise InputError("complete was called without a batch; decide first")
        self._open = False
        s = self._state
        if self._exact_gaps:
            pairs, residents, cap = self.facts("npairs", "nres", "pairs_cap")
            if pairs + residents + 8 > cap - 64:
                self._pairs.flush(s)
        if self.config.watch and s.scalar("ncauses") + 2 > s.scalar("causes_cap"):
            self._pairs.flush(s)
        ended = int(self._complete(s.R, s.B, s.S, s.O, s.P, s.GS, s.GP, s.GH, s.GC, self._out, duration_ps))
        done: np.ndarray = np.array(self._out[:ended], dtype=np.int64)
        return done

    def requests(self) -> Requests:
        """Return the requests added so far, each with its limit (the length it had, where it ended early)."""
        fields = {
            "arrival_ps": "arrival",
            "prompt_tokens": "prompt",
            "output_tokens": "output",
            "predicted_output_tokens": "predicted",
            "class_index": "cls",
            "priority": "priority",
            "tbt_limit_ps": "limit",
            "paying": "paying",
            "tenant": "tenant",
        }
        columns = {name: self._state.column(field, 0, self._count) for name, field in fields.items()}
        return Requests.from_arrays(**{**columns, "paying": columns["paying"] > 0})

    def raw_run(self, requests: Requests, stop_reason: str, time: IterationTime, mode: str) -> RawRun:
        """Return what has happened so far as a raw result (no samples, no trace); `requests` are those added."""
        return collect(self._state, self._pairs, stop_reason, requests, self.policy, self.config, time, mode)


@functools.cache
def _places(names: tuple[str, ...]) -> Int[np.ndarray, "name"]:
    """Return where these fields stand in the scalar record."""
    return np.array([_PLACE[name] for name in names], dtype=np.int64)


def _plain_decision(decide: Any, hooks: tuple[Any, ...], *arguments: Any) -> Any:
    return decide(*arguments, *hooks)
