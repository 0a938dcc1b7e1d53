"""Simulated capacity of clusters against `cluster_capacity`: unlike replicas, classes, routers, pools and the link.

Capacity is what is served while every queue is full: arrivals come at more than the program's rate, the first third of
their time is left out. Each number is a mean over replications with its Student interval at a false-alarm rate of 1e-4.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from scipy.stats import t as student

from tileq_engine import EngineConfig, Requests
from tileq_engine.cluster import Cluster, ClusterRun, Node, Router, placement_weights, router, simulate_cluster
from tileq_engine.cluster.placement import node_limits
from tileq_theory.capacity import capacity
from tileq_theory.cluster import ClusterCapacity, NodeGroup, cluster_capacity
from tileq_theory.demand import Demand
from tileq_theory.disaggregation import KvLink
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Fixed, Independent

ALARM = 1e-4
QUICK = IterationTime(launch_s=1e-3, weight_floor_s=8e-3, token_s=6e-5, pair_s=2e-10, kv_token_s=8e-8, sequence_s=1e-5)
SLOW = IterationTime(launch_s=2e-3, weight_floor_s=16e-3, token_s=1.2e-4, kv_token_s=1.6e-7)
FREE_SEATS = EngineConfig(token_budget=512, max_num_seqs=256)  # the program of these nodes decodes 85 at a time
Lengths = tuple[int, int]


def demand_of(lengths: Lengths, chunk: int = 512) -> Demand:
    return Independent(Fixed(lengths[0]), Fixed(lengths[1])).demand(chunk_tokens=chunk, counting="least")


def groups_of(cluster: Cluster, classes: tuple[tuple[int, ...] | None, ...] | None = None) -> list[NodeGroup]:
    allowed = classes or (None,) * len(cluster.nodes)
    return [
        NodeGroup(n.name, n.time, node_limits(n), n.count, n.role, may)
        for n, may in zip(cluster.nodes, allowed, strict=True)
    ]


def poisson(rate: float, seconds: float, mix: dict[Lengths, float], seed: int) -> Requests:
    """Poisson arrivals, the classes of the mix in turn by their shares; a request's tenant is its place in the mix."""
    rng = np.random.default_rng((seed, 17))
    count = int(rate * seconds)
    kinds = list(mix)
    ends = np.cumsum(list(mix.values())) / sum(mix.values())
    drawn = np.searchsorted(ends, (np.arange(count) * (np.sqrt(5) - 1) / 2) % 1, side="right")
    prompts, outputs = np.array(kinds)[drawn].T
    return Requests.from_arrays(
        arrival_s=rng.exponential(1 / rate, count).cumsum(), prompt_tokens=prompts, output_tokens=outputs, tenant=drawn
    )


def served(run: ClusterRun) -> float:
    last = int(run.requests.arrival_ps[-1])
    return float(((run.finish_ps > last // 3) & (run.finish_ps <= last)).sum() / (last * 2 / 3 * 1e-12))


def saturated(cluster: Cluster, rate: float, mix: dict[Lengths, float], seconds: float = 180.0) -> tuple[float, float]:
    """Mean of what is served at an offered rate over five replications, and its half width."""
    runs = [simulate_cluster(poisson(rate, seconds, mix, seed), cluster, seed=seed) for seed in range(5)]
    found = np.array([served(run) for run in runs])
    return float(found.mean()), float(student.ppf(1 - ALARM / 2, 4) * found.std(ddof=1) / np.sqrt(5))


def unlike(config: EngineConfig) -> Cluster:
    return Cluster([Node("quick", QUICK, "sarathi", config, count=2), Node("slow", SLOW, "sarathi", config, count=2)])


ROUTERS: list[str | Router] = ["random", "round_robin", "jsq", "least_work", router("power_of_two", choices=2)]


@functools.cache
def of_unlike(seats: int) -> ClusterCapacity:
    return cluster_capacity(groups_of(unlike(FREE_SEATS.with_(max_num_seqs=seats))), [demand_of((500, 100))])


@pytest.mark.parametrize("rule", ROUTERS, ids=lambda rule: rule if isinstance(rule, str) else rule.name)
def test_every_router_with_the_programs_weights_reaches_the_program(rule: str | Router) -> None:
    """Also random: its splitting costs waiting, not capacity. Two nodes of each kind, seats to spare."""
    program = of_unlike(256).rate_per_s
    cluster = placement_weights(unlike(FREE_SEATS), demand_of((500, 100))).with_(router=rule)
    mean, half = saturated(cluster, 1.1 * program, {(500, 100): 1.0})
    assert half < 0.01 * program
    assert 0.97 * program <= mean + half and mean - half <= program, (mean, half, program)
    assert abs(mean / program - 1) <= 0.03


def test_random_without_weights_reaches_equal_shares_and_its_slow_nodes_grow_first() -> None:
    """The edge by growth: 7 % above equal shares the slow nodes' queues grow and no others; 7 % below none does."""
    answer, mix = of_unlike(256), {(500, 100): 1.0}
    edge = answer.equal_shares_rate_per_s
    assert edge is not None and edge < 0.7 * answer.rate_per_s
    alike = unlike(FREE_SEATS).with_(router="random")

    def growth(load: float) -> np.ndarray:
        """Requests per second by which each node's number in system grows, by replication; shares of the edge."""
        rows = []
        for seed in range(12):
            run = simulate_cluster(poisson(load * edge, 240, mix, seed), alike, seed=seed)
            last = float(run.requests.arrival_ps[-1])
            at = np.linspace(0.2, 1, 200) * last
            for node in range(4):
                own = run.node == node
                begun = np.searchsorted(np.sort(run.requests.arrival_ps[own]), at)
                rows.append(np.polyfit(at * 1e-12, begun - np.searchsorted(np.sort(run.finish_ps[own]), at), 1)[0])
        # random splitting gives a node its share +- a percent or two in a run: pairs of equal nodes are averaged
        return np.array(rows).reshape(12, 2, 2).mean(axis=2) / edge

    below, above = growth(0.93), growth(1.07)
    half = (
        student.ppf(1 - ALARM / 2, 11) * np.array([below.std(axis=0, ddof=1), above.std(axis=0, ddof=1)]) / np.sqrt(12)
    )
    assert np.all(np.abs(below.mean(axis=0)) <= np.maximum(half[0], 0.003)), (below, half)
    assert abs(above.mean(axis=0)[0]) <= max(half[1][0], 0.003), (above, half)
    assert above.mean(axis=0)[1] - half[1][1] > 0, (above, half)  # a quarter of 7 % each
    assert abs(above.mean(axis=0)[1] - 0.07 / 4) <= half[1][1]


def test_what_a_cluster_lacks_under_few_seats_its_single_node_lacks_too() -> None:
    """64 seats: slots and time bind the program together, which no finite population fills at once. The router is not
    to blame: a node alone, saturated, serves the same share of its program (96 %)."""
    config, mix, own = FREE_SEATS.with_(max_num_seqs=64), {(500, 100): 1.0}, demand_of((500, 100))
    program = of_unlike(64).rate_per_s
    mean, half = saturated(placement_weights(unlike(config), own).with_(router="random"), 1.15 * program, mix)
    alone, error = 0.0, half**2
    for node in unlike(config).nodes:
        rate = capacity(node.time, own, node_limits(node)).rate_per_s
        found = saturated(Cluster([Node("one", node.time, "sarathi", config)]), 1.2 * rate, mix, 360.0)
        alone, error = alone + 2 * found[0], error + (2 * found[1]) ** 2
    assert abs(mean - alone) <= np.sqrt(error), (mean, alone, half, error)
    assert np.sqrt(error) < 0.02 * program
    assert mean + half < 0.98 * program  # there is something to explain
    assert of_unlike(256).rate_per_s > program  # and more seats are the way out


def test_two_classes_go_where_the_program_sends_them() -> None:
    """Nodes of two kinds, each better at one class: the tenant router with the program's classes beats one mix."""
    reader = IterationTime(launch_s=1e-3, weight_floor_s=2e-3, token_s=2e-5, pair_s=1e-10, kv_token_s=6e-7)
    writer = IterationTime(launch_s=1e-3, weight_floor_s=2e-3, token_s=6e-5, pair_s=1e-10, kv_token_s=2e-8)
    mix: dict[Lengths, float] = {(2000, 20): 0.5, (100, 200): 0.5}
    nodes = [
        Node("reader", reader, "sarathi", FREE_SEATS, count=2, tenants=(0,)),
        Node("writer", writer, "sarathi", FREE_SEATS, count=2, tenants=(0, 1)),
    ]
    apart = Cluster(nodes, router=router("tenant", choices=4))
    demands = [demand_of(lengths) for lengths in mix]
    answer = cluster_capacity(groups_of(apart), demands, list(mix.values()))
    assert answer.group("reader").rates_per_s[1] < 1e-6 * answer.rate_per_s, "the program sends no writing to readers"
    assert answer.same_mix_rate_per_s is not None and answer.rate_per_s > 1.03 * answer.same_mix_rate_per_s

    def growth(cluster: Cluster, load: float) -> tuple[float, float]:
        """Of the number in system, as a share of the program's rate: mean and half width."""
        found = []
        for seed in range(6):
            run = simulate_cluster(poisson(load * answer.rate_per_s, 600, mix, seed), cluster, seed=seed)
            at = np.linspace(0.2, 1, 200) * float(run.requests.arrival_ps[-1])
            inside = np.searchsorted(run.requests.arrival_ps, at) - np.searchsorted(np.sort(run.finish_ps), at)
            found.append(np.polyfit(at * 1e-12, inside, 1)[0] / answer.rate_per_s)
        return float(np.mean(found)), float(student.ppf(1 - ALARM / 2, 5) * np.std(found, ddof=1) / np.sqrt(6))

    mean, half = growth(apart, 0.97)
    assert mean <= 0.003 and half < 0.01, (mean, half)  # within 3 % of the program it is stable
    mean, half = growth(apart, 1.05)
    assert mean - half > 0, (mean, half)  # and beyond it nothing is
    mean, half = growth(placement_weights(apart, Demand.mix(demands, [0.5, 0.5])).with_(router="random"), 0.97)
    assert mean - half > 0, (mean, half)  # a router that does not tell classes apart is not, there


POOLS = [("prefill", (800, 160), 1, 2, 400e9), ("decode", (300, 320), 2, 1, 400e9), ("link", (800, 40), 2, 2, 2e9)]


@pytest.mark.parametrize(("binding", "lengths", "prefill", "decode", "port"), POOLS)
def test_the_pool_that_the_program_names_grows_just_above_it(
    binding: str, lengths: Lengths, prefill: int, decode: int, port: float
) -> None:
    """5 % above, over five runs: the named queue grows by that 5 %, and no other does; the rest is served."""
    config = EngineConfig(token_budget=1024, max_num_seqs=64)
    link = KvLink(131072, node_bytes_per_s=port, latency_s=1e-5)
    nodes = [
        Node("prefill", QUICK, "sarathi", config, role="prefill", count=prefill),
        Node("decode", QUICK, "sarathi", config, role="decode", count=decode),
    ]
    cluster = Cluster(nodes, link=link)
    answer = cluster_capacity(groups_of(cluster), [demand_of(lengths, 1024)], link=link)
    assert answer.binding[0] == binding
    over, growth, rates = 1.05 * answer.rate_per_s, [], []
    for seed in range(5):
        run = simulate_cluster(poisson(over, 300.0, {lengths: 1.0}, seed), cluster, seed=seed)
        rates.append(served(run))
        last = float(run.requests.arrival_ps[-1])
        at = np.linspace(0.4, 0.98, 100) * last
        moments = [run.requests.arrival_ps, run.prefill_end_ps, run.transfers.start_ps, run.transfers.end_ps]
        counts = [np.searchsorted(np.sort(m[m >= 0]), at) for m in (*moments, run.finish_ps)]
        offered = np.polyfit(at, counts[0], 1)[0]  # what this run was offered, its chance included
        growth.append([np.polyfit(at, a - b, 1)[0] / offered for a, b in itertools.pairwise(counts)])
    growths = dict(zip(("prefill", "decode", "link", "resident"), np.mean(growth, axis=0), strict=True))
    half = student.ppf(1 - ALARM / 2, 4) * np.std(rates, ddof=1) / np.sqrt(5)
    assert half < 0.03 * answer.rate_per_s
    assert abs(np.mean(rates) / answer.rate_per_s - 1) <= 0.03, (rates, answer.rate_per_s)
    queue = "decode" if binding == "link" else binding  # handed over, and the transfer has not begun
    assert growths[queue] > 0.02, growths
    assert all(abs(value) < 0.01 for name, value in growths.items() if name != queue), growths
    use = answer.group("prefill").link_use
    assert (use is not None and use > 0.999) == (binding == "link")
