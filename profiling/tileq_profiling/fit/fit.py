r"""The fit, end to end.

1. Questions: can the unit be right, what is missing (`unit_questions`, `identified`, `what_is_missing`).
2. Pilot: an affine fit with a wide knee gives the scale of the residuals, so that a wild time neither draws the fit nor
   weighs more because it is small; the knee M is 1.345 robust standard deviations of the best tile's residuals.
3. Tile: by held-out error (`tile_choice`).
4. Coefficients: what the data do not ask for is dropped (`prune`), the rest is the global minimum of the Huber loss
   over all splits between floor and line (`program`).
5. Judgement: cross-validated errors by regime, an error band that holds, regions left out, bootstrap intervals.
"""

from __future__ import annotations

__all__ = ["fit"]

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tileq_profiling.calibration.calibration import Calibration
from tileq_profiling.calibration.records import TileVerdict
from tileq_profiling.fit.bands import error_band_of
from tileq_profiling.fit.identify import identified, told_as_warnings, what_is_missing
from tileq_profiling.fit.kv_price import prices_differ
from tileq_profiling.fit.model import held_out_predictions, iteration_time
from tileq_profiling.fit.program import Exact, fit_exactly
from tileq_profiling.fit.prune import pruned
from tileq_profiling.fit.regions import leave_region_out
from tileq_profiling.fit.resample import bootstrap_draws, intervals_of
from tileq_profiling.fit.residuals import errors_by_regime
from tileq_profiling.fit.rows import NAMES, A, Rows, predict
from tileq_profiling.fit.screen import polish, screen, splits_of
from tileq_profiling.fit.tile_choice import choose_tile, knee_of
from tileq_profiling.fit.tiles import candidate_tiles
from tileq_profiling.profile.columns import amounts
from tileq_profiling.profile.plausibility import unit_questions
from tileq_profiling.profile.table import Profile
from tileq_theory.errors import InputError, positive_int
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import Provenance

_PILOT_KNEE = 0.1
_MOST_SPLITS = 64
_MOST_ROWS = 12_000


def fit(
    profile: Profile,
    *,
    tiles: Iterable[int] | None = None,
    coverage: float = 0.9,
    folds: int = 10,
    bootstrap: int = 200,
    seed: int = 0,
    fill_from: IterationTime | None = None,
    weights: ArrayLike | None = None,
) -> Calibration:
    """Return the calibration of a profile.

    Parameters
    ----------
    profile
        Measured iteration times.
    tiles
        Candidate tiles, tokens; None: those that kernels have. One tile is a question, not an order: the answer may
        still be that none is visible.
    coverage
        Share of further iterations that the error band must hold.
    folds, bootstrap, seed
        Folds of the cross-validation, draws of the bootstrap (0: no intervals), seed of both.
    fill_from
        A model (a datasheet roofline, say) that lends the coefficients which these batches cannot tell; None: they
        are 0, with a warning.
    weights
        How much each row counts (any scale); None: prefill, decode and mixed rows count the same in all.

    Raises
    ------
    InputError
        Fewer than 3 distinct batches, or times that cannot be seconds.

    Examples
    --------
    >>> true = IterationTime(launch_s=0.004, weight_floor_s=0.010, token_s=8e-5)
    >>> n = np.arange(8, 1024, 16)
    >>> c = fit(Profile.of(tokens=n, seconds=true(n)), bootstrap=0)
    >>> c.tile.answer, round(1e5 * c.time.token_s, 3)
    ('none', 8.0)
    """
    given = None if weights is None else _weights(weights, len(profile))
    profile, given, thinned = _thinned(profile, given, seed)
    rows = Rows.of(profile, given)
    _enough(rows)
    questions = unit_questions(profile)
    problem = _pose(profile, rows, tiles)
    tile, verdict = _tile(problem, seed)
    _cell, kept = pruned(problem.rows, tile, splits_of(problem.rows), problem.active, problem.knee)
    exact = fit_exactly(problem.rows, tile, splits_of(problem.rows, _MOST_SPLITS), kept, problem.knee)
    theta = exact.theta
    folds = min(positive_int("folds", folds), np.unique(rows.group).size)
    predicted = held_out_predictions(problem.rows, tile, problem.active, problem.knee, folds, seed)
    ordered = profile.take(np.argsort(profile.tokens, kind="stable"))
    time = iteration_time(theta, tile).with_(
        provenance=_provenance(profile, problem, exact), error_band=error_band_of(ordered, predicted, coverage)
    )
    draws = bootstrap_draws(
        problem.rows, tile, _around(splits_of(problem.rows), exact.split_tokens), kept, problem.knee, bootstrap, seed
    )
    time, told = _filled(time, fill_from, problem.untold)
    missing = what_is_missing(profile, exact.split_tokens)
    # weights are given where the fit is made for some batches already
    apart = prices_differ(profile, time) if given is None else ()
    warnings = (*questions, *thinned, *told, *missing, *apart)
    return Calibration(
        time=time,
        tile=verdict,
        held_out=errors_by_regime(ordered, predicted, time),
        regions=leave_region_out(problem.rows, tile, problem.active, problem.knee),
        intervals=intervals_of(draws),
        draws=draws,
        points=len(profile),
        scope=profile.scope,
        conditions=profile.conditions,
        warnings=warnings,
    )


@dataclass(frozen=True, slots=True)
class _Problem:
    """A profile made ready: scaled rows, coefficients that can be told, candidate tiles, knee, what cannot be told."""

    rows: Rows
    active: Sequence[int]
    tiles: Sequence[int]
    knee: float
    untold: Mapping[int, str]


def _weights(given: ArrayLike, rows: int) -> np.ndarray:
    weights = amounts("weights", given, rows)
    if not (weights > 0).all():
        raise InputError("a weight is 0; expected numbers above 0 (leave rows out with `Profile.take`)")
    return weights


def _thinned(
    profile: Profile, weights: np.ndarray | None, seed: int
) -> tuple[Profile, np.ndarray | None, tuple[str, ...]]:
    """Return a profile of at most `_MOST_ROWS` rows, as even over the phases as there are rows: logs have millions."""
    if len(profile) <= _MOST_ROWS:
        return profile, weights, ()
    rng = np.random.default_rng(seed)
    phase, order = profile.phase, rng.permutation(len(profile))
    names, counts = np.unique(phase, return_counts=True)
    room, taken = _MOST_ROWS, []
    for left, at in enumerate(np.argsort(counts)):
        share = room // (names.size - left)
        own = order[phase[order] == names[at]][:share]
        taken.append(own)
        room -= own.size
    rows = np.sort(np.concatenate(taken))
    note = f"fitted to {rows.size} of the {len(profile)} measured iterations, drawn at random within each phase"
    return profile.take(rows), None if weights is None else weights[rows], (note,)


def _enough(rows: Rows) -> None:
    batches = np.unique(rows.group).size
    if batches < 3:
        raise InputError(
            f"the profile measures {batches} distinct batch{'es' if batches > 1 else ''}; a fit needs at least 3 that "
            "differ in tokens, context or sequences: measure more batch sizes"
        )


def _pose(profile: Profile, rows: Rows, tiles: Iterable[int] | None) -> _Problem:
    active, untold = identified(profile, rows)
    splits = splits_of(rows)
    pilot = polish(rows, None, splits, active, _PILOT_KNEE)
    first = predict(rows, None, pilot.theta)
    # a pilot that is far off must not silence or inflate a row
    scaled = rows.scaled_by(np.clip(first, rows.seconds / 4, rows.seconds * 4))
    given = None if tiles is None else list(tiles)
    candidates = candidate_tiles(rows, given)
    knee = _knee(scaled, candidates, active)
    return _Problem(scaled, active, candidates, knee, untold)


def _knee(rows: Rows, tiles: Sequence[int], active: Sequence[int]) -> float:
    """Return Huber's M from the residuals of the best tile, so that a staircase is not taken for outliers."""
    splits = splits_of(rows)
    cells = screen(rows, [None, *tiles] if A in active else [None], splits, active)
    best = min(cells, key=lambda cell: cell.loss)
    return max(knee_of(rows, best), 1e-3)


def _tile(problem: _Problem, seed: int) -> tuple[int | None, TileVerdict]:
    verdict = choose_tile(problem.rows, problem.tiles, problem.active, problem.knee, seed)
    return verdict.tile_tokens, verdict


def _around(splits: Sequence[float], split: float) -> list[float]:
    """Return the split's neighbours: a bootstrap draw moves it a little, not across the profile."""
    nearest = int(np.argmin(np.abs(np.asarray(splits) - split)))
    return sorted({*splits[max(0, nearest - 2) : nearest + 3], split})


def _provenance(profile: Profile, problem: _Problem, exact: Exact) -> Provenance:
    c = profile.conditions
    floor = f"floor up to {exact.split_tokens:g} tokens" if exact.split_tokens > 0 else "no floor visible"
    notes = (
        f"{len(profile)} measured times ({profile.scope}), {np.unique(problem.rows.group).size} distinct batches",
        floor,
        f"Huber loss of relative errors, knee {problem.knee:.3g}",
        *((f"device {c.device}",) if c.device else ()),
        *((f"model {c.model}, {c.dtype}, tensor parallel {c.tp}",) if c.model else ()),
        *(f"{name} {version}" for name, version in c.libraries.items()),
        *c.notes,
    )
    return Provenance("fitted", c.source or "measured profile", notes)


def _filled(
    time: IterationTime, other: IterationTime | None, untold: Mapping[int, str]
) -> tuple[IterationTime, tuple[str, ...]]:
    """Return the model with the untold coefficients of another one, and the sentences that say so."""
    if other is None:
        return time, told_as_warnings(untold, (), "")
    lent = [j for j in untold if getattr(other, NAMES[j]) > 0]
    lender = other.provenance.source or other.provenance.kind
    told = told_as_warnings(untold, lent, lender)
    p = time.provenance
    notes = (*p.notes, *(t for t in told if "is taken from" in t))
    changes = {NAMES[j]: getattr(other, NAMES[j]) for j in lent}
    return time.with_(**changes, provenance=Provenance(p.kind, p.source, notes)), told
