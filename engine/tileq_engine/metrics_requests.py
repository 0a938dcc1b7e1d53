r"""Per-request times of a run (`schedulers.md` section 4), whole picoseconds; -1 where the moment did not come.

    TTFT = first output token - arrival         TPOT = (finish - first token)/(O - 1), O >= 2        E2E = finish -
    arrival

`observed` handles requests that had not got so far when the run ended: their age is a lower bound and stands in for the
time, so that slow requests are not dropped from the sample just because they are slow.
"""

from __future__ import annotations

__all__ = ["e2e_ps", "observed_ps", "tbt_limit_ps", "tpot_ps", "ttft_ps"]

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from tileq_engine.run import PS_PER_S

if TYPE_CHECKING:
    from tileq_engine.run import Run


def _since_arrival(run: Run, moment: Int[np.ndarray, "request"]) -> Int[np.ndarray, "request"]:
    return np.where(moment >= 0, moment - run.requests["arrival_ps"], -1)


def ttft_ps(run: Run) -> Int[np.ndarray, "request"]:
    """Return the time to first token of each request, ps."""
    return _since_arrival(run, run.requests["first_token_ps"])


def e2e_ps(run: Run) -> Int[np.ndarray, "request"]:
    """Return the time from arrival to the last token of each request, ps."""
    return _since_arrival(run, run.requests["finish_ps"])


def tpot_ps(run: Run) -> Float[np.ndarray, "request"]:
    """Return the mean time per output token after the first of each finished request with two tokens or more, ps."""
    table = run.requests
    has = (table["finish_ps"] >= 0) & (table["first_token_ps"] >= 0) & (table["output_tokens"] >= 2)
    decode = np.where(has, table["finish_ps"] - table["first_token_ps"], 0)
    return np.where(has, decode / np.maximum(table["output_tokens"] - 1, 1), -1.0)


def observed_ps(
    run: Run, interval_ps: Int[np.ndarray, "request"], members: Bool[np.ndarray, "request"]
) -> tuple[Int[np.ndarray, "n"], int]:
    """Return (times of the members, how many of them are only lower bounds: the age at the end of the run)."""
    age = np.maximum(run.info.end_ps - run.requests["arrival_ps"], 0)
    missing = members & (interval_ps < 0)
    return np.where(interval_ps >= 0, interval_ps, age)[members], int(missing.sum())


def tbt_limit_ps(run: Run) -> Float[np.ndarray, "request"]:
    """Return the TBT limit of each request, ps: its tier's objective, else its own limit, else infinite."""
    limits = np.full(run.count, np.inf)
    own = run.requests["tbt_limit_ps"]
    limits[own > 0] = own[own > 0]
    for tier, slo in enumerate(run.info.slo):
        if np.isfinite(slo.tbt_s):
            limits[run.requests["tier"] == tier] = round(slo.tbt_s * PS_PER_S)
    return limits
