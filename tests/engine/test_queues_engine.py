"""Exact queues as settings of the compiled engine, against closed forms, a path recursion, and simpy and Ciw.

Statistical checks: REPLICATIONS independent replications of CUSTOMERS customers, the first WARMUP cut; the exact value
has to lie in the two-sided t-interval of confidence 1 - .01/CHECKS. By Bonferroni the family of CHECKS intervals below
raises a false alarm with probability at most 1 %, each alone at most .01/CHECKS: so every one is (more than) a 99 %
interval. Half-widths are bounded too, so that no check passes by being wide. The start-up bias that WARMUP leaves is
below a hundredth of the half-widths at these loads. Peers (simpy, Ciw) see the very same arrivals and services where
they can, and then have to agree path by path, not in the mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ciw
import numpy as np
import pytest
import queues_exact as exact
import simpy
from scipy.stats import t as student

from tileq_engine.queues import dynamic_batching, priority_queue, single_server

REPLICATIONS, CUSTOMERS, WARMUP, SEED = 20, 20_000, 1_000, 77_000
CHECKS = 18  # intervals asked for below, counted by the last test
RESOLUTION = 0.06  # largest half-width, relative
LAM = 0.7
_asked: list[str] = []


def draws(seed: int, lam: float, size: str = "exp") -> tuple[np.ndarray, np.ndarray]:
    """Poisson arrivals of rate `lam` and services of mean 1: exponential, constant, or uniform on [0, 2]."""
    g = np.random.default_rng(seed)
    arrival = g.exponential(1 / lam, CUSTOMERS).cumsum()
    service = {"exp": g.exponential(1.0, CUSTOMERS), "one": np.ones(CUSTOMERS), "uniform": g.uniform(0, 2, CUSTOMERS)}
    return arrival, service[size]


def response(run: Any) -> np.ndarray:
    """Seconds from arrival to end of those admitted after the warm-up."""
    kept = run.status[WARMUP:] == 3
    return np.asarray((run.finish_ps - run.arrival_ps)[WARMUP:][kept] * 1e-12)


def holds(name: str, value: float, one: Callable[[int], float]) -> None:
    """Ask the interval of the replications' mean to hold `value` and to be narrow enough to mean something."""
    _asked.append(name)
    means = np.array([one(SEED + 1000 * len(_asked) + i) for i in range(REPLICATIONS)])
    half = student.ppf(1 - 0.005 / CHECKS, REPLICATIONS - 1) * means.std(ddof=1) / math.sqrt(REPLICATIONS)
    assert half < RESOLUTION * value, f"{name}: {means.mean():.4f} +- {half:.4f} is too wide to tell"
    assert abs(means.mean() - value) <= half, f"{name}: {means.mean():.4f} +- {half:.4f} misses {value:.4f}"


MEANS = {
    "M/M/1": ("fcfs", "exp", 0.7, exact.mm1_response(0.7, 1.0)),
    "M/D/1": ("fcfs", "one", 0.8, exact.md1_response(0.8, 1.0)),
    "M/U/1": ("fcfs", "uniform", 0.7, exact.mg1_fcfs_response(0.7, 1.0, 4 / 3)),
    "SJF .5": ("sjf", "exp", 0.5, exact.exp1_sjf(0.5)),
    "SJF .7": ("sjf", "exp", 0.7, exact.exp1_sjf(0.7)),
    "PSJF .5": ("psjf", "exp", 0.5, exact.exp1_psjf(0.5)),
    "PSJF .7": ("psjf", "exp", 0.7, exact.exp1_psjf(0.7)),
    "SRPT .5": ("srpt", "exp", 0.5, exact.exp1_srpt(0.5)),
    "SRPT .7": ("srpt", "exp", 0.7, exact.exp1_srpt(0.7)),
}


@pytest.mark.parametrize("name", MEANS)
def test_single_server(name: str) -> None:
    discipline, size, lam, value = MEANS[name]

    def one(seed: int) -> float:
        tick_s = 1e-3 if discipline in ("psjf", "srpt") else 1e-6  # preemption waits for the end of a tick
        run = single_server(*draws(seed, lam, size), discipline=discipline, tick_s=tick_s).run()
        return float(response(run).mean())

    holds(name, value, one)


def test_finite_room() -> None:
    lam, places = 0.9, 4
    loss, mean = exact.mm1k(lam, 1.0, places)

    def run(seed: int) -> Any:
        return single_server(*draws(seed, lam), places=places).run()

    holds("M/M/1/4 loss", loss, lambda seed: float(np.mean(run(seed).status[WARMUP:] == 4)))
    holds("M/M/1/4 response", mean, lambda seed: float(response(run(seed)).mean()))


def test_two_classes_without_preemption() -> None:
    lam1, lam2 = 0.2, 0.5
    first, second = exact.priority_waits(lam1, lam2, 1.0)

    def of_class(cls: int) -> Callable[[int], float]:
        def one(seed: int) -> float:
            arrival, service = draws(seed, lam1 + lam2)
            urgency = (np.random.default_rng([seed, 1]).random(CUSTOMERS) >= lam1 / (lam1 + lam2)).astype(int)
            run = priority_queue(arrival, service, urgency).run()
            return float(response(run)[urgency[WARMUP:] == cls].mean())

        return one

    holds("priority, urgent", first + 1, of_class(0))
    holds("priority, other", second + 1, of_class(1))


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.7])
def test_dynamic_batching(rho: float) -> None:
    alpha, tau0 = 0.1438, 1.8874  # ms (Inoue, V100)

    def one(seed: int) -> float:
        arrival, _ = draws(seed, rho / alpha)
        return float(response(dynamic_batching(arrival, alpha_s=alpha, tau0_s=tau0).run()).mean())

    holds(f"dynamic batching {rho}", exact.inoue_response(rho / alpha, alpha, tau0), one)


# -------------------------------------------------------------------- other people's simulators


def simpy_ends(arrival: np.ndarray, service: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Ends of service in simpy: one server, the waiting of the smallest key first, no preemption."""
    env = simpy.Environment()
    server = simpy.PriorityResource(env, capacity=1)
    ends = np.zeros(len(arrival))

    def customer(i: int):  # type: ignore[no-untyped-def]
        yield env.timeout(arrival[i])
        with server.request(priority=key[i]) as turn:
            yield turn
            yield env.timeout(service[i])
        ends[i] = env.now

    for i in range(len(arrival)):
        env.process(customer(i))
    env.run()
    return ends


@pytest.mark.parametrize("discipline", ["fcfs", "sjf", "priority"])
def test_path_by_path_as_simpy(discipline: str) -> None:
    n = 2_000
    arrival, service = (v[:n] for v in draws(SEED, 0.8))
    urgency = np.random.default_rng(SEED).integers(0, 2, n)
    key = {"fcfs": np.zeros(n), "sjf": service, "priority": urgency}[discipline]
    tick = 1e-7
    if discipline == "priority":
        run = priority_queue(arrival, service, urgency, tick_s=tick).run()
    else:
        run = single_server(arrival, service, discipline=discipline, tick_s=tick).run()
    apart = np.abs(run.finish_ps * 1e-12 - simpy_ends(arrival, service, key))
    assert apart.max() <= n * tick / 2 + 1e-9  # every service is rounded to the tick once


def test_path_by_path_as_ciw() -> None:
    n = 1_500
    arrival, service = (v[:n] for v in draws(SEED + 1, 0.8))
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*np.diff(arrival, prepend=0.0), math.inf])],
        service_distributions=[ciw.dists.Sequential(list(service))],
        number_of_servers=[1],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(10.0 * arrival[-1])
    records = sorted(simulation.get_all_records(), key=lambda r: r.id_number)
    ends = np.array([r.exit_date for r in records])
    run = single_server(arrival, service, tick_s=1e-7).run()
    assert len(ends) == n
    assert np.abs(run.finish_ps * 1e-12 - ends).max() <= n * 1e-7 / 2 + 1e-9


def test_means_of_peers_hold_the_same_value() -> None:
    """Ciw and simpy, of the same draws, under the same interval: the closed forms are refereed twice."""

    def ciw_one(seed: int) -> float:
        ciw.seed(seed)
        network = ciw.create_network(
            arrival_distributions=[ciw.dists.Exponential(0.9)],
            service_distributions=[ciw.dists.Exponential(1.0)],
            number_of_servers=[1],
            queue_capacities=[3],
        )
        simulation = ciw.Simulation(network)
        simulation.simulate_until_max_time(3_000)
        served = [r for r in simulation.get_all_records() if r.record_type == "service" and r.arrival_date > 300]
        return float(np.mean([r.exit_date - r.arrival_date for r in served]))

    holds("Ciw M/M/1/4", exact.mm1k(0.9, 1.0, 4)[1], ciw_one)

    def simpy_one(seed: int) -> float:
        n = 3_000
        arrival, service = (v[:n] for v in draws(seed, 0.5))
        return float((simpy_ends(arrival, service, service) - arrival)[300:].mean())

    holds("simpy SJF", exact.exp1_sjf(0.5), simpy_one)


def test_lindley_recursion_to_the_bit() -> None:
    arrival, service = draws(SEED + 2, 0.9)
    run = single_server(arrival, service, tick_s=1e-6).run()
    at = np.rint(arrival * 1e12).astype(np.int64)
    took = np.maximum(np.rint(service / 1e-6), 1).astype(np.int64) * 10**6
    # ends: e_i = max(a_i, e_(i-1)) + s_i, unrolled: cumulated services plus the running maximum of a_i - them
    before = np.concatenate([[0], np.cumsum(took)[:-1]])
    assert np.array_equal(run.finish_ps, np.maximum.accumulate(at - before) + before + took)


def test_the_family_is_as_large_as_stated() -> None:
    """Runs last in this file: a check more or less has to change CHECKS, and with it the intervals."""
    if len(_asked) == 0:
        pytest.skip("the statistical checks were not selected")
    assert len(set(_asked)) <= CHECKS
