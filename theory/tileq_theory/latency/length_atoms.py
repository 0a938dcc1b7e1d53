"""A law of lengths in whole tokens as atoms."""

from __future__ import annotations

__all__ = ["length_atoms"]

import numpy as np
from jaxtyping import Float

from tileq_theory.lengths.base import LengthLaw

_EXACT_ATOMS = 2**15


def length_atoms(law: LengthLaw) -> tuple[Float[np.ndarray, "atom"], Float[np.ndarray, "atom"]]:
    """Return lengths and masses: every length up to 32768, then blocks at their conditional means."""
    top = min(law.longest, float(_EXACT_ATOMS))
    k = np.arange(int(top) + 1, dtype=float)
    survival = np.asarray(law.survival(k), dtype=float)
    masses = -np.diff(np.concatenate([[1.0], survival]))
    lengths = k
    edge = int(top)
    far_l, far_m = [], []
    while edge < law.longest and float(law.survival(np.array([float(edge)]))[0]) > 1e-17:
        after = edge + max(edge // 1024, 1)
        high, low = (float(s) for s in law.survival(np.array([float(edge), float(after)])))
        if high > low:
            # E[X; a < X <= b] = a (S(a) - S(b)) + sum_{k=a}^{b-1} S(k) - (b - a) S(b)
            inner = law.tail_sums(1, first=edge, last=after)[0] - (after - edge) * low
            far_l.append(edge + inner / (high - low))
            far_m.append(high - low)
        edge = after
    lengths, masses = np.concatenate([lengths, far_l]), np.concatenate([masses, far_m])
    live = masses > 0
    return lengths[live], masses[live]
