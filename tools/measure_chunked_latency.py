"""Measure the error of `tileq_theory.latency.chunked` against the simulator, and print the table of its docstring.

    python tools/measure_chunked_latency.py [--replications 8] [--requests 8000]

Each point is the mean over replications with independent seeds; the first tenth of the requests is cut. The relative
half width of the 99 % interval stands beside the error.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from scipy.stats import t

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.registry import policy
from tileq_engine.requests import Requests
from tileq_engine.simulator import simulate
from tileq_theory import Geometric, Independent, IterationTime, JointLaw, LogNormal, Uniform
from tileq_theory.latency.chunked import chunked_latency, chunked_saturation_per_s

CASES: dict[str, tuple[JointLaw, IterationTime, int]] = {
    "even": (
        Independent(Uniform(100, 900), Geometric(100)),
        IterationTime(launch_s=0.004, weight_floor_s=0.008, token_s=3e-5, kv_token_s=2e-8),
        512,
    ),
    "tiles": (
        Independent(Uniform(10, 300), Geometric(150)),
        IterationTime.dai(launch_s=0.01128, tile_s=0.03547, tile_tokens=128),
        256,
    ),
    "heavy": (
        Independent(LogNormal(6.5, 1.0, high=16000), LogNormal(5.0, 0.8, high=4000)),
        IterationTime(launch_s=0.002, weight_floor_s=0.008, token_s=4e-5, kv_token_s=3e-8, pair_s=1e-9),
        1024,
    ),
}
LOADS = (0.3, 0.5, 0.7, 0.8, 0.9)
SECONDS = 1e-12  # the simulator counts picoseconds


OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sarathi", {"order": "spf"}),
    ("vllm_v1", {}),
    ("orca", {"chunks": True}),
    ("slai", {}),
)


def measured(
    law: JointLaw, time: IterationTime, budget: int, rate: float, count: int, seed: int, rule: Policy
) -> np.ndarray:
    """Return mean TTFT, p99 TTFT, mean TBT and p99 TBT of one replication, seconds."""
    rng = np.random.default_rng(seed)
    prompts, outputs = law.sample(rng, count)
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    asked = Requests.from_arrays(arrival_s=arrivals, prompt_tokens=prompts, output_tokens=outputs)
    config = EngineConfig(token_budget=budget, max_num_seqs=budget)
    run = simulate(asked, rule, time, config)
    cut = count // 10
    ttft = (run.first_token_ps - run.arrival_ps)[cut:] * SECONDS
    gap, weight = gaps(run)
    order = np.argsort(gap)
    upto = np.cumsum(weight[order])
    p99 = gap[order][np.searchsorted(upto, 0.99 * upto[-1])]
    return np.array([ttft.mean(), np.quantile(ttft, 0.99), float(gap @ weight / weight.sum()), p99])


def gaps(run: object) -> tuple[np.ndarray, np.ndarray]:
    """Return lengths (seconds) and counts of all gaps between tokens."""
    record = run.gaps  # type: ignore[attr-defined]
    return np.asarray(record.gap_ps, dtype=float) * SECONDS, np.asarray(record.count, dtype=float)


def line(case: str, load: float, rule: Policy, order: str, replications: int, requests: int) -> str:
    """Return errors of the approximation, with 99 % half widths, at one load of one case."""
    law, time, budget = CASES[case]
    rate = load * chunked_saturation_per_s(law, time, token_budget=budget)
    model = chunked_latency(rate_per_s=rate, lengths=law, time=time, token_budget=budget, order=order)
    tail = model.ttft_quantile_s(0.99) if order == "fcfs" else np.nan
    said = np.array([model.ttft_s, tail, model.tbt_s, model.tbt_quantile_s(0.99)])
    runs = np.array([measured(law, time, budget, rate, requests, 1000 + r, rule) for r in range(replications)])
    mean = runs.mean(axis=0)
    half = t.ppf(0.995, replications - 1) * runs.std(axis=0, ddof=1) / np.sqrt(replications) / mean
    return "  ".join(f"{100 * e:+6.1f} ±{100 * h:5.1f} %" for e, h in zip(said / mean - 1, half, strict=True))


def main() -> None:
    """Print one line a point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=8)
    parser.add_argument("--requests", type=int, default=8000)
    asked = parser.parse_args()
    size = (asked.replications, asked.requests)
    print("errors, 99 % half widths  TTFT mean        TTFT p99         TBT mean         TBT p99")  # noqa: T201
    for case in CASES:
        for load in LOADS:
            print(f"{case:7s} {load:4.1f}      {line(case, load, policy('sarathi'), 'fcfs', *size)}", flush=True)  # noqa: T201
    for name, settings in OTHERS:
        for load in (0.5, 0.8):
            order = settings.get("order", "fcfs")
            row = line("even", load, policy(name, **settings), order, *size)
            print(f"{name:8s} {order:4s} {load:4.1f} {row}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
