r"""The classic queues as settings of the engine: a request's prompt is its service time, one tick a token.

With an `IterationTime` of one tick per token, a budget that takes a prompt whole and one slot, an iteration is a
service: the FCFS or SJF queue. With everybody resident and one token of budget an iteration is a tick, and PSJF and
SRPT preempt between ticks (macro-steps leap over them). A single iteration takes all that wait in the queue of
dynamic batching. Nothing here is a second simulator.
"""

from __future__ import annotations

__all__ = ["QueueSetting", "dynamic_batching", "priority_queue", "single_server", "ticks"]

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import Mode, RawRun, simulate
from tileq_theory.errors import InputError, near_matches, positive
from tileq_theory.iteration_time import IterationTime

_DISCIPLINES = ("fcfs", "sjf", "psjf", "srpt")
_WIDE = 2**31 - 2


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """Requests, policy, time and settings that make the engine the queue of that name; `run()` runs it."""

    name: str
    requests: Requests
    policy: Policy
    time: IterationTime
    config: EngineConfig

    def run(self, mode: Mode = "compiled") -> RawRun:
        """Simulate it."""
        return simulate(self.requests, self.policy, self.time, self.config, mode=mode)


def ticks(service_s: Float[np.ndarray, "request"], tick_s: float) -> Int[np.ndarray, "request"]:
    """Return service times in whole ticks, at least 1."""
    values = np.asarray(service_s, dtype=float)
    if values.size and (not np.all(np.isfinite(values)) or values.min() < 0):
        raise InputError("service times hold a negative or not a finite number; expected seconds of 0 or more")
    whole: np.ndarray = np.maximum(np.rint(values / positive("tick_s", tick_s)), 1).astype(np.int64)
    if whole.size and whole.max() > _WIDE:
        raise InputError(f"a service takes {whole.max()} ticks of {tick_s} s; choose a longer tick")
    return whole


def single_server(
    arrival_s: Float[np.ndarray, "request"],
    service_s: Float[np.ndarray, "request"],
    *,
    discipline: str = "fcfs",
    places: int | None = None,
    tick_s: float | None = None,
    **recorded: Any,
) -> QueueSetting:
    """Return the single-server queue: M/M/1, M/D/1, M/G/1 by what the arrays hold, M/M/1/K with `places` = K.

    Parameters
    ----------
    arrival_s, service_s
        Seconds.
    discipline
        "fcfs", "sjf" (not preemptive), "psjf", "srpt" (preemptive resume, between ticks).
    places
        Requests in the system at most, the one in service included; others are turned away.
    tick_s
        Resolution of service times; a millionth of their mean unless given.
    recorded
        Further settings of `EngineConfig`.

    Examples
    --------
    >>> q = single_server(np.array([0.0, 0.1, 0.2]), np.array([1.0, 2.0, 0.5]), discipline="sjf", tick_s=0.01)
    >>> (q.run("python").finish_ps / 1e12).tolist()
    [1.0, 3.5, 1.5]
    """
    if discipline not in _DISCIPLINES:
        raise InputError(
            f"discipline {discipline!r} is unknown; {near_matches('disciplines', discipline, _DISCIPLINES)}"
        )
    service = np.asarray(service_s, dtype=float)
    tick = tick_s if tick_s is not None else float(service.mean()) * 1e-6 if service.size else 1e-6
    prompt = ticks(service, tick)
    asked = Requests.from_arrays(arrival_s=arrival_s, prompt_tokens=prompt, output_tokens=np.ones_like(prompt))
    preemptive = discipline in ("psjf", "srpt")
    rule = policy(discipline) if preemptive else policy("sarathi", order="spf" if discipline == "sjf" else "fcfs")
    config = EngineConfig(
        token_budget=1 if preemptive else _WIDE,
        max_num_seqs=(places or max(len(asked), 1)) if preemptive else 1,
        queue_limit=places,
        **recorded,
    )
    return QueueSetting(f"single server, {discipline}", asked, rule, IterationTime(token_s=tick), config)


def priority_queue(
    arrival_s: Float[np.ndarray, "request"],
    service_s: Float[np.ndarray, "request"],
    urgency: Int[np.ndarray, "request"],
    *,
    tick_s: float | None = None,
    **recorded: Any,
) -> QueueSetting:
    """Return the non-preemptive priority queue: lower `urgency` first, in order of arrival within a class."""
    service = np.asarray(service_s, dtype=float)
    tick = tick_s if tick_s is not None else float(service.mean()) * 1e-6 if service.size else 1e-6
    prompt = ticks(service, tick)
    least = int(np.min(urgency)) if len(urgency) else 0
    asked = Requests.from_arrays(
        arrival_s=arrival_s,
        prompt_tokens=prompt,
        output_tokens=np.ones_like(prompt),
        priority=urgency,
        class_index=np.asarray(urgency) - least,
    )
    rule = policy("priority", preemptive=False, base="sarathi")
    config = EngineConfig(token_budget=_WIDE, max_num_seqs=1, **recorded)
    return QueueSetting("priority, not preemptive", asked, rule, IterationTime(token_s=tick), config)


def dynamic_batching(
    arrival_s: Float[np.ndarray, "request"],
    *,
    alpha_s: float,
    tau0_s: float,
    largest: int | None = None,
    **recorded: Any,
) -> QueueSetting:
    """Return the dynamic batching queue: the server takes all that wait, B of them for alpha*B + tau0 (Inoue).

    Parameters
    ----------
    alpha_s, tau0_s
        Seconds a request and seconds a batch (arXiv 1912.06322).
    largest
        Requests of a batch at most; None for all.
    """
    asked = Requests.from_arrays(arrival_s=arrival_s, prompt_tokens=np.ones(len(arrival_s)), output_tokens=1)
    time = IterationTime(launch_s=tau0_s, token_s=alpha_s)
    slots = largest or max(len(asked), 1)
    config = EngineConfig(token_budget=max(slots, 1), max_num_seqs=slots, **recorded)
    return QueueSetting("dynamic batching", asked, policy("vllm_v0"), time, config)
