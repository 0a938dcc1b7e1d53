"""The exercises of notebook 01: iterations and tiles."""

from __future__ import annotations

__all__ = ["exercise_1", "exercise_2", "exercise_3", "mystery_times"]

from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from lesson.answers import Verdict, about, exactly
from tileq_theory.calibrations import named_calibration
from tileq_theory.iteration_time import IterationTime

SHARE = 0.95
BUDGET = 260
_SECRET = IterationTime(launch_s=0.004, tile_s=0.006, tile_tokens=192)


@cache
def codellama() -> IterationTime:
    """Return the iteration time of CodeLlama-34B on an A100 (Dai et al., eq. 4)."""
    return named_calibration("a100-sxm-80gb/codellama-34b-instruct").time


def mystery_times() -> tuple[Float[np.ndarray, "size"], Float[np.ndarray, "size"]]:
    """Return batch sizes (tokens) and their measured times (seconds, 2 % noise) on a GPU whose tile is not told."""
    tokens = np.repeat(np.arange(32, 1153, 32), 3).astype(float)
    noise = np.random.default_rng(1).lognormal(0.0, 0.02, tokens.size)
    return tokens, np.asarray(_SECRET.tau_s(tokens)) * noise


def _rate(time: IterationTime, tokens: int) -> float:
    return tokens / float(time.tau_s(tokens))


def _tiles() -> int:
    """Return the least number of whole tiles whose rate reaches the share of b/a, by trying."""
    time = codellama()
    best = time.tile_tokens / time.tile_s
    return next(j for j in range(1, 10_000) if _rate(time, j * time.tile_tokens) >= SHARE * best)


def exercise_1(answer: Any) -> Verdict:
    """How many whole tiles reach 95 % of the best rate b/a on CodeLlama-34B, A100?"""
    return exactly(
        answer,
        _tiles,
        why="the launch constant is then spread over enough tiles. Compare with the closed form dai_tiles_for_share.",
        hint="find the least j with j b/(c + a j) >= 0.95 b/a; a batch holds whole tiles, so round up.",
    )


def exercise_2(answer: Any) -> Verdict:
    """Which share of the token rate is lost by a budget of 260 tokens instead of 256?"""
    time = codellama()

    def lost() -> float:
        return 1 - _rate(time, BUDGET) / _rate(time, 256)

    def longer() -> float:
        return float(time.tau_s(BUDGET) / time.tau_s(256)) - 1

    return about(
        answer,
        lost,
        rel=0.02,
        why="four tokens began a third tile, and all of the batch waits for it.",
        hint="compare n/tau(n) at n = 260 and at n = 256; give the loss as a share of 1, not in percent.",
        traps={
            "that is how much longer the iteration is; the larger batch also carries four more tokens.": longer,
            "give the loss as a share of 1, not in percent.": lambda: 100 * lost(),
        },
    )


def exercise_3(answer: Any) -> Verdict:
    """What is the tile of the mystery GPU?"""
    return exactly(
        answer,
        lambda: _SECRET.tile_tokens,
        why="and nothing but times of batches was needed to see it.",
        hint="plot seconds against tokens: where are the steps? All of them lie at multiples of the tile.",
    )
