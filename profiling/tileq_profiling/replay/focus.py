r"""A calibration for the batches that a run visits.

The seven-coefficient family cannot follow every batch of a kernel profile at once: on one GPU a KV token read beside a
prefill chunk costs nearly twice what it costs in a batch of decodes alone, and a profile has far more of the former.
A run spends its time in a small part of the profile. So: simulate the run's requests on the plain fit, weigh each
measured batch by the time spent near it (a fifth of the weight stays spread over all), fit again, and repeat. Nothing
that the run measured is used but its arrivals, lengths and settings.

Near is in logarithms: a visited batch spreads the time spent in it over the closest measured ones, by
exp(-d^2 / 2) with d^2 the sum of squared differences of log2 of (1 + prefill tokens, 1 + decodes, 1 + KV read,
1 + mean context of the chunk).
"""

from __future__ import annotations

__all__ = ["focused_fit", "visit_weights"]

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.run import Run
from tileq_profiling.calibration import Calibration
from tileq_profiling.fit import fit
from tileq_profiling.profile import Profile
from tileq_profiling.replay.replay import replay
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError, positive_int
from tileq_theory.provenance import Provenance

_NEAREST = 8
# share of the mean weight that every batch keeps: with less, a handful of batches decides and a staircase is lost
_ELSEWHERE = 0.2
_VISITS = 2000


def focused_fit(
    profile: Profile,
    run: MeasuredRun,
    *,
    config: EngineConfig | None = None,
    policy: Policy | None = None,
    rounds: int = 2,
    **options: Any,
) -> Calibration:
    """Return the calibration of `profile` for the batches that the run's requests form.

    Parameters
    ----------
    profile
        Measured batches, with their split into prefill and decode.
    run, config, policy
        As in `replay`.
    rounds
        How often to simulate and fit again.
    options
        Of `fit`.
    """
    if np.isnan(profile.prefill_tokens).any():
        raise InputError("the profile does not tell the prefill tokens of each batch; a focused fit needs them")
    found, told = fit(profile, bootstrap=0, folds=2), f"fitted to the batches that the requests of {run.source} form"
    for left in range(positive_int("rounds", rounds) - 1, -1, -1):
        weights = visit_weights(profile, replay(run, found.time, config=config, policy=policy).run)
        found = fit(profile, weights=weights, **(options if left == 0 else {"bootstrap": 0, "folds": 2}))
    p = found.time.provenance
    time = found.time.with_(provenance=Provenance(p.kind, p.source, (*p.notes, told)))
    return replace(
        found, time=time, warnings=(*found.warnings, f"{told}: errors elsewhere are larger than they need be")
    )


def visit_weights(profile: Profile, run: Run) -> Float[np.ndarray, "point"]:
    """Return how much of the run's time was spent near each measured batch (mean 1)."""
    s = run.samples
    order = np.linspace(0, s["start_ps"].size - 1, min(_VISITS, s["start_ps"].size)).astype(int)
    prefill, decodes = (s[name][order].astype(float) for name in ("prefill_tokens", "decode_tokens"))
    held = s["kv_blocks_used"][order] * float(run.info.block_tokens)
    # a chunk's own history is not in the samples: half a mean prompt stands for the context of its middle token
    context = np.where(prefill > 0, np.minimum(float(run.requests["prompt_tokens"].mean()), prefill) / 2, 0.0)
    visited = _place(prefill, decodes, np.where(decodes > 0, held, 0.0), context)
    chunk = profile.prefill_tokens
    measured = _place(
        chunk,
        profile.tokens - chunk,
        profile.kv_tokens,
        np.divide(profile.pairs, chunk, out=np.zeros(chunk.size), where=chunk > 0),
    )
    weights = _spread(visited, measured, s["duration_ps"][order].astype(float))
    mean = float(weights.mean())
    return np.asarray((1 - _ELSEWHERE) * weights / mean + _ELSEWHERE)


def _place(*amounts: Float[np.ndarray, "row"]) -> Float[np.ndarray, "row 4"]:
    return np.log2(1.0 + np.column_stack(amounts))


def _spread(
    visited: Float[np.ndarray, "visit 4"], measured: Float[np.ndarray, "point 4"], time: Float[np.ndarray, "visit"]
) -> Float[np.ndarray, "point"]:
    from scipy.spatial import cKDTree

    near = min(_NEAREST, measured.shape[0])
    found = cKDTree(measured).query(visited, k=near)
    distance, index = (np.asarray(column).reshape(-1, near) for column in found)
    # relative to the closest: a visit far from everything measured still counts where it is closest
    share = np.exp((distance[:, :1] ** 2 - distance**2) / 2)
    share *= (time / share.sum(axis=1))[:, None]
    return np.bincount(index.ravel(), weights=share.ravel(), minlength=measured.shape[0])
