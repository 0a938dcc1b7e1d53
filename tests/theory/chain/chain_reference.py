"""A reference simulation of the chain's model, request by request, written apart from the chain."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

Discipline = Literal["decode-first", "prefill-first", "rad"]


@dataclass
class System:
    """One system to be compared: what the simulation needs, and nothing of the chain's own objects."""

    discipline: Discipline
    residents: int
    convention: Literal["engine", "paper"]
    length_s: Callable[[int, int], float]  # (tokens, sequences) -> seconds
    outputs: Callable[[np.random.Generator, int], np.ndarray]
    prompts: Callable[[np.random.Generator, int], np.ndarray]
    budget: float = np.inf
    tile: int = 0


def simulate(system: System, rate: float, requests: int, seed: int) -> tuple[float, float, float]:
    """Return (mean wait, mean TTFT, time-mean number in system) of one run, its first tenth left out."""
    waits, firsts, inside = run(system, rate, requests, seed)
    return float(waits.mean()), float(firsts.mean()), inside


def run(system: System, rate: float, requests: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return (waits, TTFTs, time-mean number in system) of one run, its first tenth left out."""
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate, requests)).tolist()
    output, prompt = system.outputs(rng, requests).tolist(), system.prompts(rng, requests).tolist()
    steps = [o - (system.convention == "engine") for o in output]
    start, first, finish = [0.0] * requests, [0.0] * requests, [0.0] * requests
    waiting: deque[int] = deque()
    decoding: list[int] = []
    left, clock, coming = list(steps), 0.0, 0
    while coming < requests or waiting or decoding:
        if not waiting and not decoding:
            clock = max(clock, arrival[coming])
        while coming < requests and arrival[coming] <= clock:
            waiting.append(coming)
            coming += 1
        limit = 1 if system.discipline == "rad" else system.residents
        budget = system.budget - (len(decoding) if system.discipline == "decode-first" else 0)
        taken: list[int] = []
        while waiting and len(taken) < min(limit, system.residents - len(decoding)) and prompt[waiting[0]] <= budget:
            budget -= prompt[waiting[0]]
            start[waiting[0]] = clock
            taken.append(waiting.popleft())
        stepping = decoding if system.discipline == "decode-first" or not taken else []
        tokens = system.tile if taken and system.discipline == "rad" else sum(prompt[r] for r in taken)
        clock += system.length_s(tokens + len(stepping), len(taken) + len(stepping))
        for r in stepping:
            left[r] -= 1
            first[r] = first[r] or clock
        for r in taken:
            if system.convention == "engine":
                first[r] = clock
        for r in (*stepping, *taken):
            finish[r] = clock if left[r] == 0 else 0.0
        idle = [r for r in decoding if not stepping]
        decoding = [r for r in (*idle, *stepping, *taken) if not finish[r]]
    begin, end = arrival[requests // 10], arrival[-1]
    inside = sum(max(min(f, end) - max(a, begin), 0.0) for a, f in zip(arrival, finish, strict=True))
    later = range(requests // 10, requests)
    waits = np.array([start[r] - arrival[r] for r in later])
    return waits, np.array([first[r] - arrival[r] for r in later]), inside / (end - begin)
