"""Replay a measured run's arrivals and lengths in the simulator and compare what came out."""

from __future__ import annotations

__all__ = ["replay"]

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.config import EngineConfig
from tileq_engine.policy import Policy
from tileq_engine.requests import Requests
from tileq_engine.run import PS_PER_S, Run
from tileq_engine.simulator import simulate
from tileq_profiling.replay.comparison import Comparison, Path, Quantity
from tileq_profiling.replay.settings import settings_of, vllm_policy
from tileq_profiling.steps.run import MeasuredRun, RunSeries
from tileq_theory.errors import InputError
from tileq_theory.iteration_time import IterationTime

_LATENCIES = ("ttft_s", "tpot_s", "e2e_s")


def replay(
    run: MeasuredRun, time: IterationTime, *, config: EngineConfig | None = None, policy: Policy | None = None
) -> Comparison:
    """Return the comparison of a measured run with its own requests simulated on `time`.

    Parameters
    ----------
    run
        Requests with arrivals and lengths; what it measured of latencies and paths is compared, none of it is fitted.
    time
        Iteration time, from a calibration of the same device and model.
    config, policy
        The engine's settings and scheduler; None: as the run's files state them, vLLM's scheduler of their version.

    Raises
    ------
    InputError
        No requests or no arrivals in the run, several engines, settings that its files do not state.
    """
    if run.arrival_s is None or not run.count:
        raise InputError(f"{run.source} tells no arrivals of its requests; a replay needs arrivals and lengths of each")
    if len(run.series) > 1:
        raise InputError(
            f"{run.source} has {len(run.series)} engines and does not say which served what; replay one engine's run"
        )
    asked = Requests.from_arrays(
        arrival_s=run.arrival_s, prompt_tokens=run.prompt_tokens, output_tokens=run.output_tokens
    )
    made = Run.of(simulate(asked, policy or vllm_policy(run), time, config or settings_of(run)))
    latencies = _latencies(run, made)
    paths = _paths(run.series[0], made) if run.series else {}
    return Comparison(
        source=run.source,
        quantities={q.name: q for q in (*_rates(run, made), *_quantiles(latencies), *_averages(run, made))},
        per_request=latencies,
        paths=paths,
        run=made,
        warnings=_warnings(run, made),
    )


def _seconds(column: Int[np.ndarray, "request"]) -> Float[np.ndarray, "request"]:
    return np.where(column >= 0, column / PS_PER_S, np.nan)


def _latencies(run: MeasuredRun, made: Run) -> dict[str, Float[np.ndarray, "2 request"]]:
    table = made.requests
    arrival = _seconds(table["arrival_ps"])
    first, finish = _seconds(table["first_token_ps"]), _seconds(table["finish_ps"])
    steps = np.where(table["output_tokens"] > 1, table["output_tokens"] - 1, np.nan)
    predicted = {"ttft_s": first - arrival, "tpot_s": (finish - first) / steps, "e2e_s": finish - arrival}
    return {
        name: np.stack([np.asarray(getattr(run, name), float), predicted[name]])
        for name in _LATENCIES
        if getattr(run, name) is not None
    }


def _rates(run: MeasuredRun, made: Run) -> list[Quantity]:
    duration, done = run.duration_s, made.finished
    end = float(made.requests["finish_ps"].max()) / PS_PER_S
    if not duration or not done:
        return []
    return [
        Quantity("throughput_per_s", run.count / duration, done / end),
        Quantity("output_tokens_per_s", float(run.output_tokens.sum()) / duration, _output(made) / end),
        Quantity("duration_s", float(duration), end),
    ]


def _output(made: Run) -> float:
    return float(made.requests["output_tokens"][made.requests["finish_ps"] >= 0].sum())


def _quantiles(latencies: dict[str, Float[np.ndarray, "2 request"]]) -> list[Quantity]:
    out = []
    for name, pair in latencies.items():
        known = pair[:, np.isfinite(pair).all(axis=0)]
        if known.size:
            out.append(Quantity(f"{name} mean", *(float(x) for x in known.mean(axis=1))))
            out += [
                Quantity(f"{name} p{q}", *(float(x) for x in np.percentile(known, q, axis=1))) for q in (50, 90, 99)
            ]
    return out


def _averages(run: MeasuredRun, made: Run) -> list[Quantity]:
    """Return the time averages of the paths, each over its own duration."""
    if not run.series:
        return []
    widths = made.samples["duration_ps"].astype(float)
    if not widths.size:
        return []
    out = []
    for name, values in _sampled(made).items():
        measured = run.series[0].time_average(name)
        if np.isfinite(measured):
            out.append(Quantity(f"{name} over time", measured, float(values @ widths / widths.sum())))
    return out


def _sampled(made: Run) -> dict[str, Float[np.ndarray, "sample"]]:
    s, blocks = made.samples, made.info.kv_blocks_total
    found: dict[str, Any] = {"running": s["running"].astype(float), "waiting": s["waiting"].astype(float)}
    return {**found, "kv_usage": s["kv_blocks_used"] / blocks} if blocks else found


def _paths(series: RunSeries, made: Run) -> dict[str, Path]:
    start = made.samples["start_ps"] / PS_PER_S
    end = float(made.info.end_ps) / PS_PER_S
    at = np.searchsorted(start, series.t_s, side="right") - 1
    out = {}
    for name, values in _sampled(made).items():
        inside = (at >= 0) & (series.t_s <= end)
        predicted = np.where(inside, values[np.clip(at, 0, None)], 0.0)
        out[name] = Path(series.t_s, np.asarray(getattr(series, name), float), predicted)
    return out


def _warnings(run: MeasuredRun, made: Run) -> tuple[str, ...]:
    out = list(run.warnings)
    if made.finished < made.count:
        why = ", ".join(f"{count} {reason}" for reason, count in made.rejections().items()) or made.info.stop_reason
        out.append(f"the replay finished {made.finished} of {made.count} requests ({why})")
    if made.info.sample_every > 1:
        out.append(f"paths are from one iteration in {made.info.sample_every}")
    return tuple(out)
