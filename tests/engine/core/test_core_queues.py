"""The classic queues as settings of the engine: path by path against their recursions."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from tileq_engine.queues import dynamic_batching, priority_queue, single_server
from tileq_theory.errors import InputError

N = 400
TICK = 1e-4


def path(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return arrivals and services on a grid, so that recursions in whole ticks are exact."""
    g = np.random.default_rng(seed)
    arrival = np.rint(g.exponential(1.0, N).cumsum() / TICK) * TICK
    return arrival, np.maximum(np.rint(g.exponential(0.8, N) / TICK), 1) * TICK


def whole(values: np.ndarray) -> np.ndarray:
    return np.rint(np.asarray(values) / TICK).astype(int)


def test_fcfs_is_lindley() -> None:
    arrival, service = path(1)
    run = single_server(arrival, service, tick_s=TICK).run()
    free, ends = 0, []
    for a, s in zip(whole(arrival), whole(service), strict=True):
        free = max(free, a) + s
        ends.append(free)
    assert np.array_equal(run.finish_ps, np.array(ends) * 10**8)


def test_sjf() -> None:
    arrival, service = path(2)
    run = single_server(arrival, service, discipline="sjf", tick_s=TICK).run()
    a, s = whole(arrival), whole(service)
    now, next_, waiting, ends = 0, 0, [], np.zeros(N, dtype=int)
    for _ in range(N):
        if not waiting:
            now = max(now, a[next_])
        while next_ < N and a[next_] <= now:
            heapq.heappush(waiting, (s[next_], next_))
            next_ += 1
        _, i = heapq.heappop(waiting)
        now += s[i]
        ends[i] = now
    assert np.array_equal(run.finish_ps, ends * 10**8)


@pytest.mark.parametrize("discipline", ["psjf", "srpt"])
def test_preemptive_disciplines(discipline: str) -> None:
    arrival, service = path(3)
    run = single_server(arrival, service, discipline=discipline, tick_s=TICK).run()
    a, s = whole(arrival), whole(service)
    left, ends, now, next_ = s.copy(), np.zeros(N, dtype=int), 0, 0
    inside: list[int] = []
    while next_ < N or inside:
        if not inside:
            now = max(now, a[next_])
        while next_ < N and a[next_] <= now:
            inside.append(next_)
            next_ += 1
        size = left if discipline == "srpt" else s
        i = min(inside, key=lambda j: (size[j], j))
        until = a[next_] if next_ < N else now + left[i]
        step = min(left[i], max(until - now, 1))
        now += step
        left[i] -= step
        if left[i] == 0:
            ends[i] = now
            inside.remove(i)
    assert np.array_equal(run.finish_ps, ends * 10**8)
    assert run.counters["iterations"] == s.sum()


def test_leaps_make_ticks_free() -> None:
    arrival, service = path(4)
    run = single_server(arrival, service, discipline="srpt").run()
    assert run.counters["jumped_iterations"] > 0.99 * run.counters["iterations"] > 10**7


def test_finite_room_turns_away_what_finds_it_full() -> None:
    arrival, service = path(5)
    run = single_server(arrival, 1.5 * service, places=3, tick_s=TICK).run()
    inside: list[int] = []
    free = 0
    for i, (a, s) in enumerate(zip(whole(arrival), whole(1.5 * service), strict=True)):
        inside = [e for e in inside if e > a]
        if len(inside) >= 3:
            assert run.status[i] == 4 and run.reject_reason[i] == 4
            continue
        free = max(free, a) + s
        inside.append(free)
        assert run.finish_ps[i] == free * 10**8


def test_priority_classes() -> None:
    arrival, service = path(6)
    urgency = np.random.default_rng(7).integers(0, 2, N)
    run = priority_queue(arrival, service, urgency, tick_s=TICK).run()
    a, s = whole(arrival), whole(service)
    now, next_, waiting, ends = 0, 0, [], np.zeros(N, dtype=int)
    for _ in range(N):
        if not waiting:
            now = max(now, a[next_])
        while next_ < N and a[next_] <= now:
            heapq.heappush(waiting, (urgency[next_], next_))
            next_ += 1
        _, i = heapq.heappop(waiting)
        now += s[i]
        ends[i] = now
    assert np.array_equal(run.finish_ps, ends * 10**8)


def test_dynamic_batching_takes_all() -> None:
    g = np.random.default_rng(8)
    arrival = g.exponential(0.003, N).cumsum()
    run = dynamic_batching(arrival, alpha_s=0.0001438, tau0_s=0.0018874).run()
    a = np.rint(arrival * 1e12).astype(np.int64)
    now, next_, ends = 0, 0, np.zeros(N, dtype=np.int64)
    while next_ < N:
        now = max(now, a[next_])
        last = int(np.searchsorted(a, now, side="right"))
        now += 1_887_400_000 + 143_800_000 * (last - next_)
        ends[next_:last] = now
        next_ = last
    assert np.array_equal(run.finish_ps, ends)


def test_bad_settings() -> None:
    with pytest.raises(InputError, match="did you mean srpt"):
        single_server(np.zeros(1), np.ones(1), discipline="srp")
    with pytest.raises(InputError, match="choose a longer tick"):
        single_server(np.zeros(1), np.array([10.0]), tick_s=1e-12)
