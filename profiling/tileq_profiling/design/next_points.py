r"""The measurements that narrow the lambda* band most.

With rows x_i = gradient of t at batch i over its scale sigma t_i, the coefficients' precision is J = sum x_i x_i'
(and a weak prior that gives unmeasured coefficients a large but finite variance). lambda* has the variance g' J^-1 g,
g its gradient, and one more measurement x takes

    (g' J^-1 x)^2 / (1 + x' J^-1 x)

off it (Sherman & Morrison): a c-optimal design chosen greedily, the precision updated after each choice. The
D-optimal one takes the largest x' J^-1 x instead and serves every workload. A tile is found by other batches: those
where the two leading models differ most (Atkinson & Fedorov's T-optimal design), just below and just above a step.
"""

from __future__ import annotations

__all__ = ["DesignPoint", "next_measurements", "tile_measurements"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from tileq_profiling.calibration.calibration import Calibration
from tileq_profiling.calibration.rate_band import best_single_rate
from tileq_profiling.design.candidates import Batch, batches
from tileq_profiling.fit.rows import NAMES
from tileq_profiling.profile.table import Profile
from tileq_theory.capacity import Limits
from tileq_theory.capacity.plan import HasDemand
from tileq_theory.errors import InputError, positive_int
from tileq_theory.iteration_time import IterationTime

_PRIOR_SHARE = 10.0  # an unmeasured coefficient may take this many times a typical iteration
_LEAST_NOISE = 0.01


@dataclass(frozen=True, slots=True)
class DesignPoint:
    """A batch worth measuring.

    Parameters
    ----------
    batch
        What to run.
    relative_band_before, relative_band_after
        Standard deviation of lambda* over lambda* from the coefficients, before and after this measurement and those
        listed before it (the D-optimal design gives that of the worst-known candidate's time).
    """

    batch: Batch
    relative_band_before: float
    relative_band_after: float


def next_measurements(
    calibration: Calibration,
    profile: Profile,
    workload: HasDemand | None = None,
    limits: Limits | None = None,
    *,
    candidates: Sequence[Batch] | None = None,
    count: int = 8,
    criterion: Literal["rate", "all"] = "rate",
) -> list[DesignPoint]:
    """Return the `count` batches to measure next, best first.

    Parameters
    ----------
    calibration, profile
        The fit so far and the measurements behind it.
    workload, limits
        Whose lambda* is to be known; needed for criterion "rate".
    candidates
        Batches that can be measured; None: `batches` within the limits.
    criterion
        "rate": c-optimal for lambda*. "all": D-optimal, for every workload.
    """
    count = positive_int("count", count)
    if criterion not in ("rate", "all"):
        raise InputError(f"criterion is {criterion!r}; expected 'rate' or 'all'")
    if criterion == "rate" and workload is None:
        raise InputError("criterion 'rate' needs a workload whose lambda* is to be known; give one, or criterion 'all'")
    limits = limits or Limits()
    choices = list(candidates if candidates is not None else _within(limits))
    if not choices:
        raise InputError("no candidate batch fits the limits; give larger limits or candidates")
    time = calibration.time
    noise = max(1.4826 * calibration.median_error, _LEAST_NOISE)
    covariance = np.linalg.inv(_precision(time, profile, noise))
    rows = np.stack([_row(time, b.tokens, b.pairs, b.kv_tokens, b.sequences, noise) for b in choices])
    gradient = _rate_gradient(time, workload, limits) if workload is not None and criterion == "rate" else None
    out = []
    for _ in range(count):
        at, before, after, covariance = _choose(covariance, rows, gradient, noise)
        out.append(DesignPoint(choices[at], before, after))
    return out


def _choose(
    covariance: Float[np.ndarray, "p p"],
    rows: Float[np.ndarray, "choice p"],
    gradient: Float[np.ndarray, "p"] | None,
    noise: float,
) -> tuple[int, float, float, Float[np.ndarray, "p p"]]:
    spread = rows @ covariance
    own = np.einsum("ip,ip->i", spread, rows)
    if gradient is None:
        at = int(np.argmax(own))
        before = float(np.sqrt(own[at])) * noise
    else:
        at = int(np.argmax((spread @ gradient) ** 2 / (1 + own)))
        before = float(np.sqrt(gradient @ covariance @ gradient))
    updated = covariance - np.outer(spread[at], spread[at]) / (1 + own[at])
    if gradient is None:
        after = float(np.sqrt(max(np.einsum("ip,pq,iq->i", rows, updated, rows).max(), 0.0))) * noise
    else:
        after = float(np.sqrt(max(gradient @ updated @ gradient, 0.0)))
    return at, before, after, updated


def _within(limits: Limits) -> Sequence[Batch]:
    kv = float("inf") if limits.kv_tokens is None else limits.kv_tokens
    return batches(most_tokens=limits.max_batch_tokens, most_sequences=limits.max_num_seqs or 256, kv_tokens=kv)


def _row(
    time: IterationTime, tokens: float, pairs: float, kv: float, sequences: float, noise: float
) -> Float[np.ndarray, "p"]:
    """Return the gradient of t over its standard deviation, coefficients in the order of `NAMES`."""
    on_floor = float(time.linear_s(tokens)) <= time.weight_floor_s
    tiles = np.ceil(tokens / time.tile_tokens) if time.tile_s > 0 else 0.0
    slope = np.array(
        [
            1.0,
            float(on_floor),
            0.0 if on_floor else tiles,
            0.0 if on_floor else tokens,
            pairs,
            kv,
            sequences,
        ]
    )
    row: np.ndarray = slope / (noise * float(time(tokens, pairs, kv, sequences)))
    return row


def _precision(time: IterationTime, profile: Profile, noise: float) -> Float[np.ndarray, "p p"]:
    rows = np.stack([_row(time, n, a, k, m, noise) for n, a, k, m in profile.compositions.tolist()])
    # a prior so weak that any measurement of a coefficient overrules it
    typical = float(np.median(profile.seconds))
    size = np.maximum(np.array([1.0, 1.0, 1.0, *(np.max(profile.compositions, axis=0))]), 1.0)
    prior = np.diag((size / (_PRIOR_SHARE * typical)) ** 2)
    out: np.ndarray = rows.T @ rows + prior
    return out


def _rate_gradient(time: IterationTime, workload: HasDemand, limits: Limits) -> Float[np.ndarray, "p"]:
    """Return d log lambda / d coefficient by central differences of the single-level rate."""
    demand = workload.demand(chunk_tokens=limits.max_batch_tokens, counting="least")
    base = best_single_rate(time, demand, limits)
    if base <= 0:
        raise InputError("the workload has no capacity under these limits; raise them before asking for measurements")
    scale = float(time(limits.max_batch_tokens))
    natural = np.array([scale, scale, scale, scale / limits.max_batch_tokens, 1e-12, 1e-12, 1e-12])
    out = np.zeros(len(NAMES))
    for j, name in enumerate(NAMES):
        if name == "tile_s" and time.tile_s == 0:
            continue
        value = getattr(time, name)
        step = 1e-4 * (value if value > 0 else natural[j] or 1.0)
        up = best_single_rate(time.with_(**{name: value + step}), demand, limits)
        low = max(value - step, 0.0)
        down = best_single_rate(time.with_(**{name: low}), demand, limits)
        out[j] = (np.log(up) - np.log(down)) / (value + step - low)
    return out


def tile_measurements(calibration: Calibration, *, most_tokens: int = 2048, count: int = 8) -> list[int]:
    """Return the batch sizes at which the leading tiles' models differ most: measure these to tell them apart.

    The rivals are the verdict's tiles and, always, the straight line through the staircase's middle.
    """
    count, most = positive_int("count", count), positive_int("most_tokens", most_tokens)
    time, verdict = calibration.time, calibration.tile
    named = [b for b, _ in verdict.rivals] + ([verdict.tile_tokens] if verdict.tile_tokens else [])
    tiles = list(dict.fromkeys(named)) or [128]
    n = np.arange(1, most + 1, dtype=float)
    slope = time.tile_s / time.tile_tokens + time.token_s
    stairs = [slope * b * np.ceil(n / b) for b in tiles]
    curves = np.stack([slope * (n + np.mean(tiles) / 2), *stairs]) + time.launch_s
    curves = np.maximum(curves, time.launch_s + time.weight_floor_s)
    difference = (curves.max(axis=0) - curves.min(axis=0)) / curves.mean(axis=0)
    chosen: list[int] = []
    for at in np.argsort(-difference, kind="stable"):
        if all(abs(int(n[at]) - c) > 4 for c in chosen):
            chosen.append(int(n[at]))
        if len(chosen) == count:
            break
    return sorted(chosen)
