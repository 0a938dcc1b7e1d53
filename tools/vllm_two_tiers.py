"""SLAI inside vLLM against vLLM's own scheduler on two tiers: TTFT and TBT of each, with intervals.

    python tools/vllm_two_tiers.py [replications] [requests] > two-tiers.json

Runs where vLLM is installed, on a Llama of two layers; every replication has the same requests under every scheduler,
at a rate fixed by the share `LOAD` of vLLM's own saturated rate. Times are processor time of one thread.
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

from tileq.validating_vllm_bench import model_folder  # noqa: E402
from tileq_engine.executor.validation_case import case_requests  # noqa: E402
from tileq_engine.requests import Requests  # noqa: E402
from tileq_engine.vllm.driving import drive, make_engine  # noqa: E402

LOAD, SEATS, BUDGET = 0.97, 32, 512
TIERS = {"paying": {"tbt_limit_s": 0.012, "paying": True}, "standard": {"tbt_limit_s": 0.06}}
PAYING_SHARE = 0.1
_T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}


def main(replications: int = 6, count: int = 400) -> dict[str, Any]:
    """Return the measurement as plain data."""
    rng = np.random.default_rng(5)
    prompt, output = rng.integers(64, 513, count), rng.integers(20, 61, count)
    lengths = Requests.from_arrays(arrival_ps=[0] * count, prompt_tokens=prompt, output_tokens=output)
    folder = model_folder("small")
    common = {
        "load_format": "dummy",
        "dtype": "float32",
        "max_model_len": 640,
        "max_num_seqs": SEATS,
        "max_num_batched_tokens": BUDGET,
        "block_size": 32,
        "num_gpu_blocks_override": 1001,
        "enable_prefix_caching": False,
    }
    slai = {"policy": "slai", "params": {"order": "paying_spf", "mean": "ewma"}, "tiers": TIERS}
    makers = {
        "vLLM": (None, None),
        "Sarathi": ("SarathiScheduler", {"tiers": TIERS}),
        "SLAI": ("SlaiScheduler", slai),
        "SLAI, Theta 2": ("SlaiScheduler", {**slai, "params": {**slai["params"], "theta": 2.0}}),
    }
    engines = {}
    for name, (scheduler, tileq) in makers.items():
        engines[name] = make_engine(folder, scheduler, tileq, **common)
    reference = drive(engines["Sarathi"], case_requests(lengths, None, 0), clock="cpu")
    edge = reference.saturated_rate_per_s(float((prompt + output - 1).mean()))
    assert edge is not None
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in engines}
    for k in range(replications):
        asked = case_requests(lengths, LOAD * edge, seed=k)
        paying = np.random.default_rng([9, k]).random(count) < PAYING_SHARE
        tiers = ["paying" if p else "standard" for p in paying]
        order = list(engines) if k % 2 == 0 else list(engines)[::-1]
        for name in order:
            driven = drive(engines[name], asked, tiers if name != "vLLM" else None, seed=k, clock="cpu")
            row = {}
            for tier, chosen in (("paying", paying), ("standard", ~paying)):
                places = np.flatnonzero(chosen)
                gaps, limit = driven.tbt_s(places.tolist()), TIERS[tier]["tbt_limit_s"]
                row |= {
                    f"{tier} ttft_p50_ms": 1e3 * float(np.median(driven.ttft_s[places])),
                    f"{tier} ttft_p99_ms": 1e3 * float(np.quantile(driven.ttft_s[places], 0.99)),
                    f"{tier} tbt_p50_ms": 1e3 * float(np.median(gaps)),
                    f"{tier} tbt_p99_ms": 1e3 * float(np.quantile(gaps, 0.99)),
                    f"{tier} over_limit_percent": 100 * float(np.mean(gaps > limit)),
                }
            rows[name].append(row)
            sys.stderr.write(f"{k} {name} {json.dumps({a: round(b, 2) for a, b in row.items()})}\n")
    found = {name: {key: interval([row[key] for row in own]) for key in own[0]} for name, own in rows.items()}
    against = {
        name: {key: interval([a[key] - b[key] for a, b in zip(own, rows["vLLM"], strict=True)]) for key in own[0]}
        for name, own in rows.items()
        if name != "vLLM"
    }
    return {"edge_per_s": edge, "load": LOAD, "replications": replications, "by": found, "less_vllm": against}


def interval(values: list[float]) -> list[float]:
    """Return the mean and half of its 95 % interval over replications."""
    half = _T95[len(values)] * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return [float(np.mean(values)), half]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*map(int, sys.argv[1:])), indent=1) + "\n")
