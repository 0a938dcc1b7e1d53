r"""Does a KV token cost the same wherever it is read?

The family has one k. Attention kernels that serve decodes beside a prefill chunk can take twice as long for a KV
token as those of decodes alone, and a fit to both lies between. With all other coefficients as fitted, the price of a
KV token in each phase is the k of least absolute relative residual there, a weighted median:

    min_k sum_i |y_i - rest_i - k K_i| / y_i  =  median of (y_i - rest_i)/K_i with weights K_i/y_i.
"""

from __future__ import annotations

__all__ = ["kv_prices", "prices_differ"]

import numpy as np

from tileq_profiling.profile.table import Profile
from tileq_theory.iteration_time import IterationTime

_FEWEST = 8
_MATTERS = 0.05  # share of an iteration that KV reads must have for their price to be seen
_APART = 1.4


def kv_prices(profile: Profile, time: IterationTime) -> dict[str, float]:
    """Return the time of one KV token read in decode and in mixed batches, seconds; only phases that show it.

    Examples
    --------
    >>> t = IterationTime(launch_s=0.01, token_s=1e-4, kv_token_s=1e-7)
    >>> kv, n = np.arange(1e4, 6e5, 2e4), np.full(30, 8.0)
    >>> p = Profile.of(tokens=n, kv_tokens=kv, seconds=t(n, 0, kv), prefill_tokens=np.zeros(30))
    >>> {phase: round(1e7 * price, 6) for phase, price in kv_prices(p, t).items()}
    {'decode': 1.0}
    """
    out = {}
    rest = np.asarray(time.with_(kv_token_s=0.0)(*profile.compositions.T))
    for name in ("decode", "mixed"):
        seen = (profile.phase == name) & (profile.kv_tokens * time.kv_token_s > _MATTERS * profile.seconds)
        if int(seen.sum()) < _FEWEST:
            continue
        kv, seconds = profile.kv_tokens[seen], profile.seconds[seen]
        price, weight = (seconds - rest[seen]) / kv, kv / seconds
        order = np.argsort(price)
        at = int(np.searchsorted(np.cumsum(weight[order]), 0.5 * float(weight.sum())))
        out[name] = float(price[order][at])
    return out


def prices_differ(profile: Profile, time: IterationTime) -> tuple[str, ...]:
    """Return the warning that one k does not hold in all phases; none where it does."""
    prices = kv_prices(profile, time)
    if set(prices) != {"decode", "mixed"} or min(prices.values()) <= 0:
        return ()
    ratio = prices["mixed"] / prices["decode"]
    if 1 / _APART < ratio < _APART:
        return ()
    return (
        f"a KV token costs {1e9 * prices['decode']:.3g} ns in decodes alone and {1e9 * prices['mixed']:.3g} ns beside "
        f"prefill, and one coefficient stands for both ({1e9 * time.kv_token_s:.3g} ns): latencies of one kind of "
        "traffic are off by part of the difference; to predict a run, fit for its batches (--replay, focused_fit)",
    )
