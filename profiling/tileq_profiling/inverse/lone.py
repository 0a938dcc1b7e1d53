"""Is a tile visible in latencies: on prompts that were prefilled in one iteration with nobody else there."""

from __future__ import annotations

__all__ = ["lone_tile"]

from collections.abc import Sequence

import numpy as np

from tileq_engine.run import PS_PER_S
from tileq_profiling.calibration.records import TileVerdict
from tileq_profiling.inverse.evidence import Evidence
from tileq_profiling.profile import Profile
from tileq_theory.errors import positive_int

_FEWEST = 40


def lone_tile(evidence: Sequence[Evidence], given: int | None, seed: int) -> TileVerdict:
    """Return the given tile, or the verdict of the prefills that ran alone."""
    from tileq_profiling.fit import fit

    if given is not None:
        tile = positive_int("tile_tokens", given)
        return TileVerdict("tile", tile, 0.0, reason=f"a tile of {tile} tokens was given, not found")
    prompt, seconds = _alone(evidence)
    lengths = np.unique(prompt).size
    if lengths < _FEWEST:
        reason = (
            f"{lengths} lengths of prompts were prefilled with nobody else there; {_FEWEST} or more are needed to see "
            "a tile in latencies, so the model is affine"
        )
        return TileVerdict("undecided", None, 0.0, reason=reason)
    lone = Profile.of(
        tokens=prompt,
        seconds=seconds,
        pairs=prompt * (prompt + 1) / 2,
        sequences=np.ones(prompt.size),
        prefill_tokens=prompt,
    )
    return fit(lone, bootstrap=0, folds=2, seed=seed).tile


def _alone(evidence: Sequence[Evidence]) -> tuple[np.ndarray, np.ndarray]:
    """Return prompt and TTFT of requests that met nobody from arrival to first token and fit one iteration."""
    prompts, times = [], []
    for one in evidence:
        told = {t.name: t for t in one.targets if t.statistic == "each"}
        if one.clients is not None or not {"ttft_s", "tpot_s"} <= told.keys():
            continue
        asked = one.requests[0]
        arrival, prompt = asked.arrival_ps / PS_PER_S, asked.prompt_tokens.astype(float)
        first = arrival + told["ttft_s"].measured
        steps = np.maximum(asked.output_tokens - 1, 0)
        finish = first + np.where(steps > 0, told["tpot_s"].measured * steps, 0.0)
        if not np.isfinite(finish).all():
            continue
        busy_until = np.concatenate([[-np.inf], np.maximum.accumulate(finish)[:-1]])
        following = np.concatenate([arrival[1:], [np.inf]])
        alone = (arrival > busy_until) & (following > first) & (prompt <= one.config.token_budget)
        prompts.append(prompt[alone])
        times.append((first - arrival)[alone])
    if not prompts:
        return np.empty(0), np.empty(0)
    return np.concatenate(prompts), np.concatenate(times)
