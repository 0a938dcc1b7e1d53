r"""Policies of the fluid model: how much prefill and decode a cycle runs, and how long it takes.

Three things can hold prefill back, each on its own surface of the state space:

    nobody waits (w = 0)         prefill keeps pace with arrivals: p = lambda P T, the least solution
    all slots are taken (d = N)  a prompt joins when a resident ends: p = q P/D. In a mixed batch those being prefilled
                                 hold slots beside the decodes: p <= P (N - d), the same thing an iteration later
    the KV memory is full (k = M)  a prompt joins when memory is freed: p = q (KV freed a decode token - 1)

On a surface the field points along it or away from it, never through it, so paths slide without chattering.

`DecodeFirst` is Sarathi-Serve, vLLM v1 and, when every decode is critical, SLAI (Theta large against the TBT limit):
the order among waiting prompts does not show in the fluid.
"""

from __future__ import annotations

__all__ = ["DecodeFirst", "ExclusiveThreshold", "Flow", "FluidPolicy", "PrefillFirst", "PrefillsMixed", "Rad"]

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tileq_theory.errors import InputError, positive, positive_int
from tileq_theory.fluid.system import FluidState, FluidSystem

_ON_SURFACE = 1e-9  # relative; paths are put on a surface exactly where they meet it


@dataclass(frozen=True, slots=True)
class Flow:
    """What a cycle does.

    Parameters
    ----------
    prefill_tokens, decode_tokens
        p and q of a cycle, tokens.
    cycle_s
        T, seconds.
    """

    prefill_tokens: float
    decode_tokens: float
    cycle_s: float


class FluidPolicy(ABC):
    """A rule of the fluid model."""

    __slots__ = ()

    @abstractmethod
    def flow(self, system: FluidSystem, state: FluidState, mode: int = 0) -> Flow:
        """Return the cycle in force at a state; `mode` is the policy's memory, where it has one."""

    def next_mode(self, system: FluidSystem, state: FluidState, mode: int) -> int:
        """Return the policy's memory after a look at the state."""
        return mode

    def thresholds(self, system: FluidSystem) -> tuple[float, ...]:
        """Return the values of d at which the memory may change."""
        return ()

    def saturated_rate_per_s(self, system: FluidSystem) -> float | None:
        """Return the throughput while many wait, for a policy that cycles instead of resting; None: it rests."""
        return None


def holds(system: FluidSystem, state: FluidState) -> tuple[bool, bool, bool]:
    """Return whether (nobody waits, all slots are taken, the memory is full)."""
    return (
        state.waiting_tokens <= _ON_SURFACE * system.prompt,
        state.decoding >= system.residents * (1 - _ON_SURFACE),
        state.kv_tokens >= system.kv_capacity_tokens * (1 - _ON_SURFACE),
    )


def held_back(system: FluidSystem, state: FluidState, most: float, decode: float) -> float:
    """Return the prefill tokens that slots and memory leave of `most`, in a cycle of exclusive iterations."""
    _, full, packed = holds(system, state)
    if full:
        most = min(most, decode * system.prompt / system.steps)
    if packed:
        most = min(most, max(decode * (system.release(state) - 1), 0.0))
    return max(most, 0.0)


def beside_decodes(system: FluidSystem, state: FluidState, most: float, decode: float) -> float:
    """Return the prefill tokens that slots and memory leave of `most` beside decodes (0: memory is not asked)."""
    most = min(most, system.prompt * max(system.residents - state.decoding, 0.0))
    if decode > 0 and holds(system, state)[2]:
        most = min(most, decode * (system.release(state) - 1))
    return max(most, 0.0)


def keep_pace(rate: float, cycle: Callable[[float], float], most: float) -> float:
    """Return the least p with p = rate * cycle(p), or `most` if that is smaller.

    cycle does not fall in p, so p <- rate*cycle(p) climbs to the least solution; where it is affine one step of
    Aitken's extrapolation lands on it.
    """
    p = 0.0
    for _ in range(500):
        first = rate * cycle(p)
        if first >= most:
            return most
        second = rate * cycle(first)
        if second >= most or second - first <= 1e-13 * first:
            return min(second, most)
        ratio = (second - first) / (first - p) if first > p else 0.0
        if ratio < 1:
            guess = first + (second - first) / (1 - ratio)
            if guess < most and math.isclose(rate * cycle(guess), guess, rel_tol=1e-12):
                return guess
        p = second
    return min(p, most)


@dataclass(frozen=True, slots=True)
class DecodeFirst(FluidPolicy):
    """All residents decode in every iteration; prompts take what the budget leaves (Sarathi, vLLM v1, SLAI's limit)."""

    def flow(self, system: FluidSystem, state: FluidState, mode: int = 0) -> Flow:
        """Return one iteration: q = d, p = b - d at most."""
        decode = state.decoding
        most = beside_decodes(system, state, max(system.token_budget - decode, 0.0), decode)
        return _one_batch(system, state, most, lambda p: decode)


@dataclass(frozen=True, slots=True)
class PrefillsMixed(FluidPolicy):
    """Prompts first, up to the budget; decodes take what is left, in the same iteration (Orca with chunks)."""

    def flow(self, system: FluidSystem, state: FluidState, mode: int = 0) -> Flow:
        """Return one iteration: p = b at most, q = min(d, b - p)."""
        budget = float(system.token_budget)

        most = beside_decodes(system, state, budget, 0.0)
        if holds(system, state)[2]:  # p = ratio * min(d, b - p)
            ratio = max(system.release(state) - 1, 0.0)
            most = min(most, ratio * state.decoding, ratio * budget / (1 + ratio))
        return _one_batch(system, state, most, lambda p: min(state.decoding, budget - p))


@dataclass(frozen=True, slots=True)
class PrefillFirst(FluidPolicy):
    """Prefill-only iterations while a prompt waits and fits, else decode-only ones (vLLM v0).

    On a surface the two alternate. A prefill iteration then runs what has gathered, but no less than one prompt: with
    p tokens a decode iteration it is one of max(p, P) tokens every max(p, P)/p decode iterations (reconstruction: the
    source has no fluid model).
    """

    def flow(self, system: FluidSystem, state: FluidState, mode: int = 0) -> Flow:
        """Return a prefill iteration off the surfaces, a cycle of both kinds on them."""
        if not any(holds(system, state)):
            budget = float(system.token_budget)
            return Flow(budget, 0.0, system.iteration_s(budget, 0.0, state))

        return _alternating(system, state, lambda p: _gathered_s(system, state, p))


@dataclass(frozen=True, slots=True)
class Rad(FluidPolicy):
    """RAD: a full prefill tile while fewer than b_col requests decode and one waits, else a decode iteration.

    The cap on residents is b_col: `FluidSystem.residents`.

    Parameters
    ----------
    b_lcm
        Tokens of the prefill tile.
    tiles
        Mean tiles of a prompt, E[ceil(P/b_lcm)]; None: P/b_lcm, prompts that are tile multiples.
    """

    b_lcm: int
    tiles: float | None = None

    def __post_init__(self) -> None:
        positive_int("b_lcm", self.b_lcm)
        if self.tiles is not None:
            positive("tiles", self.tiles)

    def flow(self, system: FluidSystem, state: FluidState, mode: int = 0) -> Flow:
        """Return a prefill tile off the surfaces, a cycle of both kinds on them."""
        tile_s = system.iteration_s(self.b_lcm, 0.0, state)
        useful = float(self.b_lcm) if self.tiles is None else system.prompt / self.tiles
        if not any(holds(system, state)):
            return Flow(useful, 0.0, tile_s)
        return _alternating(system, state, lambda p: p / useful * tile_s)


@dataclass(frozen=True, slots=True)
class ExclusiveThreshold(FluidPolicy):
    """Exclusive batches with a threshold (THETA): decode until k slots are free, then prefill until none is.

    Parameters
    ----------
    free_slots
        k, 1 to N - 1. (With k = N, static batches, the fluid would wait for ever for the last resident: d falls to 0
        like an exponential. `chain.ThresholdRule` has them.)
    """

    free_slots: int

    def __post_init__(self) -> None:
        positive_int("free_slots", self.free_slots)

    def thresholds(self, system: FluidSystem) -> tuple[float, ...]:
        """Return d = N - k and d = N."""
        if self.free_slots >= system.residents:
            raise InputError(
                f"free_slots is {self.free_slots} of {system.residents} residents; expected fewer: the fluid of a "
                "batch that must empty never does"
            )
        return float(system.residents - self.free_slots), float(system.residents)

    def saturated_rate_per_s(self, system: FluidSystem) -> float | None:
        """Return k/(prefill of k prompts + decode from N to N - k), requests a second; memory is not asked.

        The decode takes the integral of D tau(d)/d over d, since d falls at d/(D tau(d)).
        """
        low, high = self.thresholds(system)
        k, cells = self.free_slots, 400
        width = math.log(high / low) / cells  # in ln d, where the integrand is the iteration time alone
        levels = low * np.exp((np.arange(cells) + 0.5) * width)
        steps = [
            system.iteration_s(0.0, float(d), FluidState(0.0, float(d), float(d) * system.context)) for d in levels
        ]
        decode_s = system.steps * float(np.sum(steps)) * width
        tokens = k * system.prompt
        size = min(tokens, float(system.token_budget))
        return k / (decode_s + tokens / size * system.iteration_s(size, 0.0, FluidState()))

    def next_mode(self, system: FluidSystem, state: FluidState, mode: int) -> int:
        """Return 0 (prefill) once k slots are free, 1 (decode) once none is or nobody waits."""
        low, _ = self.thresholds(system)
        idle, full, _ = holds(system, state)
        if state.decoding <= low * (1 + _ON_SURFACE):
            return 0
        return 1 if full or idle else mode

    def flow(self, system: FluidSystem, state: FluidState, mode: int = 0) -> Flow:
        """Return the iteration of the mode; where nobody waits or memory is full, `PrefillFirst`'s cycle."""
        idle, _, packed = holds(system, state)
        if mode == 1:
            decode = min(state.decoding, float(system.token_budget))
            return Flow(0.0, decode, system.iteration_s(0.0, decode, state))
        if idle or packed:
            return PrefillFirst().flow(system, state)
        budget = float(system.token_budget)
        return Flow(budget, 0.0, system.iteration_s(budget, 0.0, state))


def _one_batch(system: FluidSystem, state: FluidState, most: float, decode: Callable[[float], float]) -> Flow:
    """Return one mixed iteration with at most `most` prefill tokens."""

    prefill = most
    if holds(system, state)[0]:
        arriving = system.rate_per_s * system.prompt
        prefill = keep_pace(arriving, lambda p: system.iteration_s(p, decode(p), state), most)
    if prefill + decode(prefill) == 0:
        return _straight_through(system, state)
    return Flow(prefill, decode(prefill), system.iteration_s(prefill, decode(prefill), state))


def _gathered_s(system: FluidSystem, state: FluidState, prefill: float) -> float:
    """Return the time of prefill iterations that run what has gathered, one prompt at least, seconds."""
    if prefill <= 0:
        return 0.0
    budget = float(system.token_budget)
    size = min(max(prefill, min(system.prompt, budget)), budget)
    return prefill / size * system.iteration_s(size, 0.0, state)


def _straight_through(system: FluidSystem, state: FluidState) -> Flow:
    """Return what an empty node does in a second: arrivals are prefilled at their own pace, if the node can."""
    budget = float(system.token_budget)
    fastest = budget / system.iteration_s(budget, 0.0, state)
    return Flow(min(system.rate_per_s * system.prompt, fastest), 0.0, 1.0)


def _alternating(system: FluidSystem, state: FluidState, prefill_s: Callable[[float], float]) -> Flow:
    """Return a cycle of one decode iteration and the prefill that goes with it."""
    decode = min(state.decoding, float(system.token_budget))
    decode_s = system.iteration_s(0.0, decode, state) if decode > 0 else 0.0
    most = held_back(system, state, math.inf, decode)

    prefill = most
    if holds(system, state)[0]:
        arriving = system.rate_per_s * system.prompt
        # beyond this share of time prefill cannot keep pace: one cycle then prefills without end
        prefill = keep_pace(arriving, lambda p: decode_s + prefill_s(p), min(most, 1e6 * system.token_budget))
    if decode + prefill == 0:
        return _straight_through(system, state)
    return Flow(prefill, decode, decode_s + prefill_s(prefill))
