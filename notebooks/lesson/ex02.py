"""The exercises of notebook 02: the capacity program and its prices."""

from __future__ import annotations

__all__ = ["exercise_1", "exercise_2", "exercise_3"]

from functools import cache
from typing import Any

from lesson.answers import Verdict, about
from tileq.planning import Plan, plan
from tileq.regions import region
from tileq_theory.capacity import Limits, capacity
from tileq_theory.demand import Demand
from tileq_theory.iteration_time import IterationTime

PROMPT, OUTPUT = 512, 100
CHAT_PER_S = 2.0
MACHINE: dict[str, Any] = {"gpu": "rtx-4090", "model": "llama-3.1-8b"}
CLASSES = ("chat=1024:256", "code=4096:32")


def _rad(decodes: float) -> float:
    """Return the capacity of the reference instance of RAD for fixed lengths, by the program."""
    time = IterationTime.rad(t_lin_s=4e-3, t_nl_s=5e-6, tile_tokens=128)
    demand = Demand(PROMPT, decodes, 0.0, 0.0, 0.0, 0.0, PROMPT, PROMPT + OUTPUT)
    return capacity(time, demand, Limits(max_batch_tokens=128)).rate_per_s


@cache
def _beside_chat() -> float:
    """Return the largest rate of code beside the rate of chat: the boundary of the region, by bisection."""
    theory = region(CLASSES, **MACHINE).theory
    low, high = 0.0, float(theory.vertices[:, 1].max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if theory.load([CHAT_PER_S, middle]) <= 1 else (low, middle)
    return low


@cache
def _plan() -> Plan:
    return plan(classes=[f"{line}@1" for line in CLASSES], **MACHINE)


@cache
def _enough_kv() -> float:
    """Return the least KV memory at which more of it brings nothing, tokens."""
    bound = _plan().tile.capacity

    def rate(kv_tokens: float | None) -> float:
        return capacity(bound.time, bound.demand, bound.limits.with_(kv_tokens=kv_tokens)).rate_per_s

    best = rate(None) * (1 - 1e-6)
    low, high = bound.demand.longest_context_tokens, 1e7
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if rate(middle) >= best else (middle, high)
    return high


def exercise_1(answer: Any) -> Verdict:
    """The capacity of RAD's reference machine for prompts of 512 and outputs of 100 tokens, requests per second."""
    return about(
        answer,
        lambda: _rad(OUTPUT),
        rel=2e-3,
        why="612 tokens of 36.25 us each: without other limits all tokens cost the same.",
        hint="every token costs t_Lin/b + t_nl; how many tokens does a request need?",
        traps={
            "in the paper's convention a request takes all its output tokens as decode steps.": lambda: _rad(
                OUTPUT - 1
            ),
            "the decode tokens are missing.": lambda: 1 / (PROMPT * (4e-3 / 128 + 5e-6)),
        },
    )


def exercise_2(answer: Any) -> Verdict:
    """The rate of code that fits beside two chat requests per second, requests per second."""
    return about(
        answer,
        _beside_chat,
        rel=0.02,
        why="the facet says how much of one class pays for the other.",
        hint="on the boundary chat rate x its price + code rate x its price = 1, with the prices of that mix.",
        traps={
            "that is the capacity for code alone; chat takes a part of the machine.": lambda: (
                1 / region(CLASSES, **MACHINE).theory.load([0.0, 1.0])
            )
        },
    )


def exercise_3(answer: Any) -> Verdict:
    """The least KV memory that makes memory no constraint for the even mix, tokens."""
    return about(
        answer,
        _enough_kv,
        rel=0.03,
        why="beyond that, another limit decides, and a gigabyte more buys nothing.",
        hint="raise kv_tokens until the rate stops growing; where does the binding row change?",
        traps={"that is what the machine has.": lambda: float(_plan().setting.kv_tokens)},
    )
