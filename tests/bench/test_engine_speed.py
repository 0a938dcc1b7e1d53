"""Speed of the engine; run with `pytest -m bench tests/bench/test_engine_speed.py -s`. Times are CPU seconds.

The reference simulators of this field manage about 1 300 iterations and 300 requests per CPU second.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, Scheduler, simulate
from tileq_engine.queues import single_server
from tileq_engine.records import SLOT_FIELDS, record_dtype
from tileq_engine.registry import policy
from tileq_theory.iteration_time import IterationTime

pytestmark = pytest.mark.bench

# Llama-3-8B on an A100-like device: weight floor 10 ms, about 45 us a token, KV and attention reads
LLAMA = IterationTime(
    launch_s=0.001, weight_floor_s=0.0105, token_s=6.2e-5, pair_s=2.0e-10, kv_token_s=8.6e-8, sequence_s=1e-5
)


def conversation_like(count: int, rate_per_s: float, seed: int) -> Requests:
    """Lengths with the means of the Azure conversation trace: prompts about 1155, outputs about 211 tokens."""
    rng = np.random.default_rng(seed)
    prompt = np.clip(rng.lognormal(np.log(1155) - 0.5 * 0.9**2, 0.9, count), 3, 14_000)
    output = np.clip(rng.gamma(1.6, 211 / 1.6, count), 1, 1_000)
    return Requests.from_arrays(
        arrival_s=rng.exponential(1 / rate_per_s, count).cumsum(),
        prompt_tokens=np.rint(prompt),
        output_tokens=np.rint(np.maximum(output, 1)),
    ).with_tiers(seed=seed)


def report(line: str) -> None:
    """Show a measured figure where pytest's -s lets it through."""
    sys.stdout.write(line + "\n")


def cpu_seconds(action: object, repeats: int = 3) -> float:
    best = np.inf
    for _ in range(repeats):
        start = time.process_time()
        action()  # type: ignore[operator]
        best = min(best, time.process_time() - start)
    return float(best)


def unavoidable(decided: int, jumped: int, residents: int, gaps: np.ndarray) -> Callable[[], None]:
    """What no simulator that keeps these results can leave out, as one bare compiled loop without a policy.

    A decided iteration: its duration, one entry of the gap histogram, and for each resident that decodes its tokens,
    the time of its last token and its largest gap, in records of the engine's size. A jumped one: duration and gap.
    At the end the distinct gaps, which the result has in order, are sorted.
    """
    from numba import njit

    @njit
    def loop(B: Any, bins: Any, decided: int, jumped: int, k: float) -> int:
        now, kv = 0, 1_000_000
        for i in range(decided + jumped):
            kv += len(B)
            duration = int(1.15e10 + k * kv + 0.5)
            now += duration
            bins[(duration >> 22) & 4095] += len(B)
            if i < decided:
                for j in range(len(B)):
                    b = B[j]
                    b.cached += 1
                    b.gen += 1
                    gap = now - b.last
                    if gap > b.max_gap:
                        b.max_gap = gap
                    if 0 < b.limit < gap:
                        b.over += 1
                    b.last = now
        return now

    B, bins = np.zeros(residents, dtype=record_dtype(SLOT_FIELDS)), np.zeros(4096, dtype=np.int64)
    mixed = np.random.default_rng(0).permutation(gaps)
    return lambda: (loop(B, bins, decided, jumped, 8.6e4), np.sort(mixed))[0]


@pytest.mark.parametrize("name", ["sarathi", "slai", "vllm_v1"])
def test_conversation_rate(name: str) -> None:
    asked = conversation_like(4000, 6.45, 1)
    config = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=400_000, watermark=0.01)
    rule = policy(name)
    run = simulate(asked, rule, LLAMA, config)
    count, jumped = run.counters["iterations"], run.counters["jumped_iterations"]
    residents = round(float(run.samples.decode_tokens.mean()))
    for mode in ("compiled", "stepped"):
        seconds = cpu_seconds(lambda mode=mode: simulate(asked, rule, LLAMA, config, mode=mode), repeats=7)
        leapt = jumped if mode == "compiled" else 0
        bare = unavoidable(count - leapt, leapt, residents, run.gaps.gap_ps)
        bare()
        floor = cpu_seconds(bare)
        report(
            f"\n{name} {mode}: {seconds * 1e3:.1f} ms, {count / seconds:,.0f} iterations/s, "
            f"{4000 / seconds:,.0f} requests/s, {count / seconds / 1300:.0f} and "
            f"{4000 / seconds / 300:.0f} times the field's ({count} iterations, {leapt} jumped, mean decodes "
            f"{residents}); unavoidable {floor * 1e3:.2f} ms, {100 * floor / seconds:.0f} %"
        )
    assert run.counters["finished"] == 4000


def test_decision_from_python() -> None:
    scheduler = Scheduler(
        policy("slai"), EngineConfig(token_budget=2048, max_num_seqs=256, kv_tokens=10**7), capacity=300
    )
    for i in range(256):
        scheduler.add(prompt_tokens=8, output_tokens=100_000, tbt_limit_s=0.1 if i % 20 == 0 else 0.5)
    times = []
    now = 0
    for _ in range(300):
        start = time.perf_counter()
        scheduler.decide(now)
        times.append(time.perf_counter() - start)
        scheduler.complete(30_000_000_000)
        now += 30_000_000_000
    report(f"\none decision on 256 residents: {np.median(times) * 1e6:.1f} us median")


def test_against_lindley() -> None:
    """The engine against numpy's recursion, vectorised and customer by customer, and against what cannot be avoided.

    The unavoidable part: one pass that reads each customer's arrival and service and writes its start and end, and
    the other arrays of a run's result. Where requests cannot be taken one by one (here: smallest first) the engine
    keeps a record a request and asks its rules; that figure is given beside it.
    """
    from numba import njit

    rng = np.random.default_rng(3)
    n = 1_000_000
    gap, service = rng.exponential(1.0, n), rng.exponential(0.8, n)
    queue = single_server(gap.cumsum(), service)
    queue.run()
    general = single_server(gap.cumsum(), service, discipline="sjf")
    general.run()

    def lindley() -> None:
        step = service[:-1] - gap[1:]
        walk = np.concatenate([[0.0], np.cumsum(step)])
        walk - np.minimum.accumulate(walk)

    def one_by_one() -> None:
        wait, steps = 0.0, service[:-1] - gap[1:]
        for step in steps:
            wait = np.maximum(wait + step, 0.0)

    @njit
    def recursion(arrival: Any, ticks: Any, tick: float, start: Any, end: Any) -> None:
        now = 0
        for i in range(len(arrival)):
            now = max(now, arrival[i])
            start[i] = now
            now += int(tick * ticks[i] + 0.5)
            end[i] = now

    def bare() -> None:
        start, end = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
        recursion(queue.requests.arrival_ps, queue.requests.prompt_tokens, 8e5, start, end)
        np.ones(n, dtype=np.int64), np.full(n, 3)
        [np.zeros(n, dtype=np.int64) for _ in range(6)]

    bare()
    ours, theirs, floor = (cpu_seconds(f, repeats=10) for f in (queue.run, lindley, bare))
    looped, heap = cpu_seconds(one_by_one, repeats=1), cpu_seconds(general.run)
    report(
        f"\nM/M/1 of 10^6: engine {ours * 1e3:.1f} ms, numpy Lindley {theirs * 1e3:.1f} ms vectorised (ratio "
        f"{ours / theirs:.2f}) and {looped * 1e3:.0f} ms one by one (ratio {ours / looped:.3f}); unavoidable "
        f"{floor * 1e3:.1f} ms, {100 * floor / ours:.0f} %; smallest first, by the general loop, {heap * 1e3:.0f} ms"
    )
    assert ours < 3 * theirs


def test_a_million_requests() -> None:
    asked = conversation_like(1_000_000, 6.45, 2)
    config = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=400_000, watermark=0.01)
    rule = policy("sarathi")
    simulate(asked.head(100), rule, LLAMA, config)
    start = time.process_time()
    run = simulate(asked, rule, LLAMA, config)
    seconds = time.process_time() - start
    report(
        f"\n10^6 requests: {seconds:.1f} CPU s, {run.counters['iterations'] / seconds:,.0f} iterations/s, "
        f"{1e6 / seconds:,.0f} requests/s"
    )


_CHILD = """
import sys, time
sys.path.insert(0, {here!r})
from test_engine_speed import LLAMA, conversation_like
from tileq_engine import EngineConfig, simulate
from tileq_engine.registry import policy
asked = conversation_like({count}, 6.45, 2)
config = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=400_000, watermark=0.01)
simulate(asked, policy("sarathi"), LLAMA, config)
with open("/proc/self/status") as status:  # ru_maxrss would be inherited from the parent
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(peak / 1024, time.process_time())
"""


def child(count: int) -> tuple[float, float]:
    """Peak MiB and CPU seconds of a new process that simulates `count` requests, imports included."""
    code = _CHILD.format(here=str(Path(__file__).parent), count=count)
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    return float(out[0]), float(out[1])


@pytest.mark.skipif(sys.platform != "linux", reason="the peak memory of a process is read from /proc")
def test_memory_grows_with_requests_alone() -> None:
    """Peak memory of a new process at 0.5, 1 and 2 million requests: the slope gives that of 10^7."""
    sizes = (500_000, 1_000_000, 2_000_000)
    peaks = [child(n)[0] for n in sizes]
    slope, base = np.polyfit(sizes, peaks, 1)
    report(
        f"\npeak memory {', '.join(f'{p:.0f}' for p in peaks)} MiB at {sizes}: {slope * 2**20:.0f} bytes a request, "
        f"{(base + slope * 1e7) / 1024:.1f} GiB at 10^7 (extrapolated)"
    )
    assert slope * 2**20 < 1500


@pytest.mark.skipif(sys.platform != "linux", reason="the child reads its peak memory from /proc")
def test_warm_start_of_a_new_process() -> None:
    child(100)  # fills the compiled code's cache
    report(f"\nwarm start, imports and a run of 100 requests in a new process: {child(100)[1]:.2f} CPU s")
