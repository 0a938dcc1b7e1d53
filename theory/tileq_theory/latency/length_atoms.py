"""A law of lengths in whole tokens as atoms."""

from __future__ import annotations

__all__ = ["length_atoms"]

import numpy as np
from jaxtyping import Float

from tileq_theory.lengths.base import LengthLaw

_EXACT_ATOMS = 2**15
_BLOCKS = 1024  # a block is this part of its own length
_LONGEST = 1e15


def length_atoms(law: LengthLaw) -> tuple[Float[np.ndarray, "atom"], Float[np.ndarray, "atom"]]:
    """Return lengths and masses: every length up to 32768, then blocks of 1/1024 of their length, the mean exact."""
    top = int(min(law.longest, float(_EXACT_ATOMS)))
    lengths = np.arange(top + 1, dtype=float)
    masses = -np.diff(np.concatenate([[1.0], np.asarray(law.survival(lengths), dtype=float)]))
    if law.longest > top:
        far, weight = _far(law, top)
        middle, missing = float(far @ weight), law.mean() - float(lengths @ masses)
        if abs(missing - middle) < middle / _BLOCKS:  # a tail within rounding of the mean tells nothing about its place
            far = far * (missing / middle)
        lengths, masses = np.concatenate([lengths, far]), np.concatenate([masses, weight])
    live = masses > 0
    return lengths[live], masses[live]


def _far(law: LengthLaw, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the blocks above `start`: middle lengths and masses, up to where no second moment is left."""
    end = min(law.longest, _LONGEST)
    count = int(np.ceil(np.log(end / start) / np.log1p(1 / _BLOCKS)))
    edges = np.unique(np.minimum(np.floor(start * (1 + 1 / _BLOCKS) ** np.arange(count + 1)), end))
    tail = np.asarray(law.survival(edges), dtype=float)
    kept = max(int(np.count_nonzero(tail * edges**2 > 1e-14 * law.second_moment())) + 1, 2)
    edges, tail = edges[:kept], tail[:kept]
    return (edges[:-1] + edges[1:] + 1) / 2, -np.diff(tail)
