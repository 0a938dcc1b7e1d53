"""Held-out errors by phase (prefill, decode, mixed) and by the part of an iteration that takes longest."""

from __future__ import annotations

__all__ = ["PARTS", "errors_by_regime", "longest_part"]

import numpy as np
from jaxtyping import Float

from tileq_profiling.calibration.records import RegimeError
from tileq_profiling.profile.table import Profile
from tileq_theory.iteration_time import IterationTime

PARTS = ("launch", "floor", "compute", "prefill attention", "decode attention", "sequences")


def longest_part(time: IterationTime, profile: Profile) -> np.ndarray:
    """Return the part of each row that takes longest under the model."""
    linear = np.asarray(time.linear_s(profile.tokens))
    on_floor = linear <= time.weight_floor_s
    parts = np.stack(
        [
            np.full(len(profile), time.launch_s),
            np.where(on_floor, linear, 0.0),
            np.where(on_floor, 0.0, linear),
            time.pair_s * profile.pairs,
            time.kv_token_s * profile.kv_tokens,
            time.sequence_s * profile.sequences,
        ]
    )
    longest: np.ndarray = np.array(PARTS)[np.argmax(parts, axis=0)]
    return longest


def errors_by_regime(
    profile: Profile,
    predicted_s: Float[np.ndarray, "point"],
    time: IterationTime,
) -> tuple[RegimeError, ...]:
    """Return the errors of all rows, of each phase and of each longest part, in that order."""
    relative = predicted_s / profile.seconds - 1
    ratio = profile.seconds / predicted_s
    inside = (ratio >= time.error_band.low) & (ratio <= time.error_band.high)
    phase, part = profile.phase, longest_part(time, profile)
    masks = {"all": np.ones(len(profile), dtype=bool)}
    masks.update({name: phase == name for name in ("prefill", "decode", "mixed", "unknown")})
    masks.update({f"{name} longest": part == name for name in PARTS})
    return tuple(_error(name, relative[m], inside[m]) for name, m in masks.items() if m.any())


def _error(name: str, relative: np.ndarray, inside: np.ndarray) -> RegimeError:
    size = np.abs(relative)
    return RegimeError(
        name,
        int(size.size),
        float(np.median(size)),
        float(np.quantile(size, 0.9)),
        float(np.median(relative)),
        float(np.mean(inside)),
    )
