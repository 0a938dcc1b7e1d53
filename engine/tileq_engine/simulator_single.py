"""A server that is given one whole request at a time: the classic FCFS queue, without the engine's records.

The general loop keeps a record of 160 bytes a request and asks five rules at every iteration. Where no rule has a
choice it need not: `is_single` says so when

* the mixing rule is one that serves whole prompts in order of arrival (chunked, in order, exclusive), with the
  library's own decode and admission rules, no quota, no reserve of predicted tokens and nothing prepared;
* there is one slot, each request's prompt fits the token budget, and its only token comes with it (convention
  "engine", output 1), so that an iteration is a service;
* nobody can be rejected (no queue limit, every request within max_model_tokens and the cache), nobody arrives with
  KV, no bound can end the run early, the clock's own end included, and neither check nor trace is asked for.

Then a run is the Lindley recursion on the integer clock (`simulator_single_loop`), and its result the same to the
bit, samples, areas and counters included, as that of the general loop; mode "stepped" always runs the latter.
"""

from __future__ import annotations

__all__ = ["is_single", "simulate_single"]

from collections.abc import Callable

import numpy as np
from jaxtyping import Int

from tileq_engine.clock import coefficients
from tileq_engine.compile import entry_point
from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.records import STATUS
from tileq_engine.requests import Requests
from tileq_engine.simulator_collect import Pairs, collect
from tileq_engine.simulator_result import RawRun
from tileq_engine.simulator_state import make_state
from tileq_theory.iteration_time import IterationTime

_MIXING = ("mix_chunked", "mix_in_order", "mix_exclusive")
_ADMISSION = ("admit_watermark", "admit_chunk", "admit_always")
_HARMLESS = ("alloc", "whole", "to_front", "dynamic")  # scalars of a policy that the loop accounts for


def is_single(requests: Requests, policy: Policy, time: IterationTime, config: EngineConfig) -> bool:
    """Return whether the run is one of a server that serves whole requests one by one, in order of arrival.

    `config` holds the policy's own budget and slots already.

    Examples
    --------
    >>> from tileq_engine.registry import policy
    >>> asked = Requests.from_arrays(arrival_s=[0.0, 1.0], prompt_tokens=[5, 9], output_tokens=[1, 1])
    >>> one_slot = EngineConfig(token_budget=9, max_num_seqs=1)
    >>> [is_single(asked, policy(name), IterationTime(), one_slot) for name in ("sarathi", "sjf")]
    [True, False]
    """
    rules, scalars = policy.rules, policy.scalars
    return (
        config.max_num_seqs == 1
        and config.convention == "engine"
        and not config.check
        and not (config.prefix_cache and requests.blocks is not None)
        and config.trace_limit == 0
        and config.is_plain
        and config.queue_limit is config.stop_time_s is config.stop_backlog is config.stop_iterations is None
        and rules["mixing"] in _MIXING
        and rules["order"] == "order_fcfs"
        and rules["admission"] in _ADMISSION
        and not policy.own_rules
        and all(name in _HARMLESS for name in scalars)
        and scalars.get("alloc", 0) != 2
        and scalars.get("dynamic", 0) == 0
        and len(requests) > 0
        and int(requests.output_tokens.max()) == 1
        and _longest(config) >= int(requests.prompt_tokens.max())
        and not requests.prefilled_tokens.any()
        and _ends_within_the_clock(requests, time)
        and _prepares_nothing(requests, policy, time, config)
    )


def _ends_within_the_clock(requests: Requests, time: IterationTime) -> bool:
    """Return whether the clock cannot end before the run: by a bound of the sum of all services, busy all the time."""
    c, w, a, b, beta, e, k, s = coefficients(time)
    n, lengths = len(requests), requests.prompt_tokens.astype(float)
    tokens = float(lengths.sum())
    services = n * (c + w + a + s + 1.0) + (a / b + beta + k) * tokens + e * (float(lengths @ lengths) + tokens) / 2.0
    return float(requests.arrival_ps[-1]) + services < 2.0**62


def _longest(config: EngineConfig) -> int:
    """Return the tokens of the longest prompt that nothing turns away and one iteration serves."""
    length = config.token_budget if config.max_model_tokens is None else config.max_model_tokens - 1
    return min(length, config.token_budget, config.kv_blocks * config.block_tokens)


def _prepares_nothing(requests: Requests, policy: Policy, time: IterationTime, config: EngineConfig) -> bool:
    if policy.prepare is None:
        return True
    made = policy.prepare(policy, requests, time, config)
    return made.requests is requests and not made.scalars and not made.integers


def simulate_single(
    requests: Requests,
    policy: Policy,
    time: IterationTime,
    config: EngineConfig,
    progress: Callable[[int, int], None] | None = None,
) -> RawRun:
    """Run what `is_single` has accepted; arguments and result as those of `simulate`."""
    state = make_state(requests, policy, time, config, compiled=True, macro=True, records=False)
    n = len(requests)
    admit, finish = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    loop = entry_point("run_single")
    loop(state.S, _whole(requests.arrival_ps), _whole(requests.prompt_tokens), state.SA, admit, finish)
    if progress is not None:
        progress(n, n)
    once, ended = np.ones(n, dtype=np.int64), np.full(n, STATUS.index("finished"), dtype=np.int64)
    preempted, recomputed, swapped, max_gap, over, reason = (np.zeros(n, dtype=np.int64) for _ in range(6))
    # the prefill's end, the first token and the last are one instant, and one array
    told = requests.predicted_output_tokens
    columns = [admit, finish, finish, finish, once, preempted, told, recomputed, swapped, max_gap, over, ended, reason]
    return collect(state, Pairs(), "finished", requests, policy, config, time, "compiled", columns)


def _whole(values: Int[np.ndarray, "request"]) -> Int[np.ndarray, "request"]:
    """Return the values as the compiled loop takes them: int64, in one piece, writable (they are not written)."""
    whole: np.ndarray = np.require(values, np.int64, ["C", "W"])
    return whole
