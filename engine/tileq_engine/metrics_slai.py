r"""The SLAI authors' measuring conventions, as a named option (`schedulers.md` section 4; arXiv 2508.01002).

* TTFT ends with the last prompt chunk and excludes the first decode step.
* Two zero gaps per request enter the TBT sample.
* Only finished requests count; no warm-up or tail is cut.
* Capacity: the largest rate with median TTFT < .5 s and p99 TBT within each tier's limit.
* Gaps between arrivals are exponential cut at 3/qps, so the true rate is qps/(1 - exp(-3)) = 1.0524 qps.
"""

from __future__ import annotations

__all__ = ["SLAI_TTFT_MEDIAN_S", "slai_arrivals_s", "slai_feasible", "slai_gaps", "slai_true_rate", "slai_ttft_ps"]

import math
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int

from tileq_engine.gaps import GapDistribution, GapPairs, merge_gaps
from tileq_engine.run import FINISHED
from tileq_theory.errors import positive, positive_int

if TYPE_CHECKING:
    from tileq_engine.run import Run

SLAI_TTFT_MEDIAN_S = 0.5
_ZERO_GAPS = 2
_CUT = 3.0


def slai_ttft_ps(run: Run) -> Int[np.ndarray, "request"]:
    """Return end of the last prompt chunk - arrival of each request, ps (-1: not reached)."""
    end = run.requests["prefill_end_ps"]
    return np.where(end >= 0, end - run.requests["arrival_ps"], -1)


def slai_gaps(gaps: GapDistribution, requests: int) -> GapDistribution:
    """Return the gap distribution with two zero gaps for each of `requests` requests."""
    if not requests:
        return gaps
    zeros = GapPairs(np.zeros(1, dtype=np.int64), np.array([_ZERO_GAPS * requests], dtype=np.int64))
    return merge_gaps([gaps, zeros])


def slai_true_rate(qps: float) -> float:
    """Return the true arrival rate of gaps exponential with rate `qps`, cut at 3/qps.

    Examples
    --------
    >>> round(slai_true_rate(1.0), 4)
    1.0524
    """
    return positive("qps", qps) / -math.expm1(-_CUT)


def slai_arrivals_s(rng: np.random.Generator, count: int, qps: float) -> Float[np.ndarray, "request"]:
    """Return `count` arrival moments in seconds, gaps min(Exp(qps), 3/qps)."""
    rate = positive("qps", qps)
    return np.cumsum(np.minimum(rng.standard_exponential(positive_int("count", count)), _CUT) / rate)


def slai_feasible(run: Run, ttft_median_s: float = SLAI_TTFT_MEDIAN_S) -> bool:
    """Return whether the run meets the authors' criterion: median TTFT below the limit and p99 TBT within each tier's.

    Tiers without a TBT limit or without finished requests are not held to one. A run in which nothing finished is not
    feasible.
    """
    metrics = run.metrics(convention="slai")
    if not int((run.requests["status"] == FINISHED).sum()) or not metrics.all.ttft_s.p50 < ttft_median_s:
        return False
    for name, slo in zip(run.info.tier_names, run.info.slo, strict=False):
        tier = metrics.tiers[name]
        if math.isfinite(slo.tbt_s) and tier.tbt_s.count and tier.tbt_s.p99 > slo.tbt_s:
            return False
    return True
