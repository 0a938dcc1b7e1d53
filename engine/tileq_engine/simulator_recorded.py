"""The simulator on recorded iteration times: iteration k takes what it took, whatever its batch.

The event loop is the simulator's own, in plain Python; only the one function that turns a batch into a duration is
replaced. With the durations of a real run it must form the same batches at the same instants, to the picosecond.
"""

from __future__ import annotations

__all__ = ["simulate_recorded"]

from typing import Any

import numpy as np
from jaxtyping import Int

from tileq_engine.compile import Kernels, fresh_plain_kernels, hook_for
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.records import STOPS
from tileq_engine.requests import Requests
from tileq_engine.simulator import drive
from tileq_engine.simulator_collect import Pairs, collect
from tileq_engine.simulator_result import RawRun
from tileq_engine.simulator_state import make_state
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import Provenance


def simulate_recorded(
    requests: Requests,
    policy: Policy,
    durations_ps: Int[np.ndarray, "iteration"],
    config: EngineConfig | None = None,
    time: IterationTime | None = None,
) -> RawRun:
    """Run `requests` through `policy`, the k-th iteration taking `durations_ps[k]` (swapping included).

    Parameters
    ----------
    durations_ps
        Picoseconds, above 0; the run ends with the last of them, "iterations", unless it has finished.
    time
        What a policy that plans with the iteration time (theta, eb_plus) was told of it.

    Examples
    --------
    >>> from tileq_engine.registry import policy
    >>> asked = Requests.from_arrays(arrival_s=[0.0], prompt_tokens=[100], output_tokens=[3])
    >>> run = simulate_recorded(asked, policy("sarathi"), np.array([5, 7, 9]))
    >>> run.stop_reason, int(run.first_token_ps[0]), int(run.finish_ps[0])
    ('finished', 5, 21)
    """
    took = np.asarray(durations_ps, dtype=np.int64)
    if took.size and int(took.min()) < 1:
        raise InputError(f"iteration {int(np.argmin(took))} took {int(took.min())} ps; expected more than 0")
    bound = took.size if config is None or config.stop_iterations is None else min(took.size, config.stop_iterations)
    settings = policy.settings(config or EngineConfig()).with_(swap_token_s=0.0)
    if bound:
        settings = settings.with_(stop_iterations=bound)
    kernels = _kernels(took)
    time = time or IterationTime(provenance=Provenance("measured", f"{took.size} recorded iterations"))
    state = make_state(requests, policy, time, settings, compiled=False, macro=False)
    rules = policy.rules
    if settings.preemption == "none":
        rules["eviction"] = "evict_none"
    kinds = ("decodes", "order", "mixing", "admission", "eviction")
    hooks = tuple(hook_for(kind, rules[kind], kernels) for kind in kinds)
    pairs = Pairs()
    code = drive(kernels["run_until"], state, hooks, pairs, policy, requests, None)
    reason = "finished" if state.scalar("nsys") == 0 and state.scalar("next") == state.scalar("n") else STOPS[code]
    return collect(state, pairs, reason, requests, policy, settings, time, "recorded")


def _kernels(durations: Int[np.ndarray, "iteration"]) -> Kernels:
    """Return plain kernels of one's own in which an iteration's time is read from the record."""
    kernels = fresh_plain_kernels()
    recorded = iter(durations.tolist())

    def duration_ps(*batch: Any) -> int:
        return int(next(recorded))

    kernels["run_until"].__globals__["duration_ps"] = duration_ps
    return kernels
