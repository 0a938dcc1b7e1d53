"""The exercises of notebook 06: the exact chain, the fluid limit, certificates."""

from __future__ import annotations

__all__ = ["exercise_1", "exercise_2", "exercise_3"]

from functools import cache
from typing import Any

from lesson.answers import Verdict, about
from tileq_theory.certificates import certify, exclusive_modes
from tileq_theory.chain import ChainSystem, DecodeFirst, chain_capacity, iteration_chain
from tileq_theory.demand import Demand
from tileq_theory.fluid import DecodeFirst as FluidDecodeFirst
from tileq_theory.fluid import FluidState, FluidSystem, drain_time_s
from tileq_theory.iteration_time import IterationTime
from tileq_theory.lengths import Fixed, Geometric, Independent
from tileq_theory.request_class import RequestClass
from tileq_theory.workload import Workload

TIME = IterationTime(launch_s=0.01, token_s=1e-4, sequence_s=2e-4)
PROMPT, MEAN_OUTPUT, BUDGET, RESIDENTS = 128, 16.0, 1024, 8
SLOTS, LIMIT_MS, BACKLOG = 12, 250.0, 50_000.0


def _chain(residents: int) -> ChainSystem:
    law = Geometric(mean=MEAN_OUTPUT)
    return ChainSystem(time=TIME, rule=DecodeFirst(), residents=residents, prompt_tokens=PROMPT, outputs=law)


@cache
def _demand() -> Demand:
    law = Independent(Fixed(PROMPT), Geometric(mean=MEAN_OUTPUT))
    return Workload((RequestClass("all", law),)).demand(chunk_tokens=BUDGET)


@cache
def _highest_rate() -> float:
    """Return the largest rate with a mean TTFT within the limit, by bisection on the chain of more slots."""
    system = _chain(SLOTS)
    low, high = 0.0, chain_capacity(system)
    for _ in range(14):
        middle = (low + high) / 2
        ttft = iteration_chain(system, rate_per_s=middle).mean_ttft_s
        low, high = (middle, high) if 1e3 * ttft <= LIMIT_MS else (low, middle)
    return low


@cache
def _drain_s() -> float:
    rate = 0.8 * chain_capacity(_chain(RESIDENTS))
    system = FluidSystem(TIME, _demand(), rate, BUDGET, RESIDENTS)
    return drain_time_s(system, FluidDecodeFirst(), FluidState(waiting_tokens=BACKLOG), horizon_s=2000.0)


@cache
def _exclusive_rate() -> float:
    """Return the rate at which the certificate of exclusive batches turns into a proof of growth, by bisection."""
    low, high = 1.0, 100.0
    for _ in range(30):
        middle = (low + high) / 2
        modes = exclusive_modes(
            TIME,
            rate_per_s=middle,
            prefill_tokens=PROMPT,
            decode_tokens=MEAN_OUTPUT - 1,
            token_budget=PROMPT,
            residents=RESIDENTS,
        )
        low, high = (middle, high) if certify(modes).verdict == "stable" else (low, middle)
    return low


def exercise_1(answer: Any) -> Verdict:
    """The largest rate with 12 residents at which the mean TTFT stays within 250 ms, requests per second."""
    return about(
        answer,
        _highest_rate,
        rel=0.01,
        why="more slots carry more, and near the capacity each percent of rate costs dearly.",
        hint="iteration_chain(chain(12), rate_per_s=r).mean_ttft_s for several r; halve the interval.",
        traps={"that is the capacity, where TTFT has no bound.": lambda: chain_capacity(_chain(SLOTS))},
    )


def exercise_2(answer: Any) -> Verdict:
    """Seconds until 50 000 waiting prefill tokens are gone at a load of 0.8."""
    return about(
        answer,
        _drain_s,
        rel=0.02,
        why="at load 0.8 only a fifth of the machine works on the backlog.",
        hint="tq.drain_time_s(system, policy, tq.FluidState(waiting_tokens=50_000), horizon_s=...).",
        traps={},
    )


def exercise_3(answer: Any) -> Verdict:
    """The rate up to which exclusive batches have a certificate, requests per second."""
    return about(
        answer,
        _exclusive_rate,
        rel=0.01,
        why="P t(b)/b + D t(N)/N is the time that a request needs; the proof exists as long as it leaves time over.",
        hint="certify(exclusive_modes(...)).verdict turns from stable to unstable at some rate: find it.",
        traps={"decode steps are one fewer than output tokens: the prefill emits the first.": _with_all_steps},
    )


def _with_all_steps() -> float:
    prefill = float(TIME(PROMPT, 0.0, 0.0, 1.0)) / PROMPT
    decode = float(TIME(RESIDENTS, 0.0, 0.0, RESIDENTS)) / RESIDENTS
    return 1 / (PROMPT * prefill + MEAN_OUTPUT * decode)
