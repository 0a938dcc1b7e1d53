"""Capacity of a policy by bisection on one random stream, and SLAI against Sarathi-Serve at SLAI's capacity."""

from __future__ import annotations

__all__ = ["capacities", "pair"]

from collections.abc import Callable, Mapping
from typing import Any

from paper_repro.slai.serving import SARATHI, SLAI, Measured, feasible, serve

_LOWEST, _HIGHEST = 0.05, 3.2


def _largest(meets: Callable[[float], bool], low: float, high: float, step: float) -> float:
    """Return the largest rate that meets, within `step` from below; 0 where not even `low` does."""
    if not meets(low):
        return 0.0
    while high - low > step:
        middle = (low + high) / 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def capacities(
    label: str, settings: Mapping[str, Any], setting: Mapping[str, Any], seed: int, replication: int
) -> dict[str, float]:
    """Return the largest rates with median TTFT < .5 s ("ttft"), and with p99 TBT within the limits too ("both").

    Both are searched on the same stream, so a rate that was served once is not served again.
    """
    known: dict[float, Measured] = {}

    def at(rate: float) -> Measured:
        if rate not in known:
            known[rate] = serve(label, rate, settings["horizon_s"], setting, seed, replication)
        return known[rate]

    step = settings["step"]
    ttft = _largest(lambda rate: feasible(at(rate), tbt=False), _LOWEST, _HIGHEST, step)
    if not ttft:
        return {"ttft": 0.0, "both": 0.0}
    both = ttft if feasible(at(ttft)) else _largest(lambda rate: feasible(at(rate)), _LOWEST, ttft, step)
    return {"ttft": ttft, "both": both}


def pair(settings: Mapping[str, Any], setting: Mapping[str, Any], seed: int, replication: int) -> dict[str, float]:
    """Return both policies' capacities, their median TTFT where SLAI's own reaches .5 s, and what TBT is there."""
    ours = capacities(SLAI, settings, setting, seed, replication)
    other = capacities(SARATHI, settings, setting, seed, replication)
    rate = ours["ttft"] or _LOWEST
    slai, sarathi = (serve(p, rate, settings["horizon_s"], setting, seed, replication) for p in (SLAI, SARATHI))
    return {
        "slai_ttft": ours["ttft"],
        "slai_both": ours["both"],
        "sarathi_ttft": other["ttft"],
        "sarathi_both": other["both"],
        "slai_median_s": slai.ttft_p50_s,
        "sarathi_median_s": sarathi.ttft_p50_s,
        "slai_paying_tbt_s": slai.tbt_p99_s["paying"],
        "slai_standard_tbt_s": slai.tbt_p99_s["standard"],
    }
