r"""What a finite population leaves of a bound: the rate that work-conserving mixing attains with one token budget.

The capacity program lets every row be full all the time. A node with N residents cannot keep two rows full at once:
prompts come in lumps, so at times every resident decodes and nobody's prompt is there to fill the batch, and at times
prompts wait for their turn in it and their slots and memory decode nothing. Where batch and memory (or batch and slots)
bind together, that costs about 1/sqrt(N) of the rate.

On the clock of iterations a saturated node is a closed queue: of N residents, q stand in the prefill queue, which is
given the n - (N - q) tokens that decodes leave of the budget n, and N - q decode a token each. With P prefill tokens
and D decode steps a request, q is a birth-death chain with

    pi_{q+1} / pi_q = ((N - q) / D) / ((n - N + q + 1) / P),      X = sum_q pi_q (N - q) / D   requests an iteration

(for a room that does not depend on q the machine-repair queue, whose pi_0 is Erlang's B(N, D room / P)). Iterations
without prefill hold N tokens, the others n:

    1 / lambda = ((1 - pi_0) tau(n) + pi_0 tau(N)) / X + k G + e A + s u

Memory holds N = (M - L) / (G / D) requests, since a decoding request holds G / D tokens on average. L is what
admission in whole prompts leaves unused: half a prompt that does not fit yet, and half of the prompt that is taken in
and not yet computed, where a prompt met at such a time is a size-biased one: L = E[P^2] / E[P] = (2 A - P) / P.

This is an estimate, not a bound. The chain takes prompts and outputs as if memoryless (fixed lengths lose a third or
less) and knows nothing of preemption.
"""

from __future__ import annotations

__all__ = ["attainable_rate", "max_sequences", "residents_at_most"]

import math

import numpy as np

from tileq_theory.capacity.limits import Limits
from tileq_theory.capacity.single import single_level_rate
from tileq_theory.demand import Demand
from tileq_theory.errors import positive_int
from tileq_theory.iteration_time import IterationTime


def residents_at_most(demand: Demand, limits: Limits, token_budget: int) -> float:
    """Return N, the mean number of requests that slots, memory and batch let reside; at least 1 (see the module)."""
    bounds = [float(token_budget)]
    if limits.max_num_seqs is not None:
        bounds.append(float(limits.max_num_seqs))
    if limits.kv_tokens is not None and demand.kv_read_tokens > 0:
        lump = (2 * demand.attention_pairs - demand.prefill_tokens) / demand.prefill_tokens
        held = max(demand.kv_held_tokens, 1e-300) / demand.decode_tokens
        bounds.append((limits.kv_tokens - lump) / held)
    return max(1.0, min(bounds))


def attainable_rate(time: IterationTime, demand: Demand, limits: Limits, token_budget: int) -> float:
    """Return the rate that mixing with one token budget is expected to sustain, requests per second over all nodes.

    Parameters
    ----------
    time, demand, limits
        As for `capacity`; the demand at the chunk size that the budget leaves.
    token_budget
        n, tokens of an iteration.

    Returns
    -------
    float
        At most `single_level_rate` of the same budget. An estimate (see the module's text), not a bound.

    Examples
    --------
    >>> from tileq_theory import Demand, IterationTime
    >>> t = IterationTime.constant(0.01)
    >>> d = Demand(96, 32, 3600, 4656, 3696, 33)
    >>> round(attainable_rate(t, d, Limits(max_batch_tokens=128, max_num_seqs=32), 128), 1)
    88.9
    """
    n = positive_int("token_budget", token_budget)
    bound = float(single_level_rate(time, demand, limits, n)[0])
    if bound <= 0 or demand.decode_tokens <= 0 or demand.prefill_tokens <= 0:
        return bound
    population = residents_at_most(demand, limits, n)
    below, share = math.floor(population), population % 1
    parts = [_closed_queue(demand, n, size) for size in (below, min(below + 1, n))]
    per_iteration = (1 - share) * parts[0][0] + share * parts[1][0]
    idle = (1 - share) * parts[0][1] + share * parts[1][1]
    tau = (1 - idle) * float(time.tau_s(n)) + idle * float(time.tau_s(min(population, n)))
    spread = time.kv_token_s * demand.kv_read_tokens + time.pair_s * demand.attention_pairs
    seconds = tau / per_iteration + spread + time.sequence_s * demand.slot_iterations
    return min(bound, limits.nodes / seconds)


def _closed_queue(demand: Demand, budget: int, population: int) -> tuple[float, float]:
    """Return requests an iteration and the share of iterations without prefill, for a whole number of residents."""
    waiting = np.arange(population)  # q of the state that is left upwards
    up = (population - waiting) / demand.decode_tokens
    down = np.maximum(budget - population + waiting + 1, 1) / demand.prefill_tokens
    logs = np.concatenate([[0.0], np.cumsum(np.log(up) - np.log(down))])
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    decoding = population - np.arange(population + 1)
    return float(weight @ decoding) / demand.decode_tokens, float(weight[0])


def max_sequences(
    time: IterationTime, demand: Demand, limits: Limits, budget: int, residents: float
) -> tuple[int, str]:
    """Return the number of sequences worth admitting: what memory, the TBT limit, the user and the batch allow."""
    bounds: list[tuple[float, str]] = [(float(budget), "one token a sequence fills the token budget")]
    if limits.max_num_seqs is not None:
        bounds.append((float(limits.max_num_seqs), "the given limit"))
    held = demand.memory_iterations / demand.slot_iterations
    if limits.kv_tokens is not None:
        bounds.append((limits.kv_tokens / held, f"KV memory: a resident holds {held:.0f} tokens on average"))
    if limits.tbt_s is not None and demand.decode_tokens > 0:
        context = demand.kv_read_tokens / demand.decode_tokens
        each = time.kv_token_s * context + time.sequence_s
        room = limits.tbt_s - float(time.tau_s(budget))
        if each > 0:
            bounds.append((max(room / each, 1.0), f"the TBT limit: a decode reads {context:.0f} KV tokens on average"))
    most, reason = min(bounds, key=lambda item: item[0])
    # never below what capacity itself needs: rounding down the tightest row must not cost rate
    return max(1, math.floor(most + 1e-9), min(math.ceil(residents - 1e-9), limits.max_num_seqs or budget)), reason
