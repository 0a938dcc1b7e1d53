"""A tagged request followed tick by tick, written for compilation: plain loops over plain arrays."""

from __future__ import annotations

__all__ = ["compiled"]

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

_LEAST = 1e-17  # masses below are dropped and counted as lost


def spread_start(ring: np.ndarray, mass: np.ndarray, block: np.ndarray, low: int, phase: int) -> None:
    """Add mass[r - 1, n] x block[q, p] to ring[r, low + q + n + 1, phase + p]; places beyond the last are left out."""
    for r in range(mass.shape[0]):
        for q in range(block.shape[0]):
            for n in range(min(mass.shape[1], ring.shape[1] - low - q - 1)):
                for p in range(block.shape[1]):
                    ring[r + 1, low + q + n + 1, phase + p] += mass[r, n] * block[q, p]


def follow_wait(
    ring: np.ndarray,
    begin: np.ndarray,
    admitted: np.ndarray,
    after: np.ndarray,
    ticks: np.ndarray,
    probability: np.ndarray,
    horizon: int,
    depth: int,
    stop: float,
    least: float,
) -> tuple[np.ndarray, int, float]:
    """Return (u, ticks used, mass dropped): u[k, j, phase], at tick k in position j, with j below `depth`.

    `ring[k, j, phase]` holds what is at a boundary at tick k (k below its length, 0 free). Rows of the outcomes from
    (level, phase) are begin[level * phases + phase] to the next. Rows that admit the tagged request end its way here.
    """
    length, positions, phases = ring.shape
    seen = np.zeros((horizon + 1, depth, phases))
    dropped = 0.0
    left = ring.sum()
    for k in range(horizon + 1):
        slot = k % length
        for j in range(1, positions):
            level = min(j, depth)
            for phase in range(phases):
                mass = ring[slot, j, phase]
                if mass == 0.0:
                    continue
                ring[slot, j, phase] = 0.0
                if mass < least:
                    dropped += mass
                    left -= mass
                    continue
                if j < depth:
                    seen[k, j, phase] += mass
                for row in range(begin[level * phases + phase], begin[level * phases + phase + 1]):
                    part = mass * probability[row]
                    if admitted[row] >= j:
                        left -= part
                    else:
                        ring[(k + ticks[row]) % length, j - admitted[row], after[row]] += part
        if left < stop:
            return seen, k + 1, dropped
    return seen, horizon + 1, dropped


def follow_first_token(
    seen: np.ndarray,
    behind: np.ndarray,
    begin: np.ndarray,
    admitted: np.ndarray,
    after: np.ndarray,
    ticks: np.ndarray,
    duration: np.ndarray,
    probability: np.ndarray,
    stepped: np.ndarray,
    arrivals: np.ndarray,
    depth: int,
    prefill_emits: bool,
    longest: int,
    rounds: int,
    least: float,
) -> tuple[np.ndarray, float]:
    """Return (mass of first tokens at each tick, mass dropped).

    `seen` is that of `follow_wait`; behind[k, b] is the law of the number that arrived after the tagged request within
    k ticks, arrivals[duration, A] that of those of an iteration. Where the prefill emits no token the request is
    followed on, with those that wait behind it, to the end of the first iteration in which residents decode.
    """
    used, _, phases = seen.shape
    top = behind.shape[1] + arrivals.shape[1]  # waiting beyond `depth` are all alike once nobody can be before them
    first = np.zeros(used + (1 if prefill_emits else rounds + 2) * longest + 1)
    ring = np.zeros((1 if prefill_emits else longest + 1, top + 1, phases))
    dropped = 0.0
    horizon = used if prefill_emits else first.size - longest
    for k in range(horizon):
        if not prefill_emits:
            slot = k % (longest + 1)
            for q in range(top + 1):
                level = min(q, depth)
                for phase in range(phases):
                    mass = ring[slot, q, phase]
                    if mass == 0.0:
                        continue
                    ring[slot, q, phase] = 0.0
                    if mass < least:
                        dropped += mass
                        continue
                    for row in range(begin[level * phases + phase], begin[level * phases + phase + 1]):
                        part = mass * probability[row]
                        if stepped[row] == 1:
                            first[k + ticks[row]] += part
                            continue
                        for count in range(arrivals.shape[1]):
                            reached = min(q - admitted[row] + count, top)
                            share = part * arrivals[duration[row], count]
                            ring[(k + ticks[row]) % (longest + 1), reached, after[row]] += share
        if k >= used:
            continue
        for j in range(1, depth):
            for phase in range(phases):
                mass = seen[k, j, phase]
                if mass == 0.0:
                    continue
                for b in range(behind.shape[1]):
                    part_b = mass * behind[k, b]
                    if part_b < least:
                        dropped += part_b
                        continue
                    level = min(j + b, depth)
                    for row in range(begin[level * phases + phase], begin[level * phases + phase + 1]):
                        if admitted[row] < j:
                            continue
                        part = part_b * probability[row]
                        if prefill_emits:
                            first[k + ticks[row]] += part
                            continue
                        for count in range(arrivals.shape[1]):
                            reached = min(j + b - admitted[row] + count, top)
                            share = part * arrivals[duration[row], count]
                            ring[(k + ticks[row]) % (longest + 1), reached, after[row]] += share
    return first, dropped + ring.sum()


@functools.cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    from numba import njit

    made: Callable[..., Any] = njit(cache=True)(inspect.unwrap(function))
    return made


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, compiled at its first use."""
    return _compile(function)
