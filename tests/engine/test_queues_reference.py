"""Exact queues as settings of the reference loop, and the same queues in simpy and Ciw in the same run.

Each check asks a 99.9 % t-interval of independent replications to hold the exact value; 13 of them make a family
false-alarm rate of at most 1.3 % (Bonferroni) for a fresh seed. The half-width is bounded too, so that the interval
cannot pass by being wide. Cutting 300 customers leaves a start-up bias far below the interval at these loads.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import ciw
import pytest
import queues_exact as exact
import queues_peers as peers
from scipy.stats import t as student

REPLICATIONS, CUSTOMERS, SEED = 12, 3000, 20260
RESOLUTION = 0.12  # largest half-width, relative


def interval(values: list[float]) -> tuple[float, float]:
    """99.9 % t-interval of the mean of independent replications."""
    half = student.ppf(0.9995, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), float(half)


def holds(value: float, one: Callable[[int], float]) -> None:
    mean, half = interval([one(SEED + i) for i in range(REPLICATIONS)])
    assert half < RESOLUTION * value, f"interval too wide to tell: {mean:.4f} +- {half:.4f}"
    assert abs(mean - value) <= half, f"{mean:.4f} +- {half:.4f} misses {value:.4f}"


LAM = 0.6


@pytest.mark.parametrize(
    ("order", "size", "value"),
    [
        ("fcfs", peers.exp_size, exact.mm1_response(LAM, 1.0)),
        ("fcfs", peers.one_size, exact.md1_response(LAM, 1.0)),
        ("spf", peers.exp_size, exact.exp1_sjf(LAM)),
    ],
    ids=["M/M/1", "M/D/1", "M/M/1 shortest first"],
)
def test_single_server_orders(order: str, size: peers.Size, value: float) -> None:
    def reference(seed: int) -> float:
        return peers.mean_response(peers.single_server(order, peers.requests_of(LAM, size, CUSTOMERS, seed)))

    def simpy(seed: int) -> float:
        key = (lambda service, cls: service) if order == "spf" else (lambda service, cls: 0)
        return statistics.fmean(t for t, _ in peers.simpy_single_server(LAM, size, CUSTOMERS, seed, key))

    holds(value, reference)
    holds(value, simpy)


def test_two_classes_without_preemption() -> None:
    lam1, lam2 = 0.2, 0.4
    waits = exact.priority_waits(lam1, lam2, 1.0)

    def reference(cls: int) -> Callable[[int], float]:
        def one(seed: int) -> float:
            requests = peers.requests_of(lam1 + lam2, peers.exp_size, CUSTOMERS, seed, (lam1, lam2))
            return peers.mean_response(peers.single_server("priority", requests), cls)

        return one

    def simpy(seed: int) -> float:
        out = peers.simpy_single_server(0.6, peers.exp_size, CUSTOMERS, seed, lambda _, cls: cls, (lam1, lam2))
        return statistics.fmean(t for t, cls in out if cls == 0)

    holds(waits[0] + 1, reference(0))
    holds(waits[1] + 1, reference(1))
    holds(waits[0] + 1, simpy)


def test_finite_room() -> None:
    lam, places = 0.9, 4
    loss, response = exact.mm1k(lam, 1.0, places)
    runs = [
        peers.single_server("fcfs", peers.requests_of(lam, peers.exp_size, CUSTOMERS, SEED + i), queue_limit=places)
        for i in range(REPLICATIONS)
    ]
    lost = [statistics.fmean(r.status == "rejected" for r in s.requests[peers.WARMUP :]) for s in runs]
    holds(loss, lambda seed: lost[seed - SEED])
    holds(response, lambda seed: peers.mean_response(runs[seed - SEED]))
    holds(response, lambda s: peers.ciw_response(lam, ciw.dists.Exponential(1.0), s, CUSTOMERS / lam, places))


def test_dynamic_batching() -> None:
    alpha, tau0, rho = 0.1438, 1.8874, 0.5

    def one(seed: int) -> float:
        requests = peers.requests_of(rho / alpha, peers.exp_size, CUSTOMERS, seed)
        return peers.mean_response(peers.batch_server(requests, alpha, tau0))

    holds(exact.inoue_response(rho / alpha, alpha, tau0), one)


def test_ciw_sees_the_same_exact_queue() -> None:
    holds(
        exact.md1_response(LAM, 1.0),
        lambda s: peers.ciw_response(LAM, ciw.dists.Deterministic(1.0), s, CUSTOMERS / LAM),
    )
