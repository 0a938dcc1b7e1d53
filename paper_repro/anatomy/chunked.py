"""Chunked prefill: capacity of Sarathi-Serve over vLLM under strict and loose limits on the time between tokens."""

from __future__ import annotations

__all__ = ["ITEM"]

from typing import Any

import numpy as np

from paper_repro.framework.item import Data, Item
from paper_repro.framework.verdict import Row, shape
from tileq_engine.intervals import paired_interval

# label -> calibration, KV tokens, printed gain under the strict limit, limits s
_SYSTEMS: dict[str, dict[str, Any]] = {
    "Mistral-7B": {
        "calibration": "rtx-6000-ada/mistral-7b",
        "kv_tokens": 14_733 * 16,
        "printed": "2.6",
        "limits": {"strict": 0.1, "loose": 0.5},
    },
    "Yi-34B": {
        "calibration": "a100-sxm-80gb/yi-34b-tp2",
        "kv_tokens": 190_000,
        "printed": "3.7",
        "limits": {"strict": 0.2, "loose": 1.0},
    },
}
_POLICIES = {"Sarathi-Serve": ("sarathi", 512), "vLLM": ("vllm_v0", 8192)}
_DELAY_S = 2.0


def pieces(settings: Any) -> list[dict[str, Any]]:
    """One piece a system, limit, policy and replication."""
    return [
        {"system": s, "limit": limit, "policy": p, "replication": r}
        for s in _SYSTEMS
        for limit in ("strict", "loose")
        for p in _POLICIES
        for r in range(settings["replications"])
    ]


def compute(settings: Any, piece: Any, seed: int) -> dict[str, Any]:
    """Bisect the largest rate with p99 TBT within the limit and median scheduling delay within 2 s, same stream."""
    low, high = 0.02, 8.0
    for _ in range(settings["steps"]):
        middle = float(np.sqrt(low * high))
        if _meets(settings, piece, middle, seed):
            low = middle
        else:
            high = middle
    return {"rate_per_s": low, "above_per_s": high}


def _meets(settings: Any, piece: Any, rate: float, seed: int) -> bool:
    from tileq_engine.config import EngineConfig
    from tileq_engine.registry import policy
    from tileq_engine.requests import Requests
    from tileq_engine.run_raw import run_from_raw
    from tileq_engine.simulator import simulate
    from tileq_theory.calibrations import named_calibration
    from tileq_theory.workloads import named_workload

    system = _SYSTEMS[piece["system"]]
    name, budget = _POLICIES[piece["policy"]]
    count = settings["requests"]
    requests = Requests.from_workload(named_workload("sharegpt"), count, 1000 * seed + piece["replication"], rate=rate)
    config = EngineConfig(
        token_budget=budget,
        max_num_seqs=128,
        kv_tokens=system["kv_tokens"],
        watermark=0.01,
        stop_time_s=3 * count / rate,
    )
    run = simulate(requests, policy(name), named_calibration(system["calibration"]).time, config)
    started = np.where(run.admit_ps >= 0, run.admit_ps, run.end_ps)
    delay_s = float(np.median(started - requests.arrival_ps)) * 1e-12
    tbt_s = run_from_raw(run).metrics().all.tbt_s.p99
    return bool(tbt_s <= system["limits"][piece["limit"]] and delay_s <= _DELAY_S)


def _rates(data: Data, system: str, limit: str, policy: str) -> list[float]:
    return [float(r["rate_per_s"]) for r in data.where(system=system, limit=limit, policy=policy)]


def rows(data: Data) -> list[Row]:
    """The gain under strict limits, and that it shrinks when they are loose."""
    found = []
    for system, d in _SYSTEMS.items():
        gain = {}
        for limit in ("strict", "loose"):
            ours, other = (np.log(_rates(data, system, limit, p)).tolist() for p in _POLICIES)
            gain[limit] = paired_interval(ours, other, 0.95)
        strict, loose = gain["strict"], gain["loose"]
        seconds = d["limits"]["strict"]
        text = f"{np.exp(strict.estimate):.2f} [{np.exp(strict.low):.2f}, {np.exp(strict.high):.2f}] times (95 %)"
        good = strict.estimate > loose.estimate and strict.low > np.log(1.3)
        rates = ", ".join(f"{p} {np.mean(_rates(data, system, 'strict', p)):.2f}/s" for p in _POLICIES)
        reason = (
            f"another GPU, software and trace than the source's; {rates} at p99 TBT {seconds:g} s; with the loose "
            f"limit the gain is {np.exp(loose.estimate):.2f}"
        )
        title = f"{system}: capacity over vLLM under a strict TBT limit"
        found.append(shape(title, f"{d['printed']} times", good, text, reason=reason))
    return found


def plot(data: Data, plt: Any) -> Any:
    """Draw capacities under both limits."""
    figure, panels = plt.subplots(1, 2, figsize=(9.0, 3.8))
    for axes, (system, d) in zip(panels, _SYSTEMS.items(), strict=True):
        for k, (policy, hatch) in enumerate(zip(_POLICIES, ("", "//"), strict=True)):
            means = [float(np.mean(_rates(data, system, limit, policy))) for limit in ("strict", "loose")]
            places = [i + (k - 0.5) * 0.38 for i in range(2)]
            axes.bar(places, means, width=0.36, hatch=hatch, edgecolor="white", label=policy)
        names = [f"{limit}: p99 TBT {1e3 * s:g} ms" for limit, s in d["limits"].items()]
        axes.set_xticks(range(2), names)
        axes.set(ylabel="capacity, requests per second", title=system)
        axes.grid(axis="x", visible=False)
    panels[0].legend(loc="upper left")
    return figure


ITEM = Item(
    name="anatomy-chunked",
    paper="Agrawal et al., Sarathi-Serve, OSDI 2024, arXiv 2403.02310",
    where="capacity under strict TBT limits",
    claim="Chunked prefill raises capacity 2.6 times for Mistral-7B and 3.7 times for Yi-34B over vLLM.",
    simulated="Mistral-7B on an RTX 6000 Ada, Yi-34B on two A100, both calibrated; ShareGPT lengths; 128 slots.",
    smoke={"requests": 150, "replications": 2, "steps": 5},
    full={"requests": 2000, "replications": 5, "steps": 11},
    pieces=pieces,
    compute=compute,
    rows=rows,
    plot=plot,
)
