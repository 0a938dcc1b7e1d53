"""What stands for a coefficient that the latencies do not tell: the datasheet's roofline, or nothing."""

from __future__ import annotations

__all__ = ["Stand", "prior_of", "references", "stand_for", "weakest"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from tileq_profiling.fit.rows import BETA, NAMES, A, C, E, K, S, W
from tileq_profiling.inverse.forward import OVERHEAD, PARAMETERS
from tileq_profiling.inverse.identify import Combination
from tileq_profiling.inverse.start import typical
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

if TYPE_CHECKING:
    from tileq_theory.hardware import Gpu, Model

# of coefficients that share an undetermined combination the one with the largest share times this is fixed: what
# happens outside of iterations first, what decides the rate of long batches last
_RELUCTANCE = {OVERHEAD: 3.0, S: 2.0, E: 1.6, K: 1.2, C: 1.0, W: 1.0, A: 0.6, BETA: 0.5}
# measured over datasheet's time, once corrected by what was measured on that device: spread over models and kernels
_DOUBT = 0.35
_ONE_SIDED = 4.0  # the same for what was fixed to 0, in references, which are a quarter of a usual share
_WORDS = {E: "so long prompts look free", K: "so long contexts look free"}


@dataclass(frozen=True, slots=True)
class Stand:
    """A coefficient that was fixed.

    Parameters
    ----------
    index, value, reason
        Which, its value, and the sentence that says why.
    doubt
        Standard deviation of what it may be instead.
    one_sided
        Whether it can only be larger (it was fixed to 0).
    """

    index: int
    value: float
    reason: str
    doubt: float
    one_sided: bool


def prior_of(
    gpu: Gpu | None, model: Model | None, tp: int, dtype: str, tile_tokens: int | None
) -> IterationTime | None:
    """Return the corrected roofline where both device and model are known."""
    from tileq_theory.hardware import roofline

    if gpu is None or model is None:
        return None
    return roofline(gpu, model, dtype=dtype, tp=tp, tile_tokens=tile_tokens, corrected=True)


def as_theta(prior: IterationTime) -> Float[np.ndarray, "8"]:
    """Return the coefficients in the order of `PARAMETERS`."""
    return np.array([*(getattr(prior, name) for name in NAMES), 0.0])


def references(
    theta: Float[np.ndarray, "8"], prior: Float[np.ndarray, "8"] | None, tile_tokens: int | None
) -> Float[np.ndarray, "8"]:
    """Return the unit of each coefficient: its estimate, its prior, or a usual share of an iteration, the largest."""
    shape = typical()
    per_tile = 1 if tile_tokens is None else tile_tokens
    slope = theta[BETA] + theta[A] / per_tile
    scale = max(theta[C] + theta[W], slope * 200) / (shape[C] + shape[W])
    usual = shape * scale / 4
    usual[OVERHEAD] = max(theta[C] + theta[W], slope * 200)
    if tile_tokens is not None:
        usual[A] = usual[BETA] * tile_tokens
    floor = usual if prior is None else np.where(prior > 0, prior, usual)
    out: np.ndarray = np.maximum(theta, floor)
    return out


def weakest(found: Combination, prior: Float[np.ndarray, "8"] | None, active: Sequence[int]) -> int:
    """Return the coefficient to fix of a combination that is not determined."""
    shares = {j: abs(found.shares.get(PARAMETERS[j], 0.0)) * _RELUCTANCE[j] for j in active}
    chosen = max(shares, key=lambda j: shares[j])
    if chosen == C and prior is not None and W in active and shares[W] > 0.5 * shares[C]:
        return W  # the datasheet knows the weights' time and not the launch constant
    if chosen == W and prior is None and C in active and shares[C] > 0.5 * shares[W]:
        return C
    return chosen


def stand_for(
    j: int,
    theta: Float[np.ndarray, "8"],
    prior: IterationTime | None,
    found: Combination,
    reference: Float[np.ndarray, "8"],
) -> Stand:
    """Return what stands for coefficient j.

    Raises
    ------
    InputError
        The time of a token is not told and there is no datasheet to take it from.
    """
    name = PARAMETERS[j]
    others = ", ".join(other for other in list(found.shares)[:4] if other != name)
    why = f"these latencies do not tell it apart from {others}" if others else "these latencies hardly depend on it"
    known = 0.0 if prior is None or j == OVERHEAD else float(getattr(prior, name))
    if known > 0:
        value = float(min(known, theta[C] + theta[W]) if j == W else known)
        reason = f"{name}: {why}; fixed to the roofline of the device's datasheet"
        return Stand(j, value, reason, _DOUBT * value, False)
    if j in (BETA, A):
        raise InputError(
            f"{name}: {why}, and without it no larger batch can be timed; give the GPU and the model for a datasheet's "
            "value, or latencies under more load or with longer prompts"
        )
    tail = f", {_WORDS[j]}; give the GPU and the model for a datasheet's value" if j in _WORDS else ""
    doubt = _ONE_SIDED * float(reference[j])
    if j in (C, W):
        doubt = min(doubt, float(theta[C] + theta[W]) / 2)
    return Stand(j, 0.0, f"{name}: {why}; fixed to 0{tail}", doubt, True)
