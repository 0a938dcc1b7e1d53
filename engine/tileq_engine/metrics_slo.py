r"""SLO attainment and goodput of a group of measured requests.

A request attains its objective when TTFT, every single gap between its tokens (its largest gap) and E2E are within the
limits of its tier. Attainment is over all measured requests and those rejected meanwhile: one that never got so far
counts as a miss, which makes the share a lower bound. Goodput = requests that attain everything, per second of the
window.
"""

from __future__ import annotations

__all__ = ["SloReport", "slo_report"]

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int

from tileq_engine.gaps import GapDistribution
from tileq_engine.metrics_requests import e2e_ps, tbt_limit_ps
from tileq_engine.run import FINISHED, PS_PER_S

if TYPE_CHECKING:
    from tileq_engine.run import Run


@dataclass(frozen=True, slots=True)
class SloReport:
    """Shares of the measured requests that attain each part and everything (nan when none was measured).

    `gaps_within` is the share of single gaps within the limit, from the gap distribution, as (lower, upper) bound,
    when one limit holds for the group; None when limits differ or there is none.
    """

    ttft: float
    tbt: float
    e2e: float
    attained: float
    goodput_per_s: float
    gaps_within: tuple[float, float] | None

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain data."""
        parts = {"ttft": self.ttft, "tbt": self.tbt, "e2e": self.e2e, "all": self.attained}
        shown: dict[str, object] = {k: v if math.isfinite(v) else None for k, v in parts.items()}
        shown["gaps_within_limit"] = None if self.gaps_within is None else list(self.gaps_within)
        return shown


def _limits(run: Run, name: str) -> Float[np.ndarray, "request"]:
    limits = np.full(run.count, np.inf)
    for tier, slo in enumerate(run.info.slo):
        limits[run.requests["tier"] == tier] = getattr(slo, name) * PS_PER_S
    return limits


def slo_report(
    run: Run,
    members: Bool[np.ndarray, "request"],
    leaving: Bool[np.ndarray, "request"],
    gaps: GapDistribution,
    seconds: float,
    first_ps: Int[np.ndarray, "request"],
    rejected: int = 0,
) -> SloReport:
    """Return the attainment of `members` and of `rejected` more that attain nothing.

    `leaving` are the requests that finish inside the window of `seconds`; `first_ps` is the TTFT under the convention
    in use.
    """
    total = int(members.sum()) + rejected
    tbt_limit, total_ps = tbt_limit_ps(run), e2e_ps(run)
    ttft = (first_ps >= 0) & (first_ps <= _limits(run, "ttft_s"))
    tbt = (run.requests["status"] == FINISHED) & (run.requests["max_gap_ps"] <= tbt_limit)
    e2e = (total_ps >= 0) & (total_ps <= _limits(run, "e2e_s"))
    everything = ttft & tbt & e2e
    limits = np.unique(tbt_limit[members])
    one = limits.size == 1 and bool(np.isfinite(limits[0])) and gaps.count > 0

    def share(attained: Bool[np.ndarray, "request"]) -> float:
        return int((attained & members).sum()) / total if total else math.nan

    return SloReport(
        ttft=share(ttft),
        tbt=share(tbt),
        e2e=share(e2e),
        attained=share(everything),
        goodput_per_s=int((everything & leaving).sum()) / seconds if seconds > 0 else math.nan,
        gaps_within=gaps.share_within(int(limits[0])) if one else None,
    )
