"""The exercises of notebook 03: stability regions."""

from __future__ import annotations

__all__ = ["exercise_1", "exercise_2", "exercise_3"]

from functools import cache
from typing import Any

from lesson.answers import Verdict, about, exactly
from tileq.exploring import Settings, explore

BASE = Settings(gpu="rtx-4090", classes=("chat=1024:256", "code=4096:32"), rates=(2.0, 0.8), tbt_s=0.03)
CODE_PER_S = 1.0
MIX = (5.0, 1.0)
WANTED = (4.5, 0.4)
_CAUSES = ("time", "memory", "slots", "tbt", "weights_floor")


@cache
def _chats() -> float:
    """Return the most chats beside the rate of code, by bisection on the load."""
    theory = explore(BASE).region.theory
    low, high = 0.0, float(theory.vertices[:, 0].max())
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if theory.load([middle, CODE_PER_S]) <= 1 else (low, middle)
    return low


@cache
def _least_limit_s() -> float:
    """Return the least TBT limit under which the wanted rates are inside, seconds."""
    low, high = 0.02, 0.05
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (
            (low, middle) if explore(BASE.with_(tbt_s=middle)).region.theory.contains(WANTED) else (middle, high)
        )
    return high


def exercise_1(answer: Any) -> Verdict:
    """The chats per second that fit beside one code request per second."""
    theory = explore(BASE).region.theory
    return about(
        answer,
        _chats,
        rel=0.02,
        why="of all sides the one met first decides.",
        hint="solve price_chat x chats + price_code x 1 = 1 for every side, and take the smallest.",
        traps={
            "that is the corner of chat alone.": lambda: float(theory.vertices[:, 0].max()),
            "that side is not the one met first.": lambda: max((1 - p[1] * CODE_PER_S) / p[0] for p in theory.prices()),
        },
    )


def exercise_2(answer: Any) -> Verdict:
    """The constraint met first at five chats for each code request."""
    if isinstance(answer, str) and answer.strip().casefold() not in _CAUSES:
        return Verdict(False, f"one of {', '.join(_CAUSES)} is meant.")
    return exactly(
        answer,
        lambda: explore(BASE.with_(rates=MIX)).binding,
        why="follow the ray of that mix from the origin to the boundary, and read the dash.",
        hint="explore(base.with_(rates=...)).binding says it for any mix.",
    )


def exercise_3(answer: Any) -> Verdict:
    """The least TBT limit that allows the wanted rates, seconds."""
    return about(
        answer,
        _least_limit_s,
        rel=0.02,
        why="longer batches are what carries such a mix, and the limit forbids them.",
        hint="try limits with explore(base.with_(tbt_s=...)).region.theory.contains(...), and halve the interval.",
        traps={"give it in seconds.": lambda: 1000 * _least_limit_s()},
    )
