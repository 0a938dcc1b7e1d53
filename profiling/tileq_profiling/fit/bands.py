r"""A band of measured / predicted that holds on batches not yet measured.

Held-out ratios of exchangeable batches are order statistics: of N of them, at least a share p lies between the r-th
and the (N + 1 - r)-th with confidence P(Binomial(N, p) <= N - 2 r) (Wilks, Ann. Math. Statist. 12, 1941). The band
takes the largest r that keeps the confidence at 95 %, so it covers p not on average but in 95 of 100 calibrations.
Prefill, decode and mixed batches get a band each and the model carries the hull, so that none of them is covered at
another's cost.
"""

from __future__ import annotations

__all__ = ["content_band", "error_band_of"]

import numpy as np
from jaxtyping import Float

from tileq_profiling.profile.table import Profile
from tileq_theory.provenance import ErrorBand

CONFIDENCE = 0.95
_FEWEST = 20  # of a phase, to have a band of its own


def content_band(ratio: Float[np.ndarray, "point"], coverage: float) -> tuple[float, float, float]:
    """Return (low, high, confidence) of a band that holds a share `coverage` of further ratios.

    With too few ratios for 95 % the band is their range and the confidence says less.

    Examples
    --------
    >>> low, high, confidence = content_band(np.linspace(0.9, 1.1, 201), 0.9)
    >>> round(low, 3), round(high, 3), confidence >= 0.95
    (0.905, 1.095, True)
    """
    from scipy.stats import binom

    ordered = np.sort(ratio)
    n = ordered.size
    r = np.arange(1, max(2, (n + 1) // 2))
    confidence = binom.cdf(n - 2 * r, n, coverage)
    enough = np.flatnonzero(confidence >= CONFIDENCE)
    at = int(enough[-1]) if enough.size else 0
    return float(ordered[at]), float(ordered[n - 1 - at]), float(max(confidence[at], 0.0))


def error_band_of(profile: Profile, predicted_s: Float[np.ndarray, "point"], coverage: float) -> ErrorBand:
    """Return the hull of the phases' bands of measured / held-out prediction."""
    ratio = profile.seconds / predicted_s
    phase = profile.phase
    large = [name for name in np.unique(phase) if int(np.sum(phase == name)) >= _FEWEST]
    masks = {str(name): phase == name for name in large} or {"all": np.ones(len(profile), dtype=bool)}
    bands = {name: content_band(ratio[mask], coverage) for name, mask in masks.items()}
    low, high = min(b[0] for b in bands.values()), max(b[1] for b in bands.values())
    confidence = min(b[2] for b in bands.values())
    inside = float(np.mean((ratio >= low) & (ratio <= high)))
    basis = (
        f"measured / predicted of {len(profile)} held-out iterations ({', '.join(bands)}): holds {coverage:.0%} of "
        f"further ones with confidence {confidence:.0%}"
    )
    return ErrorBand(low, high, inside, basis)
