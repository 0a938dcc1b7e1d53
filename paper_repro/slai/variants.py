"""What a sensitivity run of the SLAI headline varies: one change at a time, named and grouped."""

from __future__ import annotations

__all__ = ["AUTHORS", "ENGINE", "GROUPS", "variants"]

from typing import Any

from paper_repro.slai.serving import BASE, lengths_at_hand
from paper_repro.slai.setting import CALIBRATION

AUTHORS, ENGINE = "authors' convention", "engine's convention"
GROUPS = ("convention", "cost model", "trace", "memory", "budget", "offset")


def _coefficients() -> dict[str, dict[str, Any]]:
    """Return changes of the iteration time: what was not measured to 0 and twice, the rest to its interval's ends."""
    time = CALIBRATION.time
    found: dict[str, dict[str, Any]] = {
        "KV reads free": {"time": {"kv_token_s": 0.0}},
        "KV reads twice": {"time": {"kv_token_s": 2 * time.kv_token_s}},
    }
    for name, words in (("launch_s", "launch"), ("token_s", "token time"), ("pair_s", "prefill attention")):
        low, high = CALIBRATION.intervals[name]
        found[f"{words} low"] = {"time": {name: low}}
        found[f"{words} high"] = {"time": {name: high}}
    band = time.error_band
    found["all times low"] = {"scale": band.low}
    found["all times high"] = {"scale": band.high}
    return found


def variants() -> dict[str, dict[str, dict[str, Any]]]:
    """Return group -> label -> changes to `serving.BASE`; the authors' convention changes nothing.

    Examples
    --------
    >>> variants()["convention"]["authors' convention"]
    {}
    """
    other = {"fitted": "recorded", "recorded": "fitted"}[lengths_at_hand()]
    # the recorded lengths cannot be had where they are not at hand
    trace: dict[str, dict[str, Any]] = {"fitted lengths": {"lengths": "fitted"}} if other == "fitted" else {}
    kv = BASE["kv_tokens"]
    return {
        "convention": {
            AUTHORS: {},
            ENGINE: {"convention": "tileq", "arrivals": "poisson"},
            "every token a decode": {"tokens": "paper"},
        },
        "cost model": _coefficients(),
        "trace": {"Poisson arrivals": {"arrivals": "poisson"}, **trace},
        "memory": {"half the KV": {"kv_tokens": kv // 2}, "twice the KV": {"kv_tokens": 2 * kv}},
        "budget": {f"{b} tokens": {"token_budget": b} for b in (256, 1024)},
        "offset": {f"Theta {t:g}": {"theta": t} for t in (3.0, 10.0)},
    }
