"""Order rules: a number for each waiting request, the smaller the sooner; ties go to the earlier request.

`rule(R, S, P, i)` may read the request's prompt, its *predicted* output, class, priority, tenant and the tokens it
has got so far, never its true output length.
"""

from __future__ import annotations

__all__ = [
    "order_aged",
    "order_aging",
    "order_deadline",
    "order_fcfs",
    "order_longest_prefix",
    "order_paying_spf",
    "order_priority",
    "order_sjf_output",
    "order_sjf_total",
    "order_spf",
    "order_volume",
    "order_vtc",
]

import math
from typing import Any

from tileq_engine.prefix_tree import matched_tokens
from tileq_engine.records import Records


def order_fcfs(R: Records, S: Records, P: Any, i: int) -> Any:
    """First come, first served: requests are numbered by arrival."""
    return float(i)


def order_spf(R: Records, S: Records, P: Any, i: int) -> Any:
    """Shortest prompt first."""
    return float(R[i].prompt)


def order_sjf_output(R: Records, S: Records, P: Any, i: int) -> Any:
    """Shortest predicted output first."""
    return float(R[i].predicted)


def order_sjf_total(R: Records, S: Records, P: Any, i: int) -> Any:
    """Shortest prompt plus predicted output first."""
    return float(R[i].prompt + R[i].predicted)


def order_priority(R: Records, S: Records, P: Any, i: int) -> Any:
    """Lowest priority value first, as vLLM counts."""
    return float(R[i].priority)


def order_paying_spf(R: Records, S: Records, P: Any, i: int) -> Any:
    """Paying tier first, the shortest prompt first within a tier (SLAI)."""
    return float(R[i].prompt) + (0.0 if R[i].paying == 1 else 4294967296.0)


def order_volume(R: Records, S: Records, P: Any, i: int) -> Any:
    """Smallest memory volume s o + (o^2 + o)/2 first, o predicted (SVF, arXiv 2606.22327)."""
    s = float(R[i].prompt)
    o = float(R[i].predicted)
    return s * o + (o * o + o) / 2.0


def order_longest_prefix(R: Records, S: Records, P: Any, i: int) -> Any:
    """Longest cached prefix first (SGLang); first come, first served while more than S[0].want requests wait."""
    if S[0].nwait > S[0].want:
        return float(i)
    return -float(matched_tokens(R, S, P, i))


def order_aging(R: Records, S: Records, P: Any, i: int) -> Any:
    """Highest score of the vLLM RFC's scorer first: half for the wait, half for a short predicted length.

    score = 0.5 sigma(wait_s; 5, 1/5) + 0.5 (1 - sigma(length; 32768, 1/32768)), clamped to [0, 1], with
    sigma(x; m, r) = 1/(1 + exp(-r (x - m))): (0 s, 0 tokens) scores .5000, (0 s, 32768 tokens) .3845.
    """
    return -aging_score(float(S[0].now - R[i].arrival) * 1e-12, float(R[i].prompt + R[i].predicted))


def aging_score(wait_s: float, length_tokens: float) -> Any:
    """Return the RFC's score of a request that has waited `wait_s` seconds and is `length_tokens` long."""
    waited = 1.0 / (1.0 + math.exp(-(wait_s - 5.0) / 5.0))
    short = 1.0 - 1.0 / (1.0 + math.exp(-(length_tokens - 32768.0) / 32768.0))
    return min(max(0.5 * waited + 0.5 * short, 0.0), 1.0)


def order_aged(R: Records, S: Records, P: Any, i: int) -> Any:
    """Earliest arrival + S[0].age * priority first: a priority step is worth so many picoseconds of waiting."""
    return float(R[i].arrival + S[0].age * R[i].priority)


def order_deadline(R: Records, S: Records, P: Any, i: int) -> Any:
    """Earliest deadline first: arrival plus what its class is allowed until the first token."""
    return float(R[i].arrival + P[S[0].due + R[i].cls])


def order_vtc(R: Records, S: Records, P: Any, i: int) -> Any:
    """Least virtual counter of the tenant first (Sheng et al., OSDI 2024); first come, first served within a tenant."""
    return float(P[S[0].tenants + 12 * R[i].tenant + 2])
