"""Speed of the engine; run with `pytest -m bench tests/bench/test_engine_speed.py -s`. Times are CPU seconds.

The reference simulators of this field manage about 1 300 iterations and 300 requests per CPU second.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from tileq_engine import EngineConfig, Requests, Scheduler, simulate
from tileq_engine.queues import single_server
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


@pytest.mark.parametrize("name", ["sarathi", "slai", "vllm_v1"])
def test_conversation_rate(name: str) -> None:
    asked = conversation_like(4000, 6.45, 1)
    config = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=400_000, watermark=0.01)
    rule = policy(name)
    run = simulate(asked, rule, LLAMA, config)
    for mode in ("compiled", "stepped"):
        seconds = cpu_seconds(lambda mode=mode: simulate(asked, rule, LLAMA, config, mode=mode))
        report(
            f"\n{name} {mode}: {seconds * 1e3:.1f} ms, {run.counters['iterations'] / seconds:,.0f} iterations/s, "
            f"{4000 / seconds:,.0f} requests/s ({run.counters['iterations']} iterations, "
            f"{run.counters['jumped_iterations']} jumped, mean running "
            f"{run.samples.running.mean():.0f})"
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
    rng = np.random.default_rng(3)
    n = 1_000_000
    gap, service = rng.exponential(1.0, n), rng.exponential(0.8, n)
    queue = single_server(gap.cumsum(), service)
    queue.run()

    def lindley() -> None:
        step = service[:-1] - gap[1:]
        walk = np.concatenate([[0.0], np.cumsum(step)])
        walk - np.minimum.accumulate(walk)

    ours, theirs = cpu_seconds(queue.run), cpu_seconds(lindley)
    report(
        f"\nM/M/1 of 10^6: engine {ours * 1e3:.0f} ms, numpy Lindley {theirs * 1e3:.0f} ms, ratio {ours / theirs:.1f}"
    )


def test_a_million_requests() -> None:
    asked = conversation_like(1_000_000, 6.45, 2)
    config = EngineConfig(token_budget=512, max_num_seqs=128, kv_tokens=400_000, watermark=0.01)
    rule = policy("sarathi")
    simulate(asked.head(100), rule, LLAMA, config)
    start = time.process_time()
    run = simulate(asked, rule, LLAMA, config)
    seconds = time.process_time() - start
    report(f"\n10^6 requests: {seconds:.1f} CPU s, {run.counters['iterations'] / seconds:,.0f} iterations/s")
