"""SLAI inside vLLM against vLLM's own scheduler on two tiers: TTFT and TBT of each, measured and simulated.

    python tools/vllm_two_tiers.py [replications] [requests] > two-tiers.json

Runs where vLLM is installed, on a Llama of two layers. The paying tier's TBT limit is near two iterations of `BUDGET`
tokens, so that the budget cannot be larger; the standard tier's is loose: there SLAI has decodes that it can put off.
Every replication has the same requests under every scheduler, at `LOAD` of the saturated rate at that budget; the
schedulers take turns, and the simulator gets the same requests on the iteration time fitted before. vLLM's own runs
at that budget, and at `WIDE` tokens. Times are processor time of one thread.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
for name, value in {**threads, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "ERROR"}.items():
    os.environ.setdefault(name, value)

import numpy as np  # noqa: E402

from tileq.validating_vllm_bench import Fitted, model_folder  # noqa: E402
from tileq_engine.config import EngineConfig  # noqa: E402
from tileq_engine.executor.validation_case import case_requests  # noqa: E402
from tileq_engine.intervals import student_interval  # noqa: E402
from tileq_engine.registry import policy  # noqa: E402
from tileq_engine.requests import Requests  # noqa: E402
from tileq_engine.simulator import simulate  # noqa: E402
from tileq_engine.vllm.driving import drive, make_engine, profile_engine  # noqa: E402
from tileq_theory.iteration_time import IterationTime  # noqa: E402

LOAD, SEATS, BUDGET, WIDE = 0.9, 64, 128, 512
TIERS = {"paying": {"tbt_limit_s": 0.015, "paying": True}, "standard": {"tbt_limit_s": 0.15}}
PAYING_SHARE = 0.2
BLOCKS, BLOCK = 2000, 32
SLAI = {"order": "paying_spf", "mean": "ewma"}
WIDER = f"vLLM, budget {WIDE}"
Row = dict[str, float]


def main(replications: int = 10, count: int = 300) -> dict[str, Any]:
    """Return the measurement as plain data."""
    lengths = lengths_of(count)
    engines = make_engines()
    fit = fitted(engines["SLAI"], lengths)
    time = fit.time
    reference = drive(engines["SLAI"], case_requests(lengths, None, 0), clock="cpu")
    edge = reference.saturated_rate_per_s(float((lengths.prompt_tokens + lengths.output_tokens - 1).mean()))
    assert edge is not None
    rows: dict[str, list[Row]] = {name: [] for name in engines}
    simulated: dict[str, list[Row]] = {name: [] for name in engines}
    for k in range(replications):
        asked, paying = asked_of(lengths, LOAD * edge, k)
        tiers = ["paying" if p else "standard" for p in paying]
        names = list(engines)
        for name in names[k % len(names) :] + names[: k % len(names)]:
            driven = drive(engines[name], asked, tiers if name == "SLAI" else None, seed=k, clock="cpu")
            gaps = {tier: driven.tbt_s(places.tolist()) for tier, places in places_of(paying).items()}
            rows[name].append(row_of(driven.ttft_s, gaps, paying))
            simulated[name].append(simulate_row(name, asked, paying, time))
            sys.stderr.write(f"{k} {name} {json.dumps({a: round(b, 2) for a, b in rows[name][-1].items()})}\n")
    found: dict[str, Any] = {
        "edge_per_s": edge,
        "load": LOAD,
        "replications": replications,
        "median_error": fit.median_error,
    }
    found["time"] = {"launch_s": time.launch_s, "token_s": time.token_s, "sequence_s": time.sequence_s}
    for title, of in (("measured", rows), ("simulated", simulated)):
        found[title] = {name: {key: interval([r[key] for r in own]) for key in own[0]} for name, own in of.items()}
        found[f"{title}, SLAI over"] = {
            name: {key: ratio([r[key] for r in of["SLAI"]], [r[key] for r in own]) for key in own[0] if "ttft" in key}
            for name, own in of.items()
            if name != "SLAI"
        }
    return found


def lengths_of(count: int) -> Requests:
    """Return the requests' lengths, all at time 0."""
    rng = np.random.default_rng(5)
    prompt, output = rng.integers(64, 513, count), rng.integers(20, 61, count)
    return Requests.from_arrays(arrival_ps=[0] * count, prompt_tokens=prompt, output_tokens=output)


def asked_of(lengths: Requests, rate_per_s: float, seed: int) -> tuple[Requests, np.ndarray]:
    """Return the requests at their arrivals with their tiers, and which pay."""
    paying = np.random.default_rng([9, seed]).random(len(lengths)) < PAYING_SHARE
    limits = np.where(paying, TIERS["paying"]["tbt_limit_s"], TIERS["standard"]["tbt_limit_s"])
    asked = case_requests(lengths, rate_per_s, seed=seed)
    return asked.with_(tbt_limit_ps=np.round(limits * 1e12).astype(np.int64), paying=paying), paying


def make_engines() -> dict[str, Any]:
    """Return the engines by name."""
    folder = model_folder("small")
    common = {
        "load_format": "dummy",
        "dtype": "float32",
        "max_model_len": 640,
        "max_num_seqs": SEATS,
        "block_size": BLOCK,
        "num_gpu_blocks_override": BLOCKS + 1,
        "enable_prefix_caching": False,
    }
    engines = {"vLLM": make_engine(folder, None, max_num_batched_tokens=BUDGET, **common)}
    engines[WIDER] = make_engine(folder, None, max_num_batched_tokens=WIDE, **common)
    own = {"policy": "slai", "params": SLAI, "tiers": TIERS, "token_budget": BUDGET}
    engines["SLAI"] = make_engine(folder, "SlaiScheduler", own, max_num_batched_tokens=WIDE, **common)
    return engines


def fitted(engine: Any, lengths: Requests) -> Fitted:
    """Return the iteration time of this vLLM, fitted."""
    budgets, crowds = [SEATS, BUDGET, 256, WIDE], [4, 20, 40, SEATS]
    return Fitted.to(profile_engine(engine, lengths, budgets, crowds, steps=45, clock="cpu"))


def simulate_row(name: str, asked: Requests, paying: np.ndarray, time: IterationTime) -> Row:
    """Return what the simulator says of the same requests."""
    rules = policy("slai", **SLAI) if name == "SLAI" else policy("vllm_v1", admission="sequence")
    config = EngineConfig(
        token_budget=WIDE if name == WIDER else BUDGET, max_num_seqs=SEATS, kv_tokens=BLOCK * BLOCKS, block_tokens=BLOCK
    )
    raw = simulate(asked, rules, time, config)
    groups = np.asarray(asked.group)
    gaps = {}
    for tier, places in places_of(paying).items():
        chosen = np.isin(raw.gaps.group, groups[places])
        gaps[tier] = np.repeat(raw.gaps.gap_ps[chosen], raw.gaps.count[chosen]) * 1e-12
    return row_of((raw.first_token_ps - raw.arrival_ps) * 1e-12, gaps, paying)


def places_of(paying: np.ndarray) -> dict[str, np.ndarray]:
    """Return the requests of each tier."""
    return {"paying": np.flatnonzero(paying), "standard": np.flatnonzero(~paying)}


def row_of(ttft_s: np.ndarray, gaps_s: dict[str, np.ndarray], paying: np.ndarray) -> Row:
    """Return a replication's figures."""
    row = {}
    for tier, places in places_of(paying).items():
        ttft, gaps = 1e3 * np.asarray(ttft_s)[places], 1e3 * gaps_s[tier]
        row |= {
            f"{tier} ttft_p50_ms": float(np.median(ttft)),
            f"{tier} ttft_p95_ms": float(np.quantile(ttft, 0.95)),
            f"{tier} tbt_p50_ms": float(np.median(gaps)),
            f"{tier} tbt_p99_ms": float(np.quantile(gaps, 0.99)),
            f"{tier} over_limit_percent": 100 * float(np.mean(gaps > 1e3 * TIERS[tier]["tbt_limit_s"])),
        }
    return row


def interval(values: list[float]) -> list[float]:
    """Return the mean and half of its 95 % interval over replications."""
    found = student_interval(values)
    return [found.estimate, found.half_width]


def ratio(ours: list[float], theirs: list[float]) -> list[float]:
    """Return the geometric mean of the ratios, replication by replication, and its 95 % interval."""
    mean, half = interval(np.log(np.divide(ours, theirs)).tolist())
    return [float(np.exp(mean)), float(np.exp(mean - half)), float(np.exp(mean + half))]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*map(int, sys.argv[1:])), indent=1) + "\n")
