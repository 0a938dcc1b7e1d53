r"""What tenants got: service, shares against weights, Jain's index, starvation, times.

The service of a tenant is prompt_price * prompt tokens computed (the first time) + output_price * output tokens. Over
an interval between two samples the tenants that have requests waiting at both its ends are *backlogged*: they could
have used more. What they get together would be divided by their weights if it were fair. Summed over all intervals
with two or more backlogged tenants (the contended time), S_i is what tenant i got as one of them and F_i what was fair;

    share error = max_i |S_i - F_i| / sum_i S_i,      Jain's index = (sum_i x_i)^2 / (m sum_i x_i^2), x_i = S_i/F_i,

over the m tenants with F_i > 0: 0 and 1 where service is as the weights say, whoever came and went meanwhile.
"""

from __future__ import annotations

__all__ = ["TenantShares", "jain_index", "service_series", "tenant_metrics", "tenant_shares"]

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from tileq_engine.metrics_requests import e2e_ps, observed_ps, tpot_ps, ttft_ps
from tileq_engine.observed import TenantRecord
from tileq_engine.run import PS_PER_S, Run
from tileq_theory.errors import InputError

if TYPE_CHECKING:
    from tileq_engine.metrics_window import MeasureWindow


def jain_index(values: Float[np.ndarray, "tenant"]) -> float | None:
    """Return Jain's index of fairness, (sum x)^2 / (n sum x^2), in [1/n, 1]; None without a value above 0.

    Examples
    --------
    >>> jain_index(np.array([1.0, 1.0])), jain_index(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    square = float(values @ values)
    return float(values.sum()) ** 2 / (values.size * square) if square > 0 else None


def service_series(record: TenantRecord) -> Float[np.ndarray, "sample tenant"]:
    """Return the service every tenant has had by each sample."""
    return record.prompt_price * record.prefilled_tokens + record.output_price * record.delivered_tokens.astype(float)


@dataclass(frozen=True, slots=True)
class TenantShares:
    """Service of the backlogged tenants over the contended time, and what was fair of it."""

    got: Float[np.ndarray, "tenant"]
    fair: Float[np.ndarray, "tenant"]
    contended_s: float

    @property
    def error(self) -> float | None:
        """Largest deviation from the fair part, as a share of all; None where nobody contended."""
        total = float(self.got.sum())
        return float(np.abs(self.got - self.fair).max()) / total if total > 0 else None

    @property
    def jain(self) -> float | None:
        """Jain's index of what was got over what was fair; None where nobody contended."""
        among = self.fair > 0
        return jain_index(self.got[among] / self.fair[among]) if bool(among.any()) else None


def tenant_shares(run: Run, window: tuple[int, int] | None = None) -> TenantShares:
    """Return the shares of the backlogged tenants between the samples inside `window` (ps; None: the whole run)."""
    record = _record(run)
    start = run.samples["start_ps"]
    low, high = (0, run.info.end_ps) if window is None else window
    inside = (start[:-1] >= low) & (start[1:] <= high)
    backlogged = (record.waiting[:-1] > 0) & (record.waiting[1:] > 0)
    contended = inside & (backlogged.sum(axis=1) > 1)
    step = np.diff(service_series(record), axis=0)[contended] * backlogged[contended]
    weight = np.asarray(record.weights) * backlogged[contended]
    total = weight.sum(axis=1, keepdims=True)
    # where only tenants of weight 0 are backlogged they are equals
    part = np.where(total > 0, weight, backlogged[contended]) / np.where(total > 0, total, 1.0)
    part /= np.maximum(part.sum(axis=1, keepdims=True), 1e-300)
    fair = step.sum(axis=1, keepdims=True) * part
    seconds = float(np.diff(start)[contended].sum()) / PS_PER_S
    return TenantShares(step.sum(axis=0), fair.sum(axis=0), seconds)


def tenant_metrics(run: Run, window: MeasureWindow) -> dict[str, Any]:
    """Return the `tenants` part of the metrics document; tokens and starvation are of the whole run."""
    record = _record(run)
    shares = tenant_shares(run)
    prompt, output = record.end_prefilled_tokens, record.end_delivered_tokens
    service = record.prompt_price * prompt + record.output_price * output.astype(float)
    seconds, weights = run.info.end_ps / PS_PER_S, np.asarray(record.weights)
    among = float(shares.got.sum())
    found = {}
    for t, name in enumerate(record.names):
        found[name] = {
            "weight": float(weights[t]),
            "prompt_tokens": int(prompt[t]),
            "output_tokens": int(output[t]),
            "tokens_per_s": float(prompt[t] + output[t]) / seconds if seconds else None,
            "service_share": float(service[t] / service.sum()) if service.sum() > 0 else None,
            "contended_share": float(shares.got[t]) / among if among else None,
            "fair_share": float(shares.fair[t]) / among if among else None,
            "starved_s": int(record.starved_ps[t]) / PS_PER_S,
            "starved_from_s": int(record.starved_from_ps[t]) / PS_PER_S,
            **_times(run, window, t),
        }
    return {
        "each": found,
        "jain_index": shares.jain,
        "share_error": shares.error,
        "contended_s": shares.contended_s,
        "starved_s": {"max": int(record.starved_ps.max()) / PS_PER_S},
        "prices": {"prompt": record.prompt_price, "output": record.output_price},
    }


def _times(run: Run, window: MeasureWindow, tenant: int) -> dict[str, Any]:
    """Return the times of a tenant's measured requests; TBT where they are a class (or classes) of their own."""
    from tileq_engine.gaps import GapPairs, merge_gaps
    from tileq_engine.metrics import spread_of, spread_of_gaps

    mine = run.requests["tenant"] == tenant
    members = window.members(run) & mine
    classes = np.unique(run.requests["class_index"][mine])
    alone = not bool(np.isin(run.requests["class_index"][~mine], classes).any())
    gaps = [g.gaps for g in run.gaps if g.class_index in classes] if alone else []
    tpot = tpot_ps(run)[members]
    return {
        "requests": int(mine.sum()),
        "finished": int((mine & (run.requests["finish_ps"] >= 0)).sum()),
        "measured_requests": int(members.sum()),
        "ttft_s": spread_of(*observed_ps(run, ttft_ps(run), members)).to_dict(),
        "tbt_s": spread_of_gaps(merge_gaps(gaps) if gaps else GapPairs.of(np.zeros(0, dtype=np.int64))).to_dict(),
        "tpot_s": spread_of(tpot[tpot >= 0]).to_dict(),
        "e2e_s": spread_of(*observed_ps(run, e2e_ps(run), members)).to_dict(),
    }


def _record(run: Run) -> TenantRecord:
    if run.tenants is None:
        raise InputError("the run kept no tenants' accounts; simulate with tenants in the settings")
    return run.tenants
