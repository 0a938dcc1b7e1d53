"""How far a fit to latencies may be trusted: errors on requests, or runs, that it did not see."""

from __future__ import annotations

__all__ = ["Held", "band_of", "held_out", "regimes_of", "regions_of"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from tileq_profiling.calibration.records import RegimeError, RegionError
from tileq_profiling.fit.bands import content_band
from tileq_profiling.inverse.evidence import runs_named
from tileq_profiling.inverse.forward import Forward
from tileq_profiling.inverse.refine import Refined, Slopes, bounded_move, refine, slopes
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import ErrorBand

_FOLDS = 5
_FEWEST_RUNS = 3  # with fewer, stretches of requests are held out
_ROUNDS = 4
_FEWEST_BAND = 20
_COVERAGE = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Residuals log(predicted/measured) of values that were held out.

    Parameters
    ----------
    forward
        The values.
    residual
        Of each, by the fit that did not see it; NaN for none.
    runs
        Name of the run of each value.
    by_run
        Whether whole runs were held out.
    """

    forward: Forward
    residual: Float[np.ndarray, "value"]
    runs: tuple[str, ...]
    by_run: bool

    @property
    def names(self) -> np.ndarray:
        """Name of each value."""
        return np.asarray(np.array([name for _, name, _ in self.forward.kinds])[self.forward.kind])

    @property
    def run_of(self) -> np.ndarray:
        """Run of each value."""
        return np.asarray(np.array([run for run, _, _ in self.forward.kinds])[self.forward.kind])


def held_out(forward: Forward, state: Refined, reference: Float[np.ndarray, "8"], active: Sequence[int]) -> Held:
    """Return the errors of fits that did not see a run, or a fifth of the stretches of requests."""
    names = tuple(runs_named(forward.evidence))
    if len(forward.evidence) >= _FEWEST_RUNS:
        return Held(forward, _without_runs(forward, state, reference, active), names, True)
    found = slopes(forward, state.theta, reference, active)
    residual = np.full(forward.measured.size, np.nan)
    blocks = np.unique(forward.block)
    if blocks.size < 2 * _FOLDS:
        return Held(forward, forward.residual(state.theta), names, False)
    fold = np.random.default_rng(0).permutation(blocks.size) % _FOLDS
    for k in range(_FOLDS):
        test = np.isin(forward.block, blocks[fold == k])
        residual[test] = forward.residual(_one_step(state, found, reference, active, ~test))[test]
    return Held(forward, residual, names, False)


def _one_step(
    state: Refined,
    found: Slopes,
    reference: Float[np.ndarray, "8"],
    active: Sequence[int],
    seen: Bool[np.ndarray, "value"],
) -> Float[np.ndarray, "8"]:
    """Return the coefficients of the linearised fit to the values seen."""
    theta = state.theta.copy()
    place = theta[list(active)] / reference[list(active)]
    move = bounded_move(found, state, place, 1.0, seen)
    theta[list(active)] = np.maximum(0.0, (place + move) * reference[list(active)])
    return theta


def _without_runs(
    forward: Forward, state: Refined, reference: Float[np.ndarray, "8"], active: Sequence[int]
) -> Float[np.ndarray, "value"]:
    run = np.array([at for at, _, _ in forward.kinds])[forward.kind]
    residual = np.full(forward.measured.size, np.nan)
    for k, one in enumerate(forward.evidence):
        others = Forward.of([e for e in forward.evidence if e is not one], forward.tile_tokens)
        theta = refine(others, state.theta, reference, active, rounds=_ROUNDS).theta
        residual[run == k] = Forward.of([one], forward.tile_tokens).residual(theta)
    return residual


def _error(name: str, residual: Float[np.ndarray, "value"], band: ErrorBand) -> RegimeError:
    error, ratio = np.expm1(residual), np.exp(-residual)
    return RegimeError(
        regime=name,
        points=int(residual.size),
        median_abs=float(np.median(np.abs(error))),
        p90_abs=float(np.quantile(np.abs(error), 0.9)),
        bias=float(np.median(error)),
        inside=float(np.mean((ratio >= band.low) & (ratio <= band.high))),
    )


def regimes_of(held: Held, time: IterationTime) -> tuple[RegimeError, ...]:
    """Return the errors of all values and of each kind."""
    known = np.isfinite(held.residual)
    if not known.any():
        return ()
    out = [_error("all", held.residual[known], time.error_band)]
    for name in dict.fromkeys(held.names.tolist()):
        mask = known & (held.names == name)
        if mask.any():
            out.append(_error(str(name), held.residual[mask], time.error_band))
    return tuple(out)


def regions_of(held: Held) -> tuple[RegionError, ...]:
    """Return the errors on whole runs left out; none where stretches were."""
    if not held.by_run:
        return ()
    out = []
    for k, name in enumerate(held.runs):
        residual = held.residual[(held.run_of == k) & np.isfinite(held.residual)]
        if residual.size:
            error = np.expm1(residual)
            out.append(RegionError(name, int(residual.size), float(np.median(np.abs(error))), float(np.median(error))))
    return tuple(out)


def band_of(held: Held) -> ErrorBand:
    """Return the band of measured over predicted time of an iteration.

    A request's time per output token is a mean over iterations; TTFT is mostly queueing under load, which magnifies an
    error of the times, so it counts only where nothing else was measured.
    """
    known = np.isfinite(held.residual)
    chosen = known & np.isin(held.names, ("tpot_s", "itl_s"))
    if not chosen.any():
        chosen = known
    ratio = np.exp(-held.residual[chosen])
    if not ratio.size:
        return ErrorBand(basis="no measured latency has a counterpart")
    told = ", ".join(dict.fromkeys(held.names[chosen].tolist()))
    what = "runs" if held.by_run else "requests"
    if ratio.size < _FEWEST_BAND:
        low, high = float(min(ratio.min(), 1.0)), float(max(ratio.max(), 1.0))
        return ErrorBand(
            low, high, basis=f"range of measured / predicted {told} ({ratio.size} values); too few to say more"
        )
    low, high, confidence = content_band(ratio, _COVERAGE)
    inside = float(np.mean((ratio >= low) & (ratio <= high)))
    basis = (
        f"measured / predicted {told} of {ratio.size} held-out {what}: holds {_COVERAGE:.0%} of further ones with "
        f"confidence {confidence:.0%}; single iterations spread further"
    )
    return ErrorBand(low, high, inside, basis)
