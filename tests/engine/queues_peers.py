"""The same queues in other people's simulators (simpy, Ciw) and as settings of the reference loop.

Every function returns the mean response time of one independent replication, the first `WARMUP` customers cut.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import ciw
import simpy
from tileq_reference import Config, Cost, Request, Simulator, simulate

WARMUP = 300
UNIT_S = 1e-5  # a token of service; the grid's bias is half of it
PS = 10**12

Size = Callable[[random.Random], float]


def exp_size(rng: random.Random) -> float:
    return rng.expovariate(1.0)


def one_size(_: random.Random) -> float:
    return 1.0


# -------------------------------------------------------------------- settings of this engine's loop


def requests_of(
    lam: float, size: Size, customers: int, seed: int, shares: tuple[float, float] = (1, 0)
) -> list[Request]:
    """Poisson arrivals; service as a prompt of size / UNIT_S tokens that answers with one token; class by share."""
    rng = random.Random(seed)
    clock, out = 0.0, []
    for i in range(customers):
        clock += rng.expovariate(lam)
        tokens = max(1, round(size(rng) / UNIT_S))
        second = rng.random() >= shares[0] / sum(shares)
        out.append(Request(i, int(clock * PS), tokens, 1, priority=int(second)))
    return out


def single_server(order: str, requests: list[Request], **more: int) -> Simulator:
    """One sequence at a time, no budget, UNIT_S seconds a token: a single server with the given waiting order."""
    config = Config("vllm_v1", budget=1 << 40, max_seqs=1, extra={"order": order}, **more)
    return simulate(requests, config, Cost(beta=UNIT_S * PS))


def batch_server(requests: list[Request], alpha: float, tau0: float) -> Simulator:
    """Take all that wait; service alpha * (batch size) + tau0: Orca with one-token requests."""
    for r in requests:
        r.prompt = 1
    return simulate(requests, Config("orca", budget=1 << 40, max_seqs=1 << 30), Cost(c=tau0 * PS, s=alpha * PS))


def mean_response(s: Simulator, priority: int | None = None) -> float:
    """Seconds from arrival to end, after warm-up, of those admitted (of one class)."""
    kept = [r for r in s.requests[WARMUP:] if r.done_at is not None and priority in (None, r.priority)]
    return statistics.fmean((r.done_at - r.arrival) / PS for r in kept if r.done_at is not None)


# -------------------------------------------------------------------- simpy


def simpy_single_server(
    lam: float,
    size: Size,
    customers: int,
    seed: int,
    key: Callable[[float, int], float],
    shares: tuple[float, float] = (1, 0),
) -> list[tuple[float, int]]:
    """Single server, waiting ones served by key(size, class) first, no preemption: (response, class) of each."""
    rng = random.Random(seed)
    env = simpy.Environment()
    server = simpy.PriorityResource(env, capacity=1)
    out: list[tuple[float, int]] = []

    def customer(service: float, cls: int):  # type: ignore[no-untyped-def]
        came = env.now
        with server.request(priority=key(service, cls)) as turn:  # type: ignore[arg-type]
            yield turn
            yield env.timeout(service)
        out.append((env.now - came, cls))

    def source():  # type: ignore[no-untyped-def]
        for _ in range(customers):
            yield env.timeout(rng.expovariate(lam))
            service, cls = size(rng), int(rng.random() >= shares[0] / sum(shares))
            env.process(customer(service, cls))

    env.process(source())
    env.run()
    return out[WARMUP:]


# -------------------------------------------------------------------- Ciw


def ciw_response(lam: float, service: object, seed: int, horizon: float, capacity: float = float("inf")) -> float:
    """M/G/1/K in Ciw: mean response of the served after the warm-up time."""
    ciw.seed(seed)
    room = {} if capacity == float("inf") else {"queue_capacities": [capacity - 1]}
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(lam)],
        service_distributions=[service],
        number_of_servers=[1],
        **room,
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(horizon)
    served = [r for r in simulation.get_all_records() if r.record_type == "service" and r.arrival_date > WARMUP / lam]
    return statistics.fmean(r.waiting_time + r.service_time for r in served)
