r"""From end-to-end latencies to an iteration time, through the simulator.

1. The runs are made ready (`evidence`): what to simulate, what was measured, what is assumed of the engine.
2. Start: regressions on the run's own record, or a scaled roofline (`start`).
3. Coefficients of least robust loss (`refine`).
4. What is determined: singular values (`identify`). While a combination is not, one coefficient of it is fixed to the
   roofline's value (`prior`) and the rest refitted, and the answer says so.
5. Judgement: intervals that allow for requests which err together, errors on stretches of requests (or whole runs) that
   the fit did not see, an error band.
"""

from __future__ import annotations

__all__ = ["fit_latencies"]

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from tileq_engine.policy import Policy
from tileq_profiling.calibration import Calibration
from tileq_profiling.fit.model import iteration_time
from tileq_profiling.fit.rows import BETA, NAMES, A, C, E, K, S, W
from tileq_profiling.inverse.engine import EngineGiven
from tileq_profiling.inverse.evidence import Evidence, evidence_of, runs_named
from tileq_profiling.inverse.forward import OVERHEAD, PARAMETERS, Forward
from tileq_profiling.inverse.identify import (
    Combination,
    combinations,
    covariance,
    inverse_of,
    meat_of,
    worst,
)
from tileq_profiling.inverse.judge import Held, band_of, held_out, regimes_of, regions_of
from tileq_profiling.inverse.lone import lone_tile
from tileq_profiling.inverse.prior import Stand, as_theta, prior_of, references, stand_for, weakest
from tileq_profiling.inverse.refine import Refined, at, refine, slopes, weights_of
from tileq_profiling.inverse.result import InverseFit, RunFigures
from tileq_profiling.inverse.start import scaled_start, structural_start, typical
from tileq_profiling.profile import Conditions
from tileq_profiling.steps.run import MeasuredRun
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime
from tileq_theory.provenance import Provenance

if TYPE_CHECKING:
    from tileq_theory.hardware import Gpu, Model

_DRAWS = 200
_FEWEST_VALUES = 3
_MISSED = 0.3  # median error of a kind beyond which the assumptions are doubted
_LONGEST_BESIDE_S = 5.0  # tokenising, network and gateways take less
_ABSURD = 99.0  # a hundredfold miss is a unit, not an engine
_CLOSE = 0.06  # median residual of a start that needs no second one


def fit_latencies(
    runs: Sequence[MeasuredRun],
    *,
    policy: Policy | None = None,
    token_budget: int | None = None,
    max_num_seqs: int | None = None,
    kv_tokens: int | None = None,
    gpu: Gpu | None = None,
    model: Model | None = None,
    tp: int = 1,
    dtype: str = "bf16",
    rate: float | None = None,
    clients: int | None = None,
    tile_tokens: int | None = None,
    seed: int = 0,
) -> InverseFit:
    """Return the iteration time under which the simulated engine shows the latencies that were measured.

    Parameters
    ----------
    runs
        Runs of one engine, device and model (several rates tell more than one).
    policy, token_budget, max_num_seqs, kv_tokens
        The engine; None: as the files state, else vLLM's defaults, which the answer names.
    gpu, model, tp, dtype
        What ran on what: the roofline of its datasheet stands for what the latencies do not tell.
    rate, clients
        How requests came, for files without arrivals: requests per second, or clients of a closed loop.
    tile_tokens
        b of the model; None: found on prefills that ran alone, where there are enough, else the model is affine.
    seed
        Of drawn arrivals.

    Raises
    ------
    InputError
        No run, no latency, nobody says how requests arrived, or the time of a token cannot be told.
    """
    if not runs:
        raise InputError("no measured run was given; expected at least one with latencies")
    known = EngineGiven(token_budget, max_num_seqs, kv_tokens, gpu, model, tp, dtype)
    evidence = [evidence_of(r, known, policy=policy, rate=rate, clients=clients, seed=seed) for r in runs]
    if sum(e.values for e in evidence) < _FEWEST_VALUES:
        raise InputError(
            f"{sum(e.values for e in evidence)} latencies in all; an iteration time has seven coefficients: give more "
            "requests or runs"
        )
    verdict = lone_tile(evidence, tile_tokens, seed)
    forward = Forward.of(evidence, verdict.tile_tokens)
    prior = prior_of(gpu, model, tp, dtype, verdict.tile_tokens)
    try:
        found = _determined(forward, evidence, prior)
    except InputError as problem:
        asked = [text for run in runs for text in run.warnings if text.endswith("?")]
        raise InputError("; ".join([str(problem), *dict.fromkeys(asked)])) from None
    held = held_out(forward, found.state, found.reference, found.active)
    draws = _draws(found, seed)
    time = _time(found, forward, runs, held)
    warnings = (*found.reasons, *_odd(forward, found.state), *(w for r in runs for w in r.warnings))
    calibration = Calibration(
        time=time,
        tile=verdict,
        held_out=regimes_of(held, time),
        regions=regions_of(held),
        intervals={name: _interval(draws[:, j], found.state.theta[j]) for j, name in enumerate(NAMES)},
        draws=draws[:, : len(NAMES)],
        points=int(forward.measured.size),
        scope="latencies",
        conditions=_conditions(runs, gpu, model, tp, dtype),
        warnings=tuple(dict.fromkeys(warnings)),
    )
    return InverseFit(
        calibration,
        float(found.state.theta[OVERHEAD]),
        _interval(draws[:, OVERHEAD], found.state.theta[OVERHEAD]),
        found.combinations,
        {PARAMETERS[s.index]: s.reason for s in found.fixed},
        _figures(forward, found.state, evidence),
        tuple(dict.fromkeys(text for e in evidence for text in e.assumed)),
        max(e.config.token_budget for e in evidence),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    """The fitted state, what moved, what was fixed, and how sure the rest is (in units of the references)."""

    state: Refined
    reference: Float[np.ndarray, "8"]
    active: tuple[int, ...]
    variance: Float[np.ndarray, "active active"]
    pull: Float[np.ndarray, "active fixed"]
    combinations: tuple[Combination, ...]
    fixed: tuple[Stand, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(s.reason for s in self.fixed)


def _determined(forward: Forward, evidence: Sequence[Evidence], prior: IterationTime | None) -> _Found:
    given = None if prior is None else as_theta(prior)
    every = [C, W, BETA, E, K, S] + ([A] if forward.tile_tokens is not None else [])
    if any(t.name in ("ttft_s", "e2e_s") for e in evidence for t in e.targets):
        every.append(OVERHEAD)
    state, reference = _first(forward, evidence, given, every)
    told: tuple[Combination, ...] = ()
    active, fixed = list(every), list[Stand]()
    while True:
        found = slopes(forward, state.theta, reference, every)
        normal, meat = found.normal(weights_of(state)), meat_of(forward, state, found)
        told = told or combinations(covariance(normal, meat), every)
        dropped = _drop(normal, meat, every, active, state.theta, reference, prior)
        if not dropped:
            own, rest = ([every.index(j) for j in chosen] for chosen in (active, [s.index for s in fixed]))
            variance = covariance(normal[np.ix_(own, own)], meat[np.ix_(own, own)])
            pull = -inverse_of(normal[np.ix_(own, own)]) @ normal[np.ix_(own, rest)]
            return _Found(state, reference, tuple(active), variance, pull, told, tuple(fixed))
        fixed += dropped
        theta = _with_stands(state.theta, dropped, active)
        state = refine(forward, theta, reference, active)
        reference = references(state.theta, given, forward.tile_tokens)


def _drop(
    normal: Float[np.ndarray, "every every"],
    meat: Float[np.ndarray, "every every"],
    every: Sequence[int],
    active: list[int],
    theta: Float[np.ndarray, "8"],
    reference: Float[np.ndarray, "8"],
    prior: IterationTime | None,
) -> list[Stand]:
    """Take coefficients off `active` until every combination of those left is determined; return their stands."""
    given = None if prior is None else as_theta(prior)
    out = []
    while len(active) > 1:
        own = [every.index(j) for j in active]
        loose = worst(combinations(covariance(normal[np.ix_(own, own)], meat[np.ix_(own, own)]), active))
        if loose is None:
            break
        j = weakest(loose, given, active)
        out.append(stand_for(j, theta, prior, loose, reference))
        active.remove(j)
    return out


def _with_stands(
    theta: Float[np.ndarray, "8"], stands: Sequence[Stand], active: Sequence[int]
) -> Float[np.ndarray, "8"]:
    """Return theta with the stands in place; launch and floor keep their sum."""
    out = theta.copy()
    for stand in stands:
        out[stand.index] = stand.value
        other = {W: C, C: W}.get(stand.index)
        if other is not None and other in active:
            out[other] = max(0.0, theta[C] + theta[W] - stand.value)
    return out


def _first(
    forward: Forward, evidence: Sequence[Evidence], prior: Float[np.ndarray, "8"] | None, active: Sequence[int]
) -> tuple[Refined, Float[np.ndarray, "8"]]:
    """Return the best state found from all starts, and the references there."""
    starts = [scaled_start(forward, prior if prior is not None else typical())]
    structural = structural_start(evidence)
    if structural is not None:
        starts.append(structural)
    if forward.tile_tokens is not None:
        starts = [_with_tile(theta, forward.tile_tokens) for theta in starts]
    alike = np.ones(forward.measured.size)
    starts.sort(key=lambda theta: at(forward, theta, alike).loss)
    ended = []
    for theta in starts:
        ended.append(refine(forward, theta, references(theta, prior, forward.tile_tokens), active))
        if float(np.median(np.abs(ended[-1].residual))) < _CLOSE:
            break
    best = min(ended, key=lambda s: s.loss)
    return best, references(best.theta, prior, forward.tile_tokens)


def _with_tile(theta: Float[np.ndarray, "8"], tile: int) -> Float[np.ndarray, "8"]:
    out = theta.copy()
    if out[A] == 0:
        out[A], out[BETA] = 0.8 * tile * theta[BETA], 0.2 * theta[BETA]
    return out


def _draws(found: _Found, seed: int) -> Float[np.ndarray, "draw 8"]:
    """Return coefficient vectors spread as the variance says, heavier tailed where few stretches tell it."""
    rng = np.random.default_rng(seed)
    own, rest = list(found.active), [stand.index for stand in found.fixed]
    value, vector = np.linalg.eigh(found.variance)
    moves = (rng.standard_t(15, size=(_DRAWS, value.size)) * np.sqrt(np.maximum(value, 0.0))) @ vector.T
    # what was fixed may be otherwise, and then so are the others
    other = rng.standard_normal((_DRAWS, len(rest))) * np.array([stand.doubt for stand in found.fixed])
    other = np.where([stand.one_sided for stand in found.fixed], np.abs(other), other)
    moves += (other / found.reference[rest]) @ found.pull.T
    out = np.tile(found.state.theta, (_DRAWS, 1))
    out[:, own] += moves * found.reference[own]
    out[:, rest] += other
    kept: np.ndarray = np.maximum(out, 0.0)
    return kept


def _interval(draws: Float[np.ndarray, "draw"], estimate: float) -> tuple[float, float]:
    """Return the central 95 % of the draws, the estimate included (what is fixed to 0 can only be larger)."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return float(min(low, estimate)), float(max(high, estimate))


def _time(found: _Found, forward: Forward, runs: Sequence[MeasuredRun], held: Held) -> IterationTime:
    time = iteration_time(found.state.theta[:OVERHEAD], forward.tile_tokens)
    notes = (
        f"fitted through the simulator to {forward.measured.size} latencies of {len(runs)} run(s)",
        *(text for e in forward.evidence for text in e.assumed),
        *found.reasons,
    )
    source = ", ".join(dict.fromkeys(r.source for r in runs))
    return time.with_(provenance=Provenance("fitted", source, tuple(dict.fromkeys(notes))), error_band=band_of(held))


def _odd(forward: Forward, state: Refined) -> tuple[str, ...]:
    """Return warnings about latencies that the fit cannot follow."""
    out = []
    residual = forward.residual(state.theta)  # the state's own are cut where they grow absurd
    for k, (run, name, _) in enumerate(forward.kinds):
        mine = residual[(forward.kind == k) & np.isfinite(residual)]
        error = float(np.median(np.expm1(np.abs(mine)))) if mine.size else 0.0
        source = forward.evidence[run].source
        if error > _ABSURD:
            slow = float(np.median(mine)) < 0
            asked = "milliseconds taken for seconds" if slow else "seconds taken for milliseconds"
            out.append(
                f"{source}: measured {name} are {1 + error:.2g} times {'' if slow else 'less than '}what the fit says "
                f"in the median: were {asked}?"
            )
        elif error > _MISSED:
            out.append(
                f"{source}: the fit misses {name} by {error:.0%} in the median: scheduler, token budget or arrivals "
                "are not what is assumed, or the file holds more than one engine's times"
            )
    beside = float(state.theta[OVERHEAD])
    if beside > _LONGEST_BESIDE_S:
        out.append(
            f"a request spends {beside:.3g} s outside of the engine's iterations, if these latencies are right: were "
            "milliseconds taken for seconds, or do requests wait before the engine sees them?"
        )
    lost = int(np.count_nonzero(~np.isfinite(residual)))
    if not lost:
        return tuple(out)
    return (
        *out,
        f"{lost} of {forward.measured.size} measured latencies have no counterpart: the assumed engine rejects them",
    )


def _conditions(runs: Sequence[MeasuredRun], gpu: Gpu | None, model: Model | None, tp: int, dtype: str) -> Conditions:
    told = runs[0].conditions
    return replace(
        told,
        device=gpu.name if gpu is not None else told.device,
        model=model.name if model is not None else told.model,
        tp=tp if told.tp == 1 else told.tp,
        dtype=told.dtype if dtype == "bf16" else dtype,
    )


def _figures(forward: Forward, state: Refined, evidence: Sequence[Evidence]) -> tuple[RunFigures, ...]:
    predicted = forward.measured * np.exp(np.nan_to_num(forward.residual(state.theta)))
    names = runs_named(evidence)
    return tuple(
        RunFigures(names[run], name, each, forward.measured[mask], predicted[mask])
        for k, (run, name, each) in enumerate(forward.kinds)
        if (mask := forward.kind == k).any()
    )
