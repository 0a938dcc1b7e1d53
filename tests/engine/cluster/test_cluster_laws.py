"""Routers against their laws, on exponential services: N queues of one server, Poisson arrivals at N rho.

Random routing splits a Poisson stream into independent ones: each node is M/M/1, P(queue >= k) = rho^k for every N.
Power of two has the mean-field fixed point rho^(2^k - 1) (Vvedenskaya, Dobrushin and Karpelevich, Probl. Inf. Transm.
32(1), 1996; Mitzenmacher, IEEE TPDS 12(10), 2001) with an error of order 1/N, which the values at N and 2N remove. Join
the shortest queue: P(queue >= 1) = rho and P(queue >= 2) -> 0 for N -> infinity; on two nodes its chain is solved.

Intervals: each replication is one number; Student's t over them at a false-alarm rate of 1e-4 a number checked.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from scipy.stats import t as student

from tileq_engine import EngineConfig, Requests
from tileq_engine.cluster import Cluster, ClusterRun, Node, simulate_cluster
from tileq_theory.iteration_time import IterationTime

ALARM = 1e-4
TICK_S = 1e-6  # a service of mean 1 s is a prompt of a million tokens on average: exponential to 1e-6


def run_queues(nodes: int, rho: float, router: str, count: int, seed: int) -> ClusterRun:
    rng = np.random.default_rng((seed, nodes))
    requests = Requests.from_arrays(
        arrival_s=rng.exponential(1 / (nodes * rho), count).cumsum(),
        prompt_tokens=np.maximum(np.rint(rng.exponential(1 / TICK_S, count)), 1),
        output_tokens=1,
    )
    config = EngineConfig(token_budget=2**31 - 2, max_num_seqs=1, sample_limit=2, gap_mode="histogram")
    server = Node("server", IterationTime(token_s=TICK_S), "sarathi", config, count=nodes)
    return simulate_cluster(requests, Cluster([server], router=router), seed=seed)


def tails(run: ClusterRun, most: int = 6) -> np.ndarray:
    """P(queue of a node >= k), k = 1..most, over time and nodes, between a tenth of the run and the last arrival."""
    low, high = int(0.1 * run.requests.arrival_ps[-1]), int(run.requests.arrival_ps[-1])
    span = np.zeros(most)
    for r in range(len(run.nodes)):
        own = run.node == r
        at = np.concatenate([run.requests.arrival_ps[own], run.finish_ps[own]])
        step = np.concatenate([np.ones(own.sum()), -np.ones(own.sum())])
        order = np.lexsort((step, at))
        at, level = at[order], np.cumsum(step[order])
        lasts = np.clip(np.append(at[1:], high), low, high) - np.clip(at, low, high)
        span += [float(lasts[level >= k].sum()) for k in range(1, most + 1)]
    return span / ((high - low) * len(run.nodes))


def interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over replications (rows) and half width at the false-alarm rate."""
    n = len(values)
    half = student.ppf(1 - ALARM / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return values.mean(axis=0), half


@functools.cache
def replicated(nodes: int, rho: float, router: str, count: int, number: int) -> np.ndarray:
    return np.array([tails(run_queues(nodes, rho, router, count, seed)) for seed in range(number)])


def test_random_is_a_hundred_m_m_1() -> None:
    rho = 0.7
    mean, half = interval(replicated(100, rho, "random", 20_000, 10))
    assert np.all(np.abs(mean - rho ** np.arange(1, 7)) <= half), (mean, half)
    assert half[0] < 0.02


@pytest.mark.parametrize("rho", [0.7, 0.9])
def test_power_of_two_has_its_fixed_point(rho: float) -> None:
    number, count = 10, 30_000
    fifty, hundred = (replicated(n, rho, "power_of_two", count * n // 100, number) for n in (50, 100))
    mean, half = interval(2 * hundred - fifty)  # without the error of order 1/N
    law = rho ** (2.0 ** np.arange(1, 7) - 1)
    assert np.all(np.abs(mean - law)[:4] <= half[:4] + 2e-3), (mean, half, law)
    near, _ = interval(hundred)
    assert np.all(np.abs(near - law)[:3] <= 0.03), (near, law)  # at N = 100 itself: within the error of order 1/N
    assert not np.all(np.abs(near - rho ** np.arange(1, 7)) <= half), "it could not be told from random"


@pytest.mark.parametrize(("rho", "most"), [(0.5, 0.0), (0.7, 1e-3)])
def test_join_the_shortest_queue_of_a_hundred(rho: float, most: float) -> None:
    """At rho = .5 all hundred are busy with probability 1.6e-10 (Poisson, mean 50): over 120 000 arrivals nobody waits
    but with probability 2e-5. At .7 it is 1.4e-4 of the arrivals that do in a common queue, a few more here."""
    mean, half = interval(replicated(100, rho, "jsq", 20_000, 6))
    assert abs(mean[0] - rho) <= half[0]
    assert mean[1] <= most


def shortest_of_two(rho: float, most: int = 60) -> np.ndarray:
    """P(queue >= k), k = 1..6, of one of two nodes under join the shortest queue: the chain on 0..most, solved."""
    size = most + 1
    index = np.arange(size * size).reshape(size, size)
    a = np.zeros((size * size, size * size))
    lam = 2 * rho
    for i in range(size):
        for j in range(size):
            moves = [(i - 1, j, 1.0)] if i else []
            moves += [(i, j - 1, 1.0)] if j else []
            ahead = [(i + 1, j)] if i < j else [(i, j + 1)] if j < i else [(i + 1, j), (i, j + 1)]
            moves += [(x, y, lam / len(ahead)) for x, y in ahead if x < size and y < size]
            for x, y, rate in moves:
                a[index[x, y], index[i, j]] += rate
                a[index[i, j], index[i, j]] -= rate
    a[0] = 1.0
    right = np.zeros(size * size)
    right[0] = 1.0
    law = np.linalg.solve(a, right).reshape(size, size)
    one = 0.5 * (law.sum(axis=0) + law.sum(axis=1))
    return np.array([one[k:].sum() for k in range(1, 7)])


def test_join_the_shortest_queue_of_two_against_its_chain() -> None:
    rho = 0.8
    law = shortest_of_two(rho, 30)
    mean, half = interval(replicated(2, rho, "jsq", 20_000, 16))
    assert np.all(np.abs(mean - law) <= half), (mean, half, law)
    assert law[2] < 0.75 * rho**3  # it is not the law of random routing


def test_round_robin_is_in_turn_and_weights_are_kept() -> None:
    requests = Requests.from_arrays(arrival_s=np.arange(700) * 1e-3, prompt_tokens=[1] * 700, output_tokens=1)
    time = IterationTime.constant(1e-4)
    nodes = [Node("a", time), Node("b", time, weight=2.0), Node("c", time, weight=0.5)]
    run = simulate_cluster(requests, Cluster(nodes, router="round_robin"))
    assert np.bincount(run.node).tolist() == [200, 400, 100]
    drawn = simulate_cluster(requests, Cluster(nodes, router="random"), seed=1)
    counts = np.bincount(drawn.node, minlength=3)
    spread = np.sqrt(700 * np.array([2, 4, 1]) / 7 * (1 - np.array([2, 4, 1]) / 7))
    assert np.all(np.abs(counts - [200, 400, 100]) <= 4.1 * spread)  # false alarms: 1.3e-4 in all
    even = Cluster([Node("even", time, count=3)], router="round_robin")
    assert simulate_cluster(requests, even).node.tolist() == [k % 3 for k in range(700)]
