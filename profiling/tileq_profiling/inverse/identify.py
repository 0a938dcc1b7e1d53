r"""What the latencies determine: singular values of the weighted Jacobian.

With J = d residual / d (theta/reference) and W the weights, the right singular vectors of W^(1/2) J are combinations of
coefficients, and 1/(singular value) is the standard error of each combination in units of the references. Values of one
stretch of requests err together (they met the same queue), so the variance is the sandwich
H^-1 (sum over stretches g g') H^-1 with H = J'WJ and g = J'Wr of a stretch, plus H^-1 itself.
"""

from __future__ import annotations

__all__ = ["Combination", "combinations", "covariance", "inverse_of", "meat_of", "worst"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tileq_profiling.inverse.forward import PARAMETERS, Forward
from tileq_profiling.inverse.refine import Refined, Slopes, weights_of

TOLD = 0.25  # relative standard error up to which a combination counts as determined


@dataclass(frozen=True, slots=True)
class Combination:
    """One direction of the coefficients.

    Parameters
    ----------
    shares
        Coefficient -> its weight in the direction, in units of its reference (squares sum to 1), largest first.
    error
        Standard error of the combination, relative to the references.
    """

    shares: Mapping[str, float]
    error: float

    @property
    def determined(self) -> bool:
        """Whether the latencies tell it."""
        return self.error <= TOLD

    def to_dict(self) -> dict[str, object]:
        """Return the combination as plain data."""
        return {"shares": dict(self.shares), "error": self.error, "determined": self.determined}


def inverse_of(normal: Float[np.ndarray, "active active"]) -> Float[np.ndarray, "active active"]:
    """Return its inverse; what nothing depends on has an error of 100 references, not of infinity."""
    value, vector = np.linalg.eigh(normal)
    out: np.ndarray = (vector / np.maximum(value, 1e-4)) @ vector.T
    return out


def meat_of(forward: Forward, state: Refined, found: Slopes) -> Float[np.ndarray, "active active"]:
    """Return the sum over stretches of requests of g g'."""
    each = found.scores(weights_of(state))
    names, block = np.unique(forward.block, return_inverse=True)
    scores = np.zeros((names.size, each.shape[1]))
    np.add.at(scores, block.reshape(-1), each)
    # what a bound holds back is no noise: scores are taken about their mean
    scores -= scores.mean(axis=0)
    few = names.size / max(names.size - each.shape[1], 1) if names.size > 1 else 1.0
    # the mean over replications is itself uncertain
    out: np.ndarray = few * (1 + 1 / forward.replications) * scores.T @ scores
    return out


def covariance(
    normal: Float[np.ndarray, "some some"], meat: Float[np.ndarray, "some some"]
) -> Float[np.ndarray, "some some"]:
    """Return the variance of theta/reference."""
    inverse = inverse_of(normal)
    out: np.ndarray = inverse @ meat @ inverse + inverse
    return out


def combinations(variance: Float[np.ndarray, "active active"], active: Sequence[int]) -> tuple[Combination, ...]:
    """Return the principal combinations, best determined first."""
    value, vector = np.linalg.eigh(variance)
    out = []
    for i in np.argsort(value):
        shares = {PARAMETERS[j]: float(v) for j, v in zip(active, vector[:, i], strict=True)}
        largest = max(shares.values(), key=abs)
        ordered = sorted(shares.items(), key=lambda item: -abs(item[1]))
        kept = {name: round(share * (1 if largest > 0 else -1), 6) for name, share in ordered if abs(share) >= 0.1}
        out.append(Combination(kept, float(np.sqrt(max(value[i], 0.0)))))
    return tuple(out)


def worst(found: Sequence[Combination]) -> Combination | None:
    """Return the combination that is told least, if it is not determined."""
    last = found[-1] if found else None
    return last if last is not None and not last.determined else None
