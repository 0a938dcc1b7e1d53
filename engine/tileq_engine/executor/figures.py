"""The figures by which a real run and its simulation are held together; numpy alone."""

from __future__ import annotations

__all__ = ["error_figures", "latency_figures", "saturated_rate", "verdict_of"]

from typing import Any

import numpy as np
from jaxtyping import Float

from tileq_engine.clock import PS_PER_S
from tileq_engine.executor.log import IterationLog
from tileq_engine.simulator_result import RawRun
from tileq_theory.iteration_time import IterationTime

_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
_BATCHES = 10
_T95 = 2.262  # Student's t, 9 degrees of freedom, two-sided 95 %
_WARM = 0.1


def _spread(values: Float[np.ndarray, "n"], counts: Float[np.ndarray, "n"] | None = None) -> dict[str, float | None]:
    """Return mean, quantiles and largest of weighted values, seconds; None where there is nothing."""
    if values.size == 0:
        return dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    weights = np.ones(values.size) if counts is None else counts
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weights[order])
    found: dict[str, float | None] = {"mean": float(np.average(values, weights=weights))}
    for name, share in _QUANTILES:
        found[name] = float(values[order][np.searchsorted(upto, share * upto[-1])])
    return {**found, "max": float(values.max())}


def latency_figures(raw: RawRun) -> dict[str, dict[str, float | None]]:
    """Return `ttft_s` and `tbt_s` of a run, without the requests of its first tenth (TBT: all of its tokens)."""
    skip = int(_WARM * int((raw.status != 0).sum()))
    seen = (raw.first_token_ps >= 0) & (np.arange(len(raw.status)) >= skip)
    ttft = (raw.first_token_ps - raw.arrival_ps)[seen] / PS_PER_S
    return {
        "ttft_s": _spread(np.asarray(ttft, dtype=float)),
        "tbt_s": _spread(raw.gaps.gap_ps / PS_PER_S, raw.gaps.count.astype(float)),
    }


def saturated_rate(raw: RawRun) -> tuple[float, float, tuple[int, int]] | None:
    """Return the rate of finishes while work was waiting, half its 95 % interval, and the window in picoseconds.

    The window runs from the moment a tenth of the requests has left to the last first admission (the run's end where
    somebody was never admitted), in ten batches. None for fewer than 40 finishes in it, or where requests hardly
    waited.
    """
    finish = np.sort(raw.finish_ps[raw.finish_ps >= 0])
    arrived = (raw.status != 0) & (raw.status != 4)
    if finish.size < 40:
        return None
    begin = int(finish[finish.size // 10])
    admit = raw.admit_ps[arrived]
    end = raw.end_ps if bool((admit < 0).any()) else int(admit.max())
    waited = ((admit < 0) | (admit > raw.arrival_ps[arrived]))[finish.size // 10 :]
    inside = finish[(finish > begin) & (finish <= end)]
    if end <= begin or float(waited.mean()) < 0.8 or inside.size < 40:
        return None
    counts = np.histogram(inside, bins=np.linspace(begin, end, _BATCHES + 1))[0].astype(float)
    rates = counts * _BATCHES / ((end - begin) / PS_PER_S)
    return float(rates.mean()), float(_T95 * rates.std(ddof=1) / _BATCHES**0.5), (begin, end)


def error_figures(log: IterationLog, time: IterationTime) -> dict[str, float]:
    """Return how far a model of the iteration time is from the iterations of a run, as relative errors.

    `bias` is that of the whole time (predicted over measured, less 1), `median` and `p90` of single iterations.
    """
    n, pairs, kv, m = log.compositions.T
    predicted = np.asarray(time(n, pairs, kv, m), dtype=float)
    errors = np.abs(predicted / log.seconds - 1)
    return {
        "bias": float(predicted.sum() / log.seconds.sum() - 1),
        "median": float(np.median(errors)),
        "p90": float(np.quantile(errors, 0.9)),
    }


def verdict_of(raw: RawRun) -> dict[str, Any]:
    """Return the stability verdict of a run and its reason."""
    from tileq_engine.run import Run

    found = Run.of(raw).verdict()
    return {"verdict": found.verdict, "reason": found.reason}


def clock_ratio(log: IterationLog, column: str, window_ps: tuple[int, int] | None = None) -> float:
    """Return the run's clock over another one (`cpu_ns` or `wall_ns`), in a window of the run's clock."""
    inside = np.ones(len(log), dtype=bool)
    if window_ps is not None:
        inside = (log["start_ps"] >= window_ps[0]) & (log["start_ps"] < window_ps[1])
    other = float(log[column][inside].sum())
    return float(log["duration_ps"][inside].sum()) / 1e3 / other if other else 1.0
