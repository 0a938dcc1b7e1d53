r"""The capacity program in dimensionless form.

Physical program (`theory.md` section 3), per node, mu = lambda/R:

    p_n + d_n <= n x_n,  d_n <= N x_n,  y_n <= M x_n,  z_n <= p_n * longest prompt
    sum p >= mu P,  sum d >= mu D,  sum y >= mu G,  sum z >= mu A
    M sum x >= mu g,  N sum x >= mu u
    sum(tau x + k y + e z) + s mu u <= 1
    tau x + k y + e z + s d <= T x
    shortest context * d_n <= y_n <= longest context * d_n

The last row is not in the specification: without it the program may read KV in iterations without decodes and decode
in iterations that read nothing, which no policy can. It only tightens the bound; `Limits(couple_reads=False)` leaves
it out. It does not apply where K counts the KV of prompts too (WAIT).

Substitution: x = X/tau, p = rho P p', d = rho D d', y = rho G y', z = rho A z', mu = rho mu', with rho a rate near
the optimum. Every coefficient is then a pure number, so the answer does not depend on the unit of time or of length,
and the solver sees numbers near 1. KV reads and attention pairs may exceed what requests need (>= instead of =):
they only cost, so the optimum is the same.

Residents that share a cached prefix read it each and hold it once: with the share phi of reads that is not shared
(`Demand.kv_held_tokens`/G) the third row is phi y_n <= M x_n, and g counts shared tokens out. Nothing else changes.
"""

from __future__ import annotations

__all__ = ["Coefficients", "kv_read_demand"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Num

from tileq_theory.capacity.levels import LevelKind
from tileq_theory.capacity.limits import Limits
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime


def kv_read_demand(time: IterationTime, demand: Demand) -> float:
    """Return G, or g where the model's K counts the KV of prompts in their prefill too (WAIT)."""
    return demand.memory_iterations if time.kv_counts_prefill else demand.kv_read_tokens


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Pure numbers of the program for a list of levels; array entries are per level, shape (level,).

    Attributes
    ----------
    rate_unit_per_s
        rho, requests per second and node.
    busy
        tau/tau_scale: 1, or 0 where an iteration costs nothing by itself.
    tau_scale_s
        Seconds that one unit of X stands for.
    prefill_share, decode_share
        Share of the batch taken by one unit of p' and d'.
    slot_share, kv_share
        The same of N and M (0 without that limit).
    attention_need
        Units of p' that one unit of z' needs in its batch (0 for unbounded prompts).
    memory_supply, slot_supply
        What one unit of X adds to the memory-time and slot-time rows.
    tbt_room
        (T - tau)/tau_scale (1 without a limit).
    tbt
        1.0 with a TBT limit, else 0.0.
    kv_least, kv_need
        Units of y' that one unit of d' reads at least; units of d' that one unit of y' needs (0: no such row).
    kv_cost, pair_cost, sequence_cost, decode_sequence_cost
        Node time of one unit of y', z', mu' (all sequences) and d' (decodes only).
    memory_need, slot_need
        What one unit of mu' takes from the memory-time and slot-time rows.
    forbid_prefill, forbid_decode
        1 where the level's kind rules out p' or d', else 0.
    """

    rate_unit_per_s: float
    busy: Float[np.ndarray, "level"]
    tau_scale_s: Float[np.ndarray, "level"]
    prefill_share: Float[np.ndarray, "level"]
    decode_share: Float[np.ndarray, "level"]
    slot_share: Float[np.ndarray, "level"]
    kv_share: Float[np.ndarray, "level"]
    attention_need: float
    memory_supply: Float[np.ndarray, "level"]
    slot_supply: Float[np.ndarray, "level"]
    tbt_room: Float[np.ndarray, "level"]
    tbt: float
    kv_least: float
    kv_need: float
    kv_cost: float
    pair_cost: float
    sequence_cost: float
    decode_sequence_cost: float
    memory_need: float
    slot_need: float
    forbid_prefill: Float[np.ndarray, "level"]
    forbid_decode: Float[np.ndarray, "level"]

    @classmethod
    def of(
        cls,
        time: IterationTime,
        demand: Demand,
        limits: Limits,
        tokens: Num[np.ndarray, "level"],
        rate_unit_per_s: float,
        kinds: Sequence[LevelKind] | None = None,
    ) -> Coefficients:
        """Build the coefficients for levels of `tokens` tokens (see the module's formulas)."""
        rho = rate_unit_per_s
        n = np.asarray(tokens, dtype=float)
        forbid_prefill, forbid_decode = np.zeros_like(n), np.zeros_like(n)
        if kinds is not None:
            forbid_prefill[:] = [kind == "decode" for kind in kinds]
            forbid_decode[:] = [kind == "prefill" for kind in kinds]
        tau = np.asarray(time.tau_s(n), dtype=float)
        scale = np.where(tau > 0, tau, 1.0)
        kv_reads = kv_read_demand(time, demand)
        p, d = demand.prefill_tokens, demand.decode_tokens
        memory = 1.0 / limits.kv_tokens if limits.kv_tokens is not None else 0.0
        slots = 1.0 / limits.max_num_seqs if limits.max_num_seqs is not None else 0.0
        first = float(scale.max())  # the global rows are written in iterations per longest tau
        tbt = limits.tbt_s is not None
        room = (limits.tbt_s - tau) / scale if limits.tbt_s is not None else np.ones_like(tau)
        pairs = demand.attention_pairs
        couple = limits.couple_reads and not time.kv_counts_prefill and kv_reads > 0 and d > 0
        need = pairs / (demand.longest_prompt_tokens * p) if p > 0 else 0.0
        return cls(
            rate_unit_per_s=rho,
            busy=tau / scale,
            tau_scale_s=scale,
            prefill_share=rho * p * scale / n,
            decode_share=rho * d * scale / n,
            slot_share=rho * d * scale * slots,
            kv_share=rho * (kv_reads - demand.kv_shared_tokens) * scale * memory,
            attention_need=need,
            memory_supply=(first / scale) if memory > 0 else np.ones_like(tau),
            slot_supply=(first / scale) if slots > 0 else np.ones_like(tau),
            tbt_room=room,
            tbt=float(tbt),
            kv_least=demand.shortest_context_tokens * d / kv_reads if couple else 0.0,
            kv_need=kv_reads / (demand.longest_context_tokens * d) if couple else 0.0,
            kv_cost=rho * time.kv_token_s * kv_reads,
            pair_cost=rho * time.pair_s * pairs,
            sequence_cost=rho * time.sequence_s * demand.slot_iterations,
            decode_sequence_cost=rho * time.sequence_s * d,
            memory_need=rho * demand.memory_iterations * first * memory,
            slot_need=rho * demand.slot_iterations * first * slots,
            forbid_prefill=forbid_prefill,
            forbid_decode=forbid_decode,
        )
