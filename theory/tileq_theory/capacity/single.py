r"""One batch size only: the program's exact answer in closed form.

With a single level n every row is a lower bound on iterations per request, so

    lambda(n) = R / (tau(n) x + k G + e A + s u),
    x = max((P + D)/n, D/N, G/M, g/M, u/N, (k G + e A + s D)/(T - tau(n)))

(`theory.md` section 3 with L = {n}; Dai et al. and Nie et al. are the cases where the first or the fourth term is
the largest). It is what an engine with one token budget can reach, and the referee of the linear program.
"""

from __future__ import annotations

__all__ = ["binding_of_single", "single_level_iterations", "single_level_rate"]

from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_theory.capacity.coefficients import kv_read_demand
from tileq_theory.capacity.limits import Limits
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime

_TERMS = ("time", "slots", "memory", "slots", "tbt")


def _terms(time: IterationTime, demand: Demand, limits: Limits, n: np.ndarray) -> list[np.ndarray]:
    """Return the lower bounds on iterations per request: batch, decode slots, memory, slot-time, TBT."""
    kv_reads = kv_read_demand(time, demand)
    ones = np.ones_like(n)
    slots = 1.0 / limits.max_num_seqs if limits.max_num_seqs is not None else 0.0
    memory = 1.0 / limits.kv_tokens if limits.kv_tokens is not None else 0.0
    bounds = [
        (demand.prefill_tokens + demand.decode_tokens) / n,
        demand.decode_tokens * slots * ones,
        max(kv_reads - demand.kv_shared_tokens, demand.memory_iterations) * memory * ones,
        demand.slot_iterations * slots * ones,
    ]
    if limits.tbt_s is None:
        return [*bounds, 0.0 * ones]
    load = time.kv_token_s * kv_reads + time.pair_s * demand.attention_pairs + time.sequence_s * demand.decode_tokens
    room = limits.tbt_s - np.asarray(time.tau_s(n), dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        tbt = np.where(room > 0, load / room, np.inf if load > 0 else 0.0)
    tbt = np.where(room < 0, np.inf, tbt)
    return [*bounds, tbt]


def single_level_iterations(
    time: IterationTime, demand: Demand, limits: Limits, tokens: Any
) -> Float[np.ndarray, "level"]:
    """Return the least iterations per request for batches of `tokens` tokens (inf where the TBT limit forbids them)."""
    n = np.atleast_1d(np.asarray(tokens, dtype=float))
    most: np.ndarray = np.max(_terms(time, demand, limits, n), axis=0)
    return most


def single_level_rate(time: IterationTime, demand: Demand, limits: Limits, tokens: Any) -> Float[np.ndarray, "level"]:
    """Return lambda(n) in requests per second for each batch size in `tokens` (see the module's formula).

    Examples
    --------
    >>> from tileq_theory import Demand, IterationTime
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> d = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200)
    >>> float(single_level_rate(t, d, Limits(max_batch_tokens=512), 512)[0].round(4))
    16.7145
    """
    n = np.atleast_1d(np.asarray(tokens, dtype=float))
    iterations = single_level_iterations(time, demand, limits, n)
    tau = np.asarray(time.tau_s(n), dtype=float)
    spread = (
        time.kv_token_s * kv_read_demand(time, demand)
        + time.pair_s * demand.attention_pairs
        + time.sequence_s * demand.slot_iterations
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        seconds = np.where(np.isinf(iterations), np.inf, tau * iterations + spread)
        return np.where(np.isinf(seconds), 0.0, limits.nodes / seconds)


def binding_of_single(time: IterationTime, demand: Demand, limits: Limits, tokens: int) -> str:
    """Return which bound decides lambda(n): 'time', 'slots', 'memory' or 'tbt'."""
    terms = _terms(time, demand, limits, np.atleast_1d(np.asarray(tokens, dtype=float)))
    return _TERMS[int(np.argmax([float(term[0]) for term in terms]))]
