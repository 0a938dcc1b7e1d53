"""Levels: the batch sizes that the capacity program chooses among.

Within one tile tau(n) is affine in n, and the rows of the program are affine in n except at n = N. Without a TBT
limit only these batch sizes can be worth using: one token, multiples of the tile, N, the largest batch whose linear
time is still the weights floor, and n_max. A TBT limit adds others, which `pricing` finds; it also proves that
none is missing.
"""

from __future__ import annotations

__all__ = ["Level", "LevelKind", "corner_levels", "longest_within"]

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Int

from tileq_theory.capacity.limits import Limits
from tileq_theory.errors import InputError, positive_int
from tileq_theory.iteration_time import IterationTime

LevelKind = Literal["mixed", "prefill", "decode"]
_MOST_CORNERS = 256  # of which the program sees the best few; the rest is left to pricing


@dataclass(frozen=True, slots=True, order=True)
class Level:
    """A batch size in tokens and what it may hold: both kinds of tokens, prefill only or decode only."""

    tokens: int
    kind: LevelKind = "mixed"

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", positive_int("level tokens", self.tokens))
        if self.kind not in ("mixed", "prefill", "decode"):
            raise InputError(f"level kind is {self.kind!r}; expected 'mixed', 'prefill' or 'decode'")


def longest_within(time: IterationTime, seconds: float, most: int) -> int:
    """Return the largest n <= most with tau(n) <= seconds (0 if there is none); tau is nondecreasing."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if float(time.tau_s(middle)) <= seconds:
            low = middle
        else:
            high = middle - 1
    return low


def corner_levels(time: IterationTime, limits: Limits) -> Int[np.ndarray, "level"]:
    """Return the batch sizes that may be optimal without a TBT limit, ascending, plus those at the TBT limit."""
    most, tile = limits.max_batch_tokens, time.tile_tokens
    sizes = {1, most}
    if time.tile_s > 0:
        step = tile * max(1, most // (tile * _MOST_CORNERS))
        sizes.update(range(tile, most + 1, step))
    if time.tile_s > 0 or time.token_s > 0:
        sizes.add(longest_within(time, time.launch_s + time.weight_floor_s, most))
    if limits.max_num_seqs is not None:
        sizes.add(limits.max_num_seqs)
    if limits.tbt_s is not None:
        n = longest_within(time, limits.tbt_s, most)
        sizes.update({n, n // tile * tile, (n // tile - 1) * tile})
    return np.array(sorted(n for n in sizes if 1 <= n <= most), dtype=np.int64)
