r"""The programs of mixing, taking turns and nodes apart, run: clusters of the same nodes that form their batches.

The program of a mode says which batches to form (levels); here each mode is a cluster whose policy forms them:

* *mixed*: generalised RAD on the program's own levels, and Sarathi-Serve with its largest level as the budget (under a
  TBT limit also with no more seats than the program decodes at once),
* *aggregated*: THETA, prefill-only and decode-only iterations of the exclusive program's sizes, with several numbers k
  of slots that start a refill: a decode batch of d on average needs d + k/2 slots (under a TBT limit d are tried too),
* *disaggregated*: the best whole split, each pool with the batch of its half's program (under a TBT limit its decodes
  rounded up and down).

Arrivals beyond the program's rate keep every queue full, so what is served is the policy's capacity. A TBT limit bounds
iterations, as in the program: its levels meet it on average, and `late_share` says how many single ones do not. Of the
settings whose mean iteration meets it the one that serves most counts. Residents come whole: where the limit leaves a
node room for n of them on average, up to 1/n of the rate is lost to rounding.
"""

from __future__ import annotations

__all__ = ["ModeRun", "mode_clusters", "served_rates", "simulate_modes"]

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tileq_engine.cluster.nodes import Cluster, Node
from tileq_engine.cluster.result import ClusterRun
from tileq_engine.cluster.simulation import simulate_cluster
from tileq_engine.config import EngineConfig
from tileq_engine.experiment_streams import Streams, crn_requests
from tileq_engine.intervals import Interval, student_interval
from tileq_engine.policy import Policy
from tileq_engine.registry import policy
from tileq_theory.capacity import Capacity, Limits, capacity
from tileq_theory.capacity.restricted import exclusive_capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation import MODES, KvLink, Split, compare_modes
from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.iteration_time import IterationTime

_REFILLS = (1, 4, 16, 64)
_TURNS = 40  # times that a run's requests could fill the seats: synchronised refills make the rate lumpy
_FEWEST, _MOST = 3000, 200_000
_MEETS = 2e-3  # the program meets the limit on average; a sample's mean may be so much above
_WARM = 3  # the first third of the arrivals' time is left out


@dataclass(frozen=True, slots=True, eq=False)
class ModeRun:
    """What one mode served under overload, beside its program.

    Parameters
    ----------
    mode
        Of `tileq_theory.disaggregation.MODES`.
    program_per_s
        Capacity by the program, requests per second over all nodes.
    served
        Simulated capacity: Student interval over replications of the rate served under overload.
    cluster
        The cluster that served it: of several settings the one that served most.
    iteration_s
        Mean iteration of the nodes that decode; where they take turns, of the longer kind.
    late_share
        Share of these nodes' iterations that is longer than the TBT limit; 0 without a limit.
    preemptions
        Per request.
    """

    mode: str
    program_per_s: float
    served: Interval
    cluster: Cluster
    iteration_s: float
    late_share: float
    preemptions: float

    @property
    def ratio(self) -> float:
        """Served over program."""
        return self.served.estimate / self.program_per_s if self.program_per_s > 0 else math.nan


def mode_clusters(
    demand: Demand, time: IterationTime, limits: Limits, *, link: KvLink, split: Split
) -> dict[str, tuple[Cluster, ...]]:
    """Return for each mode the clusters of `limits.nodes` nodes that may form its program's batches.

    Parameters
    ----------
    demand
        Of one request.
    time, limits
        Iteration time, limits of a node and the number of nodes.
    link
        KV transfer between pools.
    split
        The split of the nodes (`best_split`).

    Examples
    --------
    >>> from tileq_theory.disaggregation import Pool, best_split
    >>> t = IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128)
    >>> d, limits, link = Demand(100, 100, 15050, 5050, 15150, 101, 100, 200), Limits(512, nodes=3), KvLink(131072)
    >>> pool = Pool(t, limits)
    >>> split = best_split(d, nodes=3, prefill=pool, decode=pool, link=link)
    >>> found = mode_clusters(d, t, limits, link=link, split=split)
    >>> [(mode, len(clusters)) for mode, clusters in found.items()]
    [('mixed', 2), ('aggregated', 4), ('disaggregated', 1)]
    """
    one = limits.with_(nodes=1)
    mixed, turns = capacity(time, demand, one), exclusive_capacity(time, demand, one)

    def alike(rule: Policy, budget: int, seats: int) -> Cluster:
        return Cluster([Node("node", time, rule, _config(limits, budget, seats), count=limits.nodes)])

    budget = max(use.tokens for use in mixed.levels)
    seats = min(limits.max_num_seqs or budget, budget)
    both = [alike(rule, budget, seats) for rule in (policy("rad_general", plan=mixed), policy("sarathi"))]
    decoding = math.floor(max(use.decode_tokens for use in mixed.levels) * (1 + 1e-9))
    if limits.tbt_s is not None and decoding < seats:
        both.append(alike(policy("sarathi"), budget, decoding + 1))  # one more: whose prompt is being computed
    prefill, decode = _turn_sizes(turns)
    most = limits.max_num_seqs or 10**9
    exclusive = [
        alike(policy("theta", k=k), prefill, min(seats, most))
        for k in _REFILLS
        for seats in sorted({math.ceil(decode + k / 2), math.ceil(decode * (1 - 1e-9))} if limits.tbt_s else
                            {math.ceil(decode + k / 2)})
        if k <= min(seats, most)
    ]  # fmt: skip
    sizes = (True, False) if limits.tbt_s is not None else (True,)
    apart = [_pools(time, limits, link, split, rounded_up) for rounded_up in sizes] if split.rate_per_s > 0 else []
    return {
        "mixed": tuple(both),
        "aggregated": tuple(exclusive),
        "disaggregated": tuple(apart),
    }


def _pools(time: IterationTime, limits: Limits, link: KvLink, split: Split, rounded_up: bool) -> Cluster:
    prefill, decode = (_pool_config(limits, pool, rounded_up) for pool in (split.prefill, split.decode))
    nodes = [
        Node("prefill", time, "sarathi", prefill, role="prefill", count=split.prefill_nodes),
        Node("decode", time, "sarathi", decode, role="decode", count=split.decode_nodes),
    ]
    return Cluster(nodes, link=link)


def _turn_sizes(turns: Capacity) -> tuple[int, float]:
    """Return the prefill tokens and the decode tokens of an exclusive program's iterations, the largest in use.

    Under a TBT limit attention may keep a batch from being filled with prompts, which the program counts as prefill
    tokens beyond need: the mean of what is needed is taken.
    """
    prefills = [use for use in turns.levels if use.prefill_tokens > 0]
    prefill = max((use.tokens for use in prefills), default=1)
    if turns.limits.tbt_s is not None and prefills:
        needed = turns.rate_per_s * turns.demand.prefill_tokens / sum(use.iterations_per_s for use in prefills)
        prefill = max(1, min(prefill, math.floor(needed * (1 + 1e-9))))
    return prefill, max((use.decode_tokens for use in turns.levels), default=1.0)


def _config(limits: Limits, budget: int, seats: int) -> EngineConfig:
    memory = None if limits.kv_tokens is None else int(limits.kv_tokens)
    return EngineConfig(token_budget=budget, max_num_seqs=max(1, seats), kv_tokens=memory, gap_mode="histogram")


def _pool_config(limits: Limits, pool: Capacity, rounded_up: bool) -> EngineConfig:
    """Return the settings of a pool's node: batches of prompts, or as many seats as its program decodes."""
    budget = max(use.tokens for use in pool.levels)
    decodes = max(use.decode_tokens for use in pool.levels)
    seats = budget
    if decodes > 0:
        seats = math.ceil(decodes * (1 - 1e-9)) if rounded_up else max(1, math.floor(decodes * (1 + 1e-9)))
    return _config(limits, max(budget, seats), min(limits.max_num_seqs or seats, seats))


def served_rates(run: ClusterRun) -> float:
    """Return requests finished per second between a third of the arrivals' time and its end."""
    last = int(run.requests.arrival_ps[-1])
    done = (run.finish_ps > last // _WARM) & (run.finish_ps <= last)
    return float(done.sum()) / ((last - last // _WARM) * 1e-12)


def simulate_modes(
    workload: Any,
    time: IterationTime,
    limits: Limits,
    *,
    link: KvLink,
    over: float = 1.1,
    requests: int | None = None,
    replications: int = 3,
    seed: int = 0,
    level: float = 0.95,
) -> dict[str, ModeRun]:
    """Run every mode beyond its program's rate and return what it served (see the module's text).

    Parameters
    ----------
    workload
        A `tileq_theory.workload.Workload`; its lengths are drawn, its arrivals are Poisson.
    time, limits, link
        As in `tileq_theory.disaggregation.compare_modes`.
    over
        Offered rate over the program's, above 1.
    requests
        Of one run; None: enough to fill the seats forty times.
    replications, seed, level
        Runs that the interval is of, root seed, confidence.

    Raises
    ------
    InputError
        `over` not above 1, or what `compare_modes` refuses.
    """
    if positive("over", over) <= 1:
        raise InputError(f"over is {over!r}; expected a number above 1: below the program's rate nothing is full")
    count = positive_int("replications", replications)
    demand = workload.demand(chunk_tokens=limits.max_batch_tokens, convention="engine", counting="least")
    found = compare_modes(demand, time, limits, link=link)
    rates = found.mixed_per_s, found.aggregated_per_s, found.disaggregated_per_s
    programs: dict[str, float] = dict(zip(MODES, rates, strict=True))
    made = mode_clusters(demand, time, limits, link=link, split=found.split)
    shapes = workload.with_arrivals(None)

    def run(cluster: Cluster, rate: float, replication: int) -> ClusterRun:
        streams = Streams(seed, replication)
        asked = crn_requests(shapes, requests or _enough(cluster), streams, over * rate)
        return simulate_cluster(asked, cluster, seed=streams.integer("cluster"))

    answers = {}
    for mode, clusters in made.items():
        firsts = [run(cluster, programs[mode], 0) for cluster in clusters]
        if not firsts:
            continue
        best = _chosen(firsts, limits.tbt_s)
        runs = [firsts[best], *(run(clusters[best], programs[mode], r) for r in range(1, count))]
        served = student_interval([served_rates(one) for one in runs], level)
        asked = sum(len(one.requests) for one in runs)
        preempted = sum(one.counters["preemptions"] for one in runs) / asked
        answers[mode] = ModeRun(
            mode, programs[mode], served, clusters[best], *_iterations(runs, limits.tbt_s), preempted
        )
    return answers


def _enough(cluster: Cluster) -> int:
    seats = sum(n.count * n.config.max_num_seqs for n in cluster.nodes if n.role != "prefill")
    return min(max(_TURNS * seats, _FEWEST), _MOST)


def _chosen(runs: list[ClusterRun], tbt_s: float | None) -> int:
    """Return which run served most among those whose mean iteration meets the limit, else the one nearest to it."""
    means = [_iterations([run], tbt_s)[0] for run in runs]
    within = [k for k, mean in enumerate(means) if tbt_s is None or mean <= tbt_s * (1 + _MEETS)]
    return max(within, key=lambda k: served_rates(runs[k])) if within else int(np.argmin(means))


def _iterations(runs: list[ClusterRun], tbt_s: float | None) -> tuple[float, float]:
    """Return the mean iteration of nodes that decode, of the longer kind where they take turns, and the late share."""
    samples = [node.samples for run in runs for node in run.nodes if node.role != "prefill"]
    took = np.concatenate([s.duration_ps for s in samples]) * 1e-12
    decodes = np.concatenate([s.decode_tokens for s in samples]) > 0
    means = [float(took[kind].mean()) for kind in (decodes, ~decodes) if kind.any()]
    if not means:
        return 0.0, 0.0
    return max(means), float((took > tbt_s).mean()) if tbt_s is not None else 0.0
