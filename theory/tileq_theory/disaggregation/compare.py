r"""Aggregated, disaggregated or mixed: which carries the most, over workload space.

* *aggregated*: every node serves both phases, one phase per iteration (exclusive batches; vLLM v0, THETA),
* *mixed*: every node mixes prefill and decode tokens in tiles as the capacity program chooses,
* *disaggregated*: prefill nodes and decode nodes with a KV transfer (`best_split`).

Mixed tiling carries at least what aggregation does, whose batches it may form too. Disaggregation can pass both only
where a limit binds one phase alone: a TBT limit, under which a mixed node may run no long batch, while prefill nodes
may; or pools of different hardware. It loses to both where the link is slow or the nodes are few (whole nodes).
"""

from __future__ import annotations

__all__ = ["MODES", "Comparison", "WorkloadMap", "compare_modes", "servable", "workload_map"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from tileq_theory.capacity import Limits, capacity
from tileq_theory.capacity.restricted import exclusive_capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation.link import KvLink
from tileq_theory.disaggregation.split import Pool, Split, best_split
from tileq_theory.errors import InputError, positive
from tileq_theory.iteration_time import IterationTime

Mode = Literal["mixed", "aggregated", "disaggregated"]
MODES: tuple[Mode, ...] = ("mixed", "aggregated", "disaggregated")


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Capacity of the same nodes in three modes, requests per second.

    Parameters
    ----------
    mixed_per_s, aggregated_per_s, disaggregated_per_s
        With whole nodes.
    relaxed_per_s
        Disaggregated with nodes divided freely.
    winner
        The mode of the largest rate; the first of `MODES` among those within 1e-6 of it.
    split
        The disaggregated answer.
    """

    mixed_per_s: float
    aggregated_per_s: float
    disaggregated_per_s: float
    relaxed_per_s: float
    winner: Mode
    split: Split


def compare_modes(
    demand: Demand, time: IterationTime, limits: Limits, *, link: KvLink, prefill_limits: Limits | None = None
) -> Comparison:
    """Return the three capacities on `limits.nodes` equal nodes.

    Parameters
    ----------
    demand
        Of one request, P and D above 0.
    time
        Iteration time of every node.
    limits
        Limits of a node, its TBT limit and the number of nodes.
    link
        KV transfer of the disaggregated mode.
    prefill_limits
        Limits of a prefill node; `limits` without its TBT limit by default.

    Raises
    ------
    InputError
        As `best_split` and the capacity program; a TBT limit that one decode alone outlasts: the programs would let it
        happen in fractions of one an iteration.

    Examples
    --------
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> d = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200)
    >>> free = compare_modes(d, t, Limits(max_batch_tokens=512, nodes=11), link=KvLink(131072))
    >>> tight = compare_modes(d, t, Limits(max_batch_tokens=512, nodes=11, tbt_s=0.05), link=KvLink(131072))
    >>> free.winner, tight.winner
    ('mixed', 'disaggregated')
    """
    limits.check_classes(time, {"requests": demand})
    pool = Pool(time, prefill_limits or limits.with_(tbt_s=None))
    split = best_split(demand, nodes=limits.nodes, prefill=pool, decode=Pool(time, limits), link=link)
    mixed = capacity(time, demand, limits).rate_per_s
    aggregated = exclusive_capacity(time, demand, limits).rate_per_s
    rates: dict[Mode, float] = {"mixed": mixed, "aggregated": aggregated, "disaggregated": split.rate_per_s}
    best = max(rates.values())
    winner = next(mode for mode in MODES if rates[mode] >= best * (1 - 1e-6))
    return Comparison(mixed, aggregated, split.rate_per_s, split.relaxed_rate_per_s, winner, split)


def servable(time: IterationTime, demand: Demand, tbt_s: float) -> bool:
    """Return whether one decode with the shortest context, alone in its batch, is within the limit (inf: none).

    Examples
    --------
    >>> d = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200, shortest_context_tokens=101)
    >>> [servable(IterationTime(launch_s=0.01, kv_token_s=1e-5), d, limit) for limit in (0.0105, 0.012)]
    [False, True]
    """
    return tbt_s >= float(time(1, 0.0, demand.shortest_context_tokens, 1))


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadMap:
    """Capacities over prompt share and TBT limit.

    Parameters
    ----------
    prompt_shares
        P/(P + D) of the columns.
    tbt_s
        TBT limits of the rows, seconds; inf for none.
    rates_per_s
        Capacity of each mode in the order of `MODES`; 0 where no decode meets the limit, even alone.
    winner
        Index into `MODES`; -1 where no decode meets the limit.
    """

    prompt_shares: Float[np.ndarray, "share"]
    tbt_s: Float[np.ndarray, "limit"]
    rates_per_s: Float[np.ndarray, "mode limit share"]
    winner: Int[np.ndarray, "limit share"]

    def table(self) -> str:
        """Return the winners as text: M mixed, A aggregated, D disaggregated, . nothing."""
        letters = np.array(["M", "A", "D", "."])
        head = "TBT s \\ P/(P+D)  " + " ".join(f"{s:5.2f}" for s in self.prompt_shares)
        lines = [
            f"{limit:15.4g}  " + " ".join(f"{letters[w]:>5}" for w in row)
            for limit, row in zip(self.tbt_s, self.winner, strict=True)
        ]
        return "\n".join([head, *lines])


def workload_map(
    demand_of: Callable[[float], Demand],
    time: IterationTime,
    limits: Limits,
    *,
    link: KvLink,
    prompt_shares: Sequence[float],
    tbt_s: Sequence[float],
) -> WorkloadMap:
    """Return which mode wins where.

    Parameters
    ----------
    demand_of
        Demand of a request whose share of prompt tokens is the argument (0 to 1, both ends excluded).
    time, limits, link
        As in `compare_modes`; the TBT limit of `limits` is replaced by each of `tbt_s` (inf for none).
    prompt_shares, tbt_s
        The grid.

    Raises
    ------
    InputError
        A share outside (0, 1), a limit that is not above 0, or an empty grid.
    """
    if not len(prompt_shares) or not len(tbt_s):
        raise InputError("prompt_shares or tbt_s is empty; expected at least one value of each")
    for share in prompt_shares:
        if not 0 < share < 1:
            raise InputError(f"prompt_shares has {share!r}; expected shares between 0 and 1")
    for limit in tbt_s:
        if limit != np.inf:
            positive("tbt_s", limit)
    rates = np.zeros((len(MODES), len(tbt_s), len(prompt_shares)))
    winner = np.full(rates.shape[1:], -1, dtype=np.int64)
    for j, share in enumerate(prompt_shares):
        demand = demand_of(float(share))
        for i, limit in enumerate(tbt_s):
            if not servable(time, demand, float(limit)):
                continue
            bound = limits.with_(tbt_s=None if limit == np.inf else float(limit))
            answer = compare_modes(demand, time, bound, link=link)
            rates[:, i, j] = answer.mixed_per_s, answer.aggregated_per_s, answer.disaggregated_per_s
            if rates[:, i, j].max() > 0:
                winner[i, j] = MODES.index(answer.winner)
    return WorkloadMap(np.asarray(prompt_shares, dtype=float), np.asarray(tbt_s, dtype=float), rates, winner)
