r"""Mean time from the end of a request's prefill to its first token.

Under the engine convention the prefill emits it: 0. Under the paper convention it is the end of the next iteration in
which residents decode: with h(state) the mean time to that end from an iteration boundary,

    h(w, phase) = E[T] + P(residents do not decode) * E[h(next state)]

solved over the finitely many iterations that can pass without a decode, for a request that has just been prefilled is
resident, so only prefills up to the cap can come before it.
"""

from __future__ import annotations

__all__ = ["mean_first_decode_s"]

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from tileq_theory.chain.kernel import Kernel
from tileq_theory.chain.transitions import level_rows


def mean_first_decode_s(
    kernel: Kernel,
    counts: Float[np.ndarray, "duration count"],
    law: Float[np.ndarray, "level phase"],
    residents: int,
    room: int | None = None,
) -> float:
    """Return E[h] over admitted requests, seconds; `law` is the law at iteration boundaries (any scale)."""
    # beyond this level the queue outlasts every prefill that can come first, so h no longer depends on it
    top = 2 * kernel.depth + residents if room is None else room
    lumped = np.zeros((top + 1, kernel.size))
    used = min(top, len(law))
    lumped[:used] = law[:used]
    lumped[top] += law[top:].sum(axis=0)
    levels = np.arange(top + 1)
    lengths = _mean_lengths(kernel, top)
    silent = level_rows(_only(kernel, kernel.stepped == 0), counts, levels, top + 1, clamp=True, idle=False)
    h = lengths
    for _ in range(residents + 1):
        h = lengths + silent @ h
    joining = replace(kernel, probability=kernel.probability * kernel.admitted)
    taken = lumped.ravel() @ level_rows(
        _only(joining, kernel.admitted > 0), counts, levels, top + 1, clamp=True, idle=False
    )
    return float(taken @ h) / float(taken.sum())


def _only(kernel: Kernel, rows: np.ndarray) -> Kernel:
    """Return the kernel with the chosen rows alone."""
    names = ("level", "phase", "admitted", "after", "duration", "probability", "stepped", "law")
    return replace(kernel, **{name: getattr(kernel, name)[rows] for name in names})


def _mean_lengths(kernel: Kernel, top: int) -> Float[np.ndarray, "state"]:
    """Return the mean length of the iteration that starts in each state, seconds."""
    by_level = np.zeros((kernel.depth + 1, kernel.size))
    np.add.at(by_level, (kernel.level, kernel.phase), kernel.probability * kernel.durations_s[kernel.duration])
    lengths: Float[np.ndarray, "state"] = by_level[np.minimum(np.arange(top + 1), kernel.depth)].ravel()
    return lengths
